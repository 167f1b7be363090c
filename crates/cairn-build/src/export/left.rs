//! [`Left`]: what an export could not keep.

use std::fmt;

/// How much of a tree the target has no place for, or this user may not make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Files that belong to this user in place of their owners.
    pub owners: u64,
    /// Files with other permission bits: set-id bits without their owner would give away the
    /// rights of this user, and what its owner cannot read could not be built again.
    pub modes: u64,
    /// Device nodes.
    pub devices: u64,
    /// Extended attributes.
    pub xattrs: u64,
    /// Sockets.
    pub sockets: u64,
}

impl Left {
    /// True if everything was kept.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.owners, "owner", "owners"),
            (self.modes, "mode", "modes"),
            (self.devices, "device", "devices"),
            (self.xattrs, "extended attribute", "extended attributes"),
            (self.sockets, "socket", "sockets"),
        ];
        let mut between = "";
        for (count, one, many) in counts.into_iter().filter(|(count, ..)| *count > 0) {
            write!(f, "{between}{count} {}", if count == 1 { one } else { many })?;
            between = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_words() {
        let left = Left { owners: 12, devices: 1, ..Left::default() };
        assert_eq!(left.to_string(), "12 owners, 1 device");
        assert!(Left::default().is_nothing() && !left.is_nothing());
    }
}
