//! Which superblock and which checkpoint a volume is read with.

/// Which superblock and which checkpoint are to be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The block of the superblock: 0 or 1; the first sound one if `None`.
    pub superblock: Option<u64>,
    /// The checkpoint pack: 1 or 2; the later one of the sound ones if `None`.
    pub pack: Option<u8>,
}
