//! How far an error reaches beyond the call that returns it.
//!
//! The place where an error is made decides its [`Reach`]. [`verdict`] derives from it what the
//! volume does, in the same way for calls and daemons, and for all formats:
//!
//! | reach | nothing has changed yet | the operation is half done |
//! |---|---|---|
//! | [`Reach::Answer`] | continue | continue: the changes were undone |
//! | [`Reach::Operation`] | continue | stop |
//! | [`Reach::Damage`] | as the option `errors=` says | stop |
//! | [`Reach::File`] | continue | continue |
//! | [`Reach::Volume`] | stop | stop |
//!
//! So reading never stops a volume, and no half of a change becomes durable.

/// What is logged of damage that was found, and of nothing else.
pub const DAMAGED: &str = "the volume is damaged: check and repair it";

/// Whom an error concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The normal answer of a call (no such entry, no space): the call has undone its changes.
    Answer,
    /// The operation cannot continue, because something could not be read or the system has no
    /// memory.
    Operation,
    /// As [`Reach::Operation`], because bytes on the disk are wrong.
    Damage,
    /// Data of one file could not be written. fsync of that file and unmount return the error.
    File,
    /// Metadata could not be written: the state in memory can no longer become durable.
    Volume,
}

/// What the volume does after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It continues.
    GoOn,
    /// It continues, and is marked to be checked.
    Note,
    /// It becomes read-only.
    Stop,
    /// It stops as in a power cut: nothing is written any more.
    PowerCut,
}

/// The mount option `errors=`: what the volume does after it has found damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnDamage {
    /// `continue`: it marks itself to be checked.
    #[default]
    Continue,
    /// `remount-ro`: it becomes read-only.
    RemountReadOnly,
    /// `panic`: it stops as in a power cut.
    Panic,
}

impl OnDamage {
    /// The values of `errors=`.
    pub const WORDS: &str = "continue|remount-ro|panic";

    /// The mode with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Continue, Self::RemountReadOnly, Self::Panic]
            .into_iter()
            .find(|mode| mode.name() == name)
    }

    /// The value of `errors=`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::RemountReadOnly => "remount-ro",
            Self::Panic => "panic",
        }
    }
}

/// Returns what the volume does after an error. `half_done`: the operation had changed something.
#[must_use]
pub const fn verdict(reach: Reach, half_done: bool, on_damage: OnDamage) -> Verdict {
    match (reach, half_done) {
        (Reach::Answer | Reach::File, _) | (Reach::Operation, false) => Verdict::GoOn,
        (Reach::Damage, false) => match on_damage {
            OnDamage::Continue => Verdict::Note,
            OnDamage::RemountReadOnly => Verdict::Stop,
            OnDamage::Panic => Verdict::PowerCut,
        },
        (Reach::Operation | Reach::Damage, true) | (Reach::Volume, _) => Verdict::Stop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_stops_nothing_and_a_half_done_change_everything() {
        for on_damage in [OnDamage::Continue, OnDamage::RemountReadOnly, OnDamage::Panic] {
            assert_eq!(OnDamage::named(on_damage.name()), Some(on_damage));
            assert_eq!(verdict(Reach::Operation, false, on_damage), Verdict::GoOn);
            assert_eq!(verdict(Reach::File, true, on_damage), Verdict::GoOn);
            assert_eq!(verdict(Reach::Answer, true, on_damage), Verdict::GoOn);
            for reach in [Reach::Operation, Reach::Damage, Reach::Volume] {
                assert_eq!(verdict(reach, true, on_damage), Verdict::Stop);
            }
            assert_eq!(verdict(Reach::Volume, false, on_damage), Verdict::Stop);
        }
        let damage = |on_damage| verdict(Reach::Damage, false, on_damage);
        assert_eq!(damage(OnDamage::Continue), Verdict::Note);
        assert_eq!(damage(OnDamage::RemountReadOnly), Verdict::Stop);
        assert_eq!(damage(OnDamage::Panic), Verdict::PowerCut);
        assert_eq!(OnDamage::named("ignore"), None);
    }
}
