//! [`ExitStatus`]: the exit statuses of e2fsck and fsck(8), which are bits.

use std::ops::BitOr;

/// The exit status of a check: a sum of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitStatus(u8);

impl ExitStatus {
    /// The volume is sound.
    pub const CLEAN: Self = Self(0);
    /// Defects were repaired.
    pub const REPAIRED: Self = Self(1);
    /// Defects were repaired, and the computer must be started again.
    pub const REBOOT: Self = Self(2);
    /// There are defects that were not repaired.
    pub const ERRORS_LEFT: Self = Self(4);
    /// The check could not be done: no such image, an error of the device.
    pub const OPERATIONAL: Self = Self(8);
    /// The command line is wrong.
    pub const USAGE: Self = Self(16);
    /// The user has ended the check.
    pub const CANCELLED: Self = Self(32);

    /// The number for `exit`.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Does it contain all bits of the other?
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for ExitStatus {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::ExitStatus as S;

    #[test]
    fn statuses_are_bits() {
        let both = S::REPAIRED | S::ERRORS_LEFT;
        assert_eq!((both.code(), S::CANCELLED.code(), S::default()), (5, 32, S::CLEAN));
        assert!(both.contains(S::ERRORS_LEFT) && !both.contains(S::OPERATIONAL));
    }
}
