//! What changed between two results beyond noise.
//!
//! The ratio of two medians has an interval by bootstrap: the repetitions of both results are drawn
//! again, with replacement. A figure has changed if the interval does not hold 1 and the ratio is
//! 2 % away from it. The draws are seeded, so the same results give the same answer.

use serde::Serialize;

use crate::random::Rng;
use crate::record::Record;
use crate::scale::Scale;
use crate::section::{Better, Section};
use crate::statistics::Spread;

/// Draws for an interval.
const DRAWS: usize = 2000;
/// Part of the draws outside of the interval, at each end.
const TAIL: f64 = 0.005;
/// A smaller change is not told.
const LEAST: f64 = 0.02;
/// The same for figures of a single sample, whose noise is unknown.
const LEAST_OF_ONE: f64 = 0.1;

/// A figure that changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Name of the experiment.
    pub(crate) experiment: String,
    /// Key of the table.
    pub(crate) section: String,
    /// The work.
    pub(crate) row: String,
    /// The option or program.
    pub(crate) subject: String,
    /// The figure; `×` is the ratio to the baseline.
    pub(crate) metric: String,
    /// The earlier median.
    pub(crate) before: f64,
    /// The later median.
    pub(crate) after: f64,
    /// `after` divided by `before`.
    pub(crate) ratio: f64,
    /// The interval of the ratio. `None` if a result has a single sample.
    pub(crate) interval: Option<(f64, f64)>,
    /// The change is to the good.
    pub(crate) better: bool,
}

/// True if a run of this experiment at this scale can be compared with the earlier result.
#[must_use]
pub fn is_comparable(old: &Record, experiment: &str, scale: Scale) -> bool {
    old.experiment == experiment && old.scale == scale
}

/// What changed from `old` to `new`. Results of other work are not compared.
#[must_use]
pub fn changes(old: &Record, new: &Record) -> Vec<Change> {
    if !is_comparable(old, &new.experiment, new.scale) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for section in &new.sections {
        let Some(before) = old.sections.iter().find(|other| other.id == section.id) else {
            continue;
        };
        in_section(&new.experiment, before, section, &mut found);
    }
    found
}

fn in_section(experiment: &str, old: &Section, new: &Section, found: &mut Vec<Change>) {
    let primary = new.metrics.iter().find(|metric| metric.name == new.primary);
    for row in &new.rows {
        let Some(before) = old.get(&row.row, &row.subject) else { continue };
        let figures = new.metrics.iter().filter_map(|metric| {
            let pair = (before.values.get(&metric.name)?, row.values.get(&metric.name)?);
            Some((metric.heading.as_str(), metric.better, pair))
        });
        let ratio = primary.zip(before.ratio.as_ref().zip(row.ratio.as_ref()));
        let ratio = ratio.map(|(metric, pair)| ("×", metric.better, pair));
        for (heading, better, (before, after)) in figures.chain(ratio) {
            let Some((change, interval)) = changed(before, after) else { continue };
            found.push(Change {
                experiment: experiment.to_owned(),
                section: new.id.clone(),
                row: row.row.clone(),
                subject: row.subject.clone(),
                metric: heading.to_owned(),
                before: before.median,
                after: after.median,
                ratio: change,
                interval,
                better: (change > 1.0) == (better == Better::Higher),
            });
        }
    }
}

/// The ratio of the medians and its interval, if it is not noise.
fn changed(before: &Spread, after: &Spread) -> Option<(f64, Option<(f64, f64)>)> {
    let ratio = after.median / before.median;
    if !ratio.is_finite() {
        return None;
    }
    let away = (ratio - 1.0).abs();
    if before.samples.len() < 2 || after.samples.len() < 2 {
        return (away >= LEAST_OF_ONE).then_some((ratio, None));
    }
    let mut random = Rng::new(1);
    let mut ratios: Vec<f64> = (0..DRAWS)
        .map(|_| {
            median_of_drawn(&mut random, &after.samples)
                / median_of_drawn(&mut random, &before.samples)
        })
        .filter(|ratio| ratio.is_finite())
        .collect();
    ratios.sort_by(f64::total_cmp);
    let tail = (ratios.len() as f64 * TAIL) as usize;
    let (low, high) = (*ratios.get(tail)?, *ratios.get(ratios.len().checked_sub(tail + 1)?)?);
    let outside = !(low..=high).contains(&1.0);
    (outside && away >= LEAST).then_some((ratio, Some((low, high))))
}

/// The median of as many samples, drawn with replacement.
fn median_of_drawn(random: &mut Rng, samples: &[f64]) -> f64 {
    let mut draw = || samples[random.below(samples.len() as u64) as usize];
    let drawn: Vec<f64> = samples.iter().map(|_| draw()).collect();
    Spread::of(&drawn).map_or(f64::NAN, |spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(samples: &[f64]) -> Spread {
        Spread::of(samples).unwrap()
    }

    #[test]
    fn noise_is_no_change_and_a_clear_difference_is_one() {
        let before = spread(&[100.0, 104.0, 98.0, 101.0, 97.0]);
        assert_eq!(changed(&before, &spread(&[99.0, 103.0, 101.0, 97.0, 102.0])), None);
        let (ratio, interval) =
            changed(&before, &spread(&[121.0, 119.0, 118.0, 124.0, 120.0])).unwrap();
        assert!((ratio - 1.2).abs() < 0.001, "{ratio}");
        let (low, high) = interval.unwrap();
        assert!(1.0 < low && low <= ratio && ratio <= high, "{low} {high}");
    }

    #[test]
    fn a_change_below_two_percent_is_not_told_however_sure() {
        let before = spread(&[100.0, 100.0, 100.0]);
        assert_eq!(changed(&before, &spread(&[101.0, 101.0, 101.0])), None);
        assert!(changed(&before, &spread(&[103.0, 103.0, 103.0])).is_some());
    }

    #[test]
    fn single_samples_need_a_large_difference() {
        let before = spread(&[100.0]);
        assert_eq!(changed(&before, &spread(&[109.0])), None);
        assert_eq!(changed(&before, &spread(&[80.0])), Some((0.8, None)));
        assert_eq!(changed(&spread(&[0.0]), &before), None);
    }
}
