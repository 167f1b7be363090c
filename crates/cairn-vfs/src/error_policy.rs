//! What an error means for those who did not make the call.
//!
//! How far an error [reaches](Reach) is decided where it is made; what becomes of the volume follows from that alone ([`verdict`]), in
//! the same way for calls and daemons, and for every format:
//!
//! | reach | the operation had changed nothing | it was left half done |
//! |---|---|---|
//! | [`Reach::Answer`] | go on | go on: it was undone |
//! | [`Reach::Operation`] | go on | stop |
//! | [`Reach::Damage`] | as the option `errors=` says | stop |
//! | [`Reach::File`] | go on | go on |
//! | [`Reach::Volume`] | stop | stop |
//!
//! So nothing stops because somebody looked, and no half of a change ever becomes durable.

/// How far an error reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// An answer that every filesystem gives (it does not exist, no space…): whatever was begun has been undone.
    Answer,
    /// The operation could not go on: something could not be read, or there was no memory for it.
    Operation,
    /// As [`Reach::Operation`], because bytes on the disk are wrong.
    Damage,
    /// Data of one file could not be written. Whoever syncs that file is told, and whoever unmounts.
    File,
    /// Metadata could not be written: memory is ahead of the medium, for good.
    Volume,
}

/// What becomes of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    GoOn,
    /// It goes on, and remembers that it must be checked.
    Note,
    /// It takes no more changes.
    Stop,
    /// It stops as a power cut would: nothing more reaches the device.
    PowerCut,
}

/// The mount option `errors=`: what damage that somebody comes across means for the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnDamage {
    /// `continue`: it is noted, and everybody else goes on.
    #[default]
    Continue,
    /// `remount-ro`: nothing is changed any more.
    RemountReadOnly,
    /// `panic`: as if power failed.
    Panic,
}

impl OnDamage {
    /// What stands behind `errors=`.
    pub const WORDS: &str = "continue|remount-ro|panic";

    /// By its name in mount(8).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Continue, Self::RemountReadOnly, Self::Panic].into_iter().find(|mode| mode.name() == name)
    }

    /// Its name in mount(8).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::RemountReadOnly => "remount-ro",
            Self::Panic => "panic",
        }
    }
}

/// See the module.
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
