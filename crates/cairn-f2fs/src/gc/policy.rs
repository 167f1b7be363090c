//! The rules by which foreground cleaning begins, writes a checkpoint, and stops.
//!
//! A section that was cleaned can be used only after a checkpoint; until then its segments are
//! *prefree*. Both rules below count a cleaned section as gained. The next call therefore usually
//! finds prefree segments and begins with a checkpoint.
//!
//! `greedy` is Linux's rule: a round that finds too few free sections and has prefree segments
//! begins with a checkpoint; the section with the fewest valid blocks is cleaned; cleaning ends as
//! soon as there is enough space.
//!
//! `data_first` leaves sections of nodes alone until they are needed: the flag `require_node_gc` is
//! raised when so few sections are free that what is pending and [`CHECKPOINT_SECTIONS`] more would
//! use them up. While it is clear, sections of nodes count as one section costlier than they are.
//! While it is set, cleaning continues with nodes when there is enough space, up to the first
//! victim of data. It is cleared when the call ends.

use crate::error::Error;
use crate::segment::CHECKPOINT_SECTIONS;

/// `gc_victim`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GcVictim {
    /// As Linux does it.
    Greedy,
    /// Data before nodes.
    DataFirst,
    /// Few checkpoints, sorted blocks, a budget for nodes: see `gc/adaptive.rs`.
    #[default]
    Adaptive,
}

impl GcVictim {
    /// The option's value.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::DataFirst => "data_first",
            Self::Adaptive => "adaptive",
        }
    }

    /// From the option's value; `word` is what the user wrote.
    ///
    /// # Errors
    /// There is no such policy.
    pub(crate) fn parse(word: &str, value: &str) -> Result<Self, Error> {
        let all = [Self::Greedy, Self::DataFirst, Self::Adaptive];
        let found = all.into_iter().find(|policy| policy.name() == value);
        found.ok_or_else(|| {
            Error::Option(format!("`{word}`: the policies are data_first, greedy and adaptive"))
        })
    }
}

/// `background_gc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackgroundGc {
    /// Victims are weighed by age and free space.
    #[default]
    On,
    /// No cleaning in the background.
    Off,
    /// Victims are chosen as in the foreground.
    Sync,
}

impl BackgroundGc {
    /// The option's value.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Sync => "sync",
        }
    }

    /// From the option's value; `word` is what the user wrote.
    ///
    /// # Errors
    /// There is no such value.
    pub(crate) fn parse(word: &str, value: &str) -> Result<Self, Error> {
        let found = [Self::On, Self::Off, Self::Sync].into_iter().find(|mode| mode.name() == value);
        found.ok_or_else(|| Error::Option(format!("`{word}`: background_gc is on, off or sync")))
    }
}

/// How much room there is, and how much is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceState {
    /// Free sections.
    pub(crate) free: u32,
    /// Segments that a checkpoint makes free.
    pub(crate) prefree: u32,
    /// Whole sections that pending writes will fill.
    pub(crate) lower: u32,
    /// The same, including sections that pending writes will begin.
    pub(crate) upper: u32,
    /// Sections that only cleaning may use.
    pub(crate) reserved: u32,
    /// True if the current segments can take the writes that do not fill a section.
    pub(crate) logs_suffice: bool,
}

impl SpaceState {
    /// True if there would be enough room with this many more free sections.
    #[must_use]
    pub(crate) const fn enough(&self, freed: u32) -> bool {
        let free = self.free + freed;
        free > self.upper + self.reserved
            || (free > self.lower + self.reserved && self.logs_suffice)
    }

    /// True if the free sections may suffice only for a checkpoint.
    #[must_use]
    pub(crate) const fn is_tight(&self) -> bool {
        self.free <= self.upper + CHECKPOINT_SECTIONS
    }
}

/// The first step of a round of cleaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoundStart {
    /// A checkpoint, then a victim.
    Checkpoint,
    /// A victim.
    Choose,
}

/// One call of foreground cleaning.
#[derive(Debug)]
pub(super) struct Foreground {
    policy: GcVictim,
    /// `require_node_gc`.
    require_nodes: bool,
    first: bool,
    /// Sections cleaned since the last checkpoint.
    freed: u32,
}

impl Foreground {
    /// The state of a new call, made because there is not enough room. The flag is clear.
    #[must_use]
    pub(super) const fn new(policy: GcVictim) -> Self {
        Self { policy, require_nodes: false, first: true, freed: 0 }
    }

    /// Decides the first step of a round.
    pub(super) fn start_round(&mut self, now: &SpaceState) -> RoundStart {
        let first = std::mem::take(&mut self.first);
        let checkpoint = match self.policy {
            GcVictim::Greedy => !now.enough(0),
            GcVictim::DataFirst | GcVictim::Adaptive => {
                self.require_nodes |= now.is_tight();
                // After the first round, only the flag's condition asks for checkpoints.
                now.is_tight() || (first && !now.enough(0))
            }
        };
        if checkpoint && now.prefree > 0 {
            self.freed = 0;
            return RoundStart::Checkpoint;
        }
        RoundStart::Choose
    }

    /// True if victims of nodes cost more.
    #[must_use]
    pub(super) const fn data_first(&self) -> bool {
        matches!(self.policy, GcVictim::DataFirst) && !self.require_nodes
    }

    /// Whether the best victim is cleaned.
    #[must_use]
    pub(super) const fn accepts(&self, is_node: bool, now: &SpaceState) -> bool {
        !(self.require_nodes && !is_node && now.enough(self.freed))
    }

    /// Whether to continue after a victim was cleaned, wholly or in part.
    pub(super) const fn goes_on(&mut self, whole: bool, now: &SpaceState) -> bool {
        self.freed += whole as u32;
        self.require_nodes || !now.enough(self.freed)
    }

    /// Whether a checkpoint is due between two rounds. Linux writes it here and at the start of a
    /// round.
    pub(super) const fn checkpoint_between(&mut self, now: &SpaceState) -> bool {
        let due = matches!(self.policy, GcVictim::Greedy) && now.is_tight() && now.prefree > 0;
        if due {
            self.freed = 0;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six reserved sections, two are needed for what is pending; so nine are enough, and five or
    /// fewer are tight.
    fn space_state(free: u32, prefree: u32) -> SpaceState {
        SpaceState { free, prefree, lower: 1, upper: 2, reserved: 6, logs_suffice: false }
    }

    #[test]
    fn room_is_what_remains_beyond_the_reserve() {
        assert!(
            space_state(9, 0).enough(0)
                && !space_state(8, 0).enough(0)
                && space_state(8, 0).enough(1)
        );
        let fitting = SpaceState { logs_suffice: true, ..space_state(8, 0) };
        assert!(fitting.enough(0) && !SpaceState { free: 7, ..fitting }.enough(0));
        assert!(space_state(5, 0).is_tight() && !space_state(6, 0).is_tight());
    }

    #[test]
    fn greedy_writes_a_checkpoint_whenever_prefree_segments_would_help() {
        let mut call = Foreground::new(GcVictim::Greedy);
        assert_eq!(call.start_round(&space_state(8, 0)), RoundStart::Choose);
        assert_eq!(call.start_round(&space_state(8, 4)), RoundStart::Checkpoint);
        assert_eq!(call.start_round(&space_state(9, 4)), RoundStart::Choose);
        assert!(
            !call.data_first()
                && call.accepts(false, &space_state(20, 0))
                && call.accepts(true, &space_state(20, 0))
        );
        // A cleaned section counts although it is only prefree.
        assert!(!call.goes_on(true, &space_state(8, 4)));
        let mut call = Foreground::new(GcVictim::Greedy);
        assert!(call.goes_on(false, &space_state(8, 4)) && call.goes_on(true, &space_state(7, 4)));
        // A checkpoint in between makes it free, and it counts no longer by itself.
        assert!(
            !call.checkpoint_between(&space_state(6, 4))
                && !call.checkpoint_between(&space_state(5, 0))
        );
        assert!(call.checkpoint_between(&space_state(5, 4)));
        assert!(call.goes_on(true, &space_state(7, 0)));
    }

    #[test]
    fn the_flag_is_raised_when_free_sections_run_out() {
        let mut call = Foreground::new(GcVictim::DataFirst);
        assert_eq!(call.start_round(&space_state(6, 0)), RoundStart::Choose);
        assert!(!call.require_nodes && call.data_first());
        assert_eq!(call.start_round(&space_state(5, 0)), RoundStart::Choose);
        assert!(call.require_nodes && !call.data_first());
        // It stays to the end of the call, and the next one begins without it.
        assert_eq!(call.start_round(&space_state(30, 0)), RoundStart::Choose);
        assert!(call.require_nodes);
        assert!(!Foreground::new(GcVictim::DataFirst).require_nodes);
    }

    #[test]
    fn the_flag_comes_with_a_checkpoint_for_prefree_segments() {
        let mut call = Foreground::new(GcVictim::DataFirst);
        // The first round writes a checkpoint even without the flag.
        assert_eq!(call.start_round(&space_state(7, 4)), RoundStart::Checkpoint);
        assert!(!call.require_nodes);
        // A later round writes one only when space is tight.
        assert_eq!(call.start_round(&space_state(7, 4)), RoundStart::Choose);
        assert!(call.goes_on(true, &space_state(6, 4)) && call.goes_on(true, &space_state(5, 8)));
        assert!(!call.checkpoint_between(&space_state(5, 8)));
        assert_eq!(call.start_round(&space_state(5, 8)), RoundStart::Checkpoint);
        assert!(call.require_nodes);
        // The sections that were cleaned before the checkpoint are free now.
        assert!(
            call.accepts(false, &space_state(8, 0)) && !call.accepts(false, &space_state(9, 0))
        );
    }

    #[test]
    fn while_it_is_set_nodes_go_on_and_data_stops() {
        let mut call = Foreground::new(GcVictim::DataFirst);
        assert_eq!(call.start_round(&space_state(4, 0)), RoundStart::Choose);
        // There is too little room: data is cleaned, too.
        assert!(call.accepts(false, &space_state(4, 0)) && call.accepts(true, &space_state(4, 0)));
        assert!(call.goes_on(true, &space_state(8, 4)));
        // The cleaned section makes the room sufficient: only nodes are still cleaned.
        assert!(call.accepts(true, &space_state(8, 4)) && !call.accepts(false, &space_state(8, 4)));
    }

    #[test]
    fn while_it_is_clear_cleaning_stops_with_enough() {
        let mut call = Foreground::new(GcVictim::DataFirst);
        assert_eq!(call.start_round(&space_state(7, 0)), RoundStart::Choose);
        assert!(call.accepts(false, &space_state(9, 0)));
        assert!(call.goes_on(true, &space_state(7, 4)));
        assert!(!call.goes_on(true, &space_state(7, 8)));
    }

    #[test]
    fn policies_are_parsed_by_their_names() {
        assert_eq!(GcVictim::parse("gc_victim=greedy", "greedy").unwrap(), GcVictim::Greedy);
        let error = GcVictim::parse("gc_victim=oldest", "oldest").unwrap_err().to_string();
        assert!(error.contains("gc_victim=oldest") && error.contains("data_first"), "{error}");
    }
}
