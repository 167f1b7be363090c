//! Chooses the section that is cleaned next: pure functions over the state of sections.
//!
//! | choice | for | cleans |
//! |---|---|---|
//! | [`Choice::Greedy`] | the foreground | the fewest valid blocks |
//! | [`Choice::CostBenefit`] | the background | the greatest `(100 - u) * age / (100 + u)`, u in percent of valid blocks |
//! | [`Choice::AgeThreshold`] | the background with `atgc` | the best by age and free space among the oldest fifth of the sections older than a week |
//!
//! Data first: sections of nodes are cleaned only where no section of data gains anything
//! ([`Rule::data_first`]), because moving data also frees nodes.

use crate::segment::SectionInfo;

/// Seconds without a write after which a section is old for [`Choice::AgeThreshold`].
pub(super) const AGE_THRESHOLD: u64 = 7 * 24 * 60 * 60;
/// Percentage of the candidates that are examined, the oldest first, and their least number.
const OLDEST_PERCENT: usize = 20;
const OLDEST_AT_LEAST: usize = 10;
/// Weight of the age in percent. The rest is the weight of free space.
const AGE_WEIGHT: u64 = 60;

/// How victims are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The fewest valid blocks.
    Greedy,
    /// Free space weighed with age.
    CostBenefit,
    /// Age and free space, among the old sections only.
    AgeThreshold,
}

/// The criteria of a choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// How victims are compared.
    pub(crate) choice: Choice,
    /// Sections of nodes cost a whole section more (greedy), or are never victims.
    pub(crate) data_first: bool,
    /// Blocks of a section.
    pub(crate) whole: u32,
    /// The volume's time, seconds.
    pub(crate) now: u64,
}

/// The section to clean, if one gains anything.
#[must_use]
pub(super) fn select<I: Iterator<Item = SectionInfo> + Clone>(
    candidates: I,
    rule: Rule,
) -> Option<SectionInfo> {
    match rule.choice {
        Choice::Greedy => candidates.min_by_key(|info| greedy_cost(info, rule)),
        Choice::CostBenefit => cost_benefit(candidates, rule),
        Choice::AgeThreshold if rule.now < AGE_THRESHOLD => cost_benefit(candidates, rule),
        Choice::AgeThreshold => age_threshold(candidates, rule),
    }
}

/// The emptiest sections, `most` of them, in order.
#[must_use]
pub(super) fn emptiest(
    candidates: impl Iterator<Item = SectionInfo>,
    most: u32,
) -> Vec<SectionInfo> {
    let mut best: Vec<SectionInfo> = Vec::with_capacity(most as usize + 1);
    for info in candidates {
        if best.len() == most as usize && best.last().is_some_and(|worst| worst.valid <= info.valid)
        {
            continue;
        }
        let at = best.partition_point(|other| other.valid <= info.valid);
        best.insert(at, info);
        best.truncate(most as usize);
    }
    best
}

const fn skipped(info: &SectionInfo, rule: Rule) -> bool {
    rule.data_first && info.is_node()
}

const fn greedy_cost(info: &SectionInfo, rule: Rule) -> u32 {
    info.valid + if skipped(info, rule) { rule.whole } else { 0 }
}

/// The oldest and the youngest time among candidates.
fn times(candidates: impl Iterator<Item = SectionInfo>, now: u64) -> (u64, u64) {
    let oldest = candidates.map(|info| info.mtime).min().unwrap_or(now);
    (oldest.min(now), now)
}

/// 100 for the oldest section, 0 for one written just now.
fn age(mtime: u64, (oldest, now): (u64, u64)) -> u64 {
    match now - oldest {
        0 => 100,
        span => 100 - 100 * (mtime.clamp(oldest, now) - oldest) / span,
    }
}

fn cost_benefit<I: Iterator<Item = SectionInfo> + Clone>(
    candidates: I,
    rule: Rule,
) -> Option<SectionInfo> {
    let times = times(candidates.clone(), rule.now);
    let benefit = |info: &SectionInfo| {
        let used = u64::from(info.valid) * 100 / u64::from(rule.whole);
        100 * (100 - used.min(100)) * age(info.mtime, times) / (100 + used)
    };
    let eligible = candidates.filter(|info| !skipped(info, rule));
    // Among equals the emptier one wins: on a volume that was filled in one go all ages are equal.
    eligible.max_by_key(|info| (benefit(info), u32::MAX - info.valid))
}

fn age_threshold<I: Iterator<Item = SectionInfo> + Clone>(
    candidates: I,
    rule: Rule,
) -> Option<SectionInfo> {
    let times = times(candidates.clone(), rule.now);
    let all = candidates.clone().count();
    let old = |info: &SectionInfo| rule.now.saturating_sub(info.mtime) >= AGE_THRESHOLD;
    let mut oldest: Vec<SectionInfo> =
        candidates.filter(|info| !skipped(info, rule) && old(info)).collect();
    oldest.sort_by_key(|info| info.mtime);
    oldest.truncate((all * OLDEST_PERCENT / 100).max(OLDEST_AT_LEAST));
    let score = |info: &SectionInfo| {
        let free = 100 * u64::from(rule.whole.saturating_sub(info.valid)) / u64::from(rule.whole);
        AGE_WEIGHT * age(info.mtime, times) + (100 - AGE_WEIGHT) * free
    };
    oldest.into_iter().max_by_key(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: u32 = 2048;

    fn data(section: u32, valid: u32, mtime: u64) -> SectionInfo {
        SectionInfo { section, valid, nodes: 0, mtime }
    }

    fn nodes(section: u32, valid: u32, mtime: u64) -> SectionInfo {
        SectionInfo { section, valid, nodes: valid, mtime }
    }

    fn chosen(
        candidates: &[SectionInfo],
        choice: Choice,
        data_first: bool,
        now: u64,
    ) -> Option<u32> {
        let rule = Rule { choice, data_first, whole: WHOLE, now };
        select(candidates.iter().copied(), rule).map(|info| info.section)
    }

    #[test]
    fn greedy_takes_the_fewest_valid_blocks() {
        let table = [data(0, 900, 1), nodes(1, 300, 1), data(2, 500, 9), data(3, 2047, 0)];
        assert_eq!(chosen(&table, Choice::Greedy, false, 10), Some(1));
        assert_eq!(chosen(&table[2..], Choice::Greedy, false, 10), Some(2));
        assert_eq!(chosen(&[], Choice::Greedy, false, 10), None);
    }

    #[test]
    fn the_emptiest_come_in_order() {
        let table: Vec<_> = [5_u32, 3, 9, 3, 1, 7]
            .iter()
            .zip(0..)
            .map(|(valid, number)| data(number, *valid, 0))
            .collect();
        let found = |most| {
            emptiest(table.iter().copied(), most)
                .iter()
                .map(|info| info.section)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (found(1), found(3), found(9)),
            (vec![4], vec![4, 1, 3], vec![4, 1, 3, 0, 5, 2])
        );
        assert!(found(0).is_empty());
    }

    #[test]
    fn data_first_lets_nodes_wait_for_the_last_section_of_data() {
        let table = [nodes(0, 1, 0), data(1, 2047, 0)];
        assert_eq!(chosen(&table, Choice::Greedy, true, 10), Some(1));
        // The foreground cleans nodes only if no section of data gains anything. The background
        // never cleans them.
        assert_eq!(chosen(&table[..1], Choice::Greedy, true, 10), Some(0));
        assert_eq!(chosen(&table[..1], Choice::CostBenefit, true, 10), None);
        assert_eq!(chosen(&table[..1], Choice::AgeThreshold, true, 2 * AGE_THRESHOLD), None);
        assert_eq!(chosen(&table, Choice::CostBenefit, true, 10), Some(1));
        assert_eq!(chosen(&table, Choice::CostBenefit, false, 10), Some(0));
    }

    #[test]
    fn a_mixed_section_counts_to_its_greater_part() {
        let mixed = |nodes| SectionInfo { section: 0, valid: 100, nodes, mtime: 0 };
        assert!(mixed(51).is_node() && !mixed(50).is_node());
        let table = [mixed(51), data(1, 2000, 0)];
        assert_eq!(chosen(&table, Choice::Greedy, true, 1), Some(1));
    }

    #[test]
    fn cost_benefit_weighs_age_with_space() {
        // The young one is emptier, but will empty itself.
        let table = [data(0, 1024, 0), data(1, 600, 990)];
        assert_eq!(chosen(&table, Choice::CostBenefit, false, 1000), Some(0));
        // Of one age the emptier one.
        let table = [data(0, 1024, 5), data(1, 600, 5), data(2, 700, 5)];
        assert_eq!(chosen(&table, Choice::CostBenefit, false, 5), Some(1));
        // (100 - 90) * 100 / 190 against (100 - 20) * 50 / 120.
        let table = [data(0, WHOLE * 9 / 10, 0), data(1, WHOLE / 5, 500)];
        assert_eq!(chosen(&table, Choice::CostBenefit, false, 1000), Some(1));
    }

    #[test]
    fn the_age_threshold_leaves_what_is_young() {
        let now = 4 * AGE_THRESHOLD;
        let table =
            [data(0, 10, now - AGE_THRESHOLD + 1), data(1, 2000, 0), data(2, 1500, AGE_THRESHOLD)];
        // 60 * 100 + 40 * 2 against 60 * 75 + 40 * 26.
        assert_eq!(chosen(&table, Choice::AgeThreshold, false, now), Some(1));
        assert_eq!(chosen(&table[..1], Choice::AgeThreshold, false, now), None);
        // 60 * 75 + 40 * 95: free space decides where ages are close.
        let table = [data(1, 2000, 0), data(2, 100, AGE_THRESHOLD)];
        assert_eq!(chosen(&table, Choice::AgeThreshold, false, now), Some(2));
        // A volume that is younger than the threshold has nothing old.
        let table = [data(0, 10, 0), data(1, 2000, 0)];
        assert_eq!(chosen(&table, Choice::AgeThreshold, false, 100), Some(0));
    }

    #[test]
    fn only_the_oldest_fifth_is_looked_at() {
        let now = 100 * AGE_THRESHOLD;
        // Fifty-one sections; the emptiest is the eleventh oldest, the second emptiest the third.
        let valid = |number: u64| match number {
            10 => 0,
            2 => 100,
            _ => 2000,
        };
        let table: Vec<_> =
            (0..51).map(|number| data(number as u32, valid(number), number)).collect();
        assert_eq!(chosen(&table, Choice::AgeThreshold, false, now), Some(2));
    }
}
