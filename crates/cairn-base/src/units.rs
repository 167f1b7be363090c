//! Newtypes for the numbers that must not be mixed up.

use std::fmt;

/// A 32-bit number as an index or a length in memory. Lossless: `usize` has at least 32 bits.
#[must_use]
pub const fn as_index(number: u32) -> usize {
    const { assert!(usize::BITS >= u32::BITS) };
    number as usize
}

/// An index or a length in memory as a 64-bit number. Lossless: `usize` has at most 64 bits.
#[must_use]
pub const fn as_u64(number: usize) -> u64 {
    const { assert!(usize::BITS <= u64::BITS) };
    number as u64
}

/// A number that Cairn made, in the type that the disk has for it.
///
/// # Panics
/// It does not fit: the caller's bug. Numbers from the disk never come here.
#[track_caller]
pub fn stored<N: Copy + fmt::Display, T: TryFrom<N>>(number: N) -> T {
    T::try_from(number).unwrap_or_else(|_| panic!("{number} does not fit its field"))
}

/// Defines a newtype with a public number: `unit!(/// Documentation. Name(u32))`.
#[macro_export]
macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl $name {
            /// The bare number.
            #[must_use]
            pub const fn get(self) -> $int {
                self.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(&self.0, f)
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl From<$int> for $name {
            fn from(n: $int) -> Self {
                Self(n)
            }
        }
    };
}

unit!(
    /// Physical block address: a block of the filesystem's block size, counted from the volume's
    /// start.
    Pba(u64)
);
unit!(
    /// Logical block of a file, in the filesystem's block size.
    FileBlock(u64)
);
unit!(
    /// Inode number as the filesystem counts them.
    Ino(u64)
);

/// A journal transaction's sequence number. Wraps: compare with [`Tid::is_after`], never with `<`;
/// 0 is valid.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Tid(pub u32);

impl Tid {
    /// True if `self` is later than `other`, modulo 2^32.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() > 0
    }

    /// True if `self` is `other` or later, modulo 2^32.
    #[must_use]
    pub const fn is_at_or_after(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() >= 0
    }

    /// The next transaction's number.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
