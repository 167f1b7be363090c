//! [`Kind`]: what can be wrong, with a stable code. Each format has a table of its kinds.

use std::fmt;

/// What a repair of a defect costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Counts, bitmaps, checksums: they follow from the rest of the volume. A repair loses nothing.
    Accounting,
    /// A part of a file, a name or an attribute is lost, or its repair must choose who loses.
    Losing,
    /// The volume cannot be read further at this place, and there is nothing to repair it from.
    Fatal,
}

impl Severity {
    /// The word for it in lists and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accounting => "accounting",
            Self::Losing => "losing",
            Self::Fatal => "fatal",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A kind of defect. Its code is stable: programs rely on it.
#[derive(Debug)]
pub struct Kind {
    /// `FORMAT.STRUCTURE.DEFECT`, such as `ext4.inode.checksum`.
    pub code: &'static str,
    /// What a repair costs.
    pub severity: Severity,
    /// What the defect is, and what it means: one sentence.
    pub meaning: &'static str,
    /// What a repair does: one sentence.
    pub repair: &'static str,
}

/// Declares kinds, and `ALL`, the list of them in this order:
///
/// ```
/// cairn_check::kinds! {
///     /// The checksum of an inode is wrong.
///     INODE_CHECKSUM = "ext4.inode.checksum", Accounting,
///         "The checksum of the inode does not match its bytes.",
///         "The checksum is computed again if the inode is otherwise sound.";
/// }
/// assert_eq!(ALL[0].code, INODE_CHECKSUM.code);
/// ```
#[macro_export]
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $severity:ident, $meaning:literal,
        $repair:literal;)*) => {
        $(
            $(#[$doc])*
            pub static $name: $crate::Kind = $crate::Kind {
                code: $code,
                severity: $crate::Severity::$severity,
                meaning: $meaning,
                repair: $repair,
            };
        )*
        /// All kinds of this table.
        pub static ALL: &[&$crate::Kind] = &[$(&$name),*];
    };
}
