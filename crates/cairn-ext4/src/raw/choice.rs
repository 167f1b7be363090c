//! Which superblock a volume is read with.

/// Which superblock is to be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SuperblockChoice {
    /// The first one; if it is damaged, a backup.
    #[default]
    Best,
    /// The one in this block.
    Block(u64),
    /// The one in this group.
    Group(u32),
}
