//! What makes a volume survive a power cut. Tests switch one safeguard off at a time: the crash
//! search must then find a wrong state. A safeguard that can be missing without being missed is a
//! hole in the search, or is not needed.
//!
//! Only the feature `sabotage` has the switch. It is enabled by development dependencies alone, so
//! no program that is shipped has it: there [`Safeguard::is_off`] is false, and the compiler
//! removes the question.

/// A barrier, a checksum, a mark, or a block that waits for a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Safeguard {
    /// jbd2: the flush before a commit block.
    CommitFlush = 1,
    /// jbd2: the commit block is forced to the medium.
    CommitForce,
    /// jbd2: the flush of blocks at home before the log tail passes their transactions.
    CheckpointFlush,
    /// jbd2: the superblock with a new tail is forced to the medium before the log is used again.
    TailForce,
    /// jbd2: blocks at home are flushed by recovery before the log is marked empty.
    RecoveryFlush,
    /// jbd2: a block that is freed as metadata is revoked.
    Revoke,
    /// jbd2: recovery obeys revoke records.
    RevokeCheck,
    /// jbd2: no older version of a revoked block is written home.
    Forget,
    /// jbd2: recovery verifies checksums in the log.
    LogChecksum,
    /// ext4: blocks that a transaction frees wait for its commit.
    FreedBlocks,
    /// ext4: inodes that a transaction frees wait for its commit.
    FreedInodes,
    /// ext4: an inode that loses its last name is an orphan.
    Orphan,
    /// Both: an fsync that finds everything written flushes the device.
    DataFlush,
    /// F2FS: the flush before the closing block of a checkpoint pack.
    PackFlush,
    /// F2FS: the closing block is forced to the medium.
    PackForce,
    /// F2FS: the checksums of a pack's first and last block are verified.
    PackChecksum,
    /// F2FS: both ends of a pack must agree.
    PackEnds,
    /// F2FS: blocks that were freed since the last checkpoint wait for the next one.
    CheckpointBlocks,
    /// F2FS: nids that were freed since the last checkpoint wait for the next one.
    CheckpointNids,
    /// F2FS: the node chain ends at the first node of another checkpoint.
    ChainVersion,
    /// F2FS: nodes of an fsync have the mark that roll-forward looks for.
    FsyncMark,
    /// F2FS: the first node of a new file asks roll-forward for its directory entry.
    DentryMark,
    /// F2FS: an fsync that roll-forward could not repeat writes a checkpoint.
    FsyncCheckpoint,
    /// F2FS: a checkpoint lists orphan inodes.
    OrphanBlocks,
    /// qcow2: refcounts and new tables are flushed before anything leads to them.
    Qcow2Counts,
    /// qcow2: the refcount table, or the header that names it, is flushed before the map.
    Qcow2Table,
    /// qcow2: the map is flushed before clusters that it left are used again.
    Qcow2Map,
    /// NBD: what no flush has covered is written again after a reconnection.
    NbdReplay,
    /// NBD: a flush covers only writes that were answered before it was sent.
    NbdMark,
}

impl Safeguard {
    /// All of them.
    pub const ALL: [Self; 29] = [
        Self::CommitFlush,
        Self::CommitForce,
        Self::CheckpointFlush,
        Self::TailForce,
        Self::RecoveryFlush,
        Self::Revoke,
        Self::RevokeCheck,
        Self::Forget,
        Self::LogChecksum,
        Self::FreedBlocks,
        Self::FreedInodes,
        Self::Orphan,
        Self::DataFlush,
        Self::PackFlush,
        Self::PackForce,
        Self::PackChecksum,
        Self::PackEnds,
        Self::CheckpointBlocks,
        Self::CheckpointNids,
        Self::ChainVersion,
        Self::FsyncMark,
        Self::DentryMark,
        Self::FsyncCheckpoint,
        Self::OrphanBlocks,
        Self::Qcow2Counts,
        Self::Qcow2Table,
        Self::Qcow2Map,
        Self::NbdReplay,
        Self::NbdMark,
    ];

    /// True if a test has switched this off.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn is_off(self) -> bool {
        switch::OFF.load(std::sync::atomic::Ordering::Relaxed) == self as u8
    }

    /// True if a test has switched this off.
    #[cfg(not(feature = "sabotage"))]
    #[must_use]
    pub const fn is_off(self) -> bool {
        false
    }
}

#[cfg(feature = "sabotage")]
mod switch {
    use std::sync::atomic::AtomicU8;

    pub(super) static OFF: AtomicU8 = AtomicU8::new(0);
}

/// Switches one safeguard off in this process until the guard is dropped. One guard at a time.
#[cfg(feature = "sabotage")]
#[must_use = "it is on again when the guard is dropped"]
pub fn without(safeguard: Safeguard) -> Sabotage {
    let before = switch::OFF.swap(safeguard as u8, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(before, 0, "one safeguard at a time");
    Sabotage(())
}

/// A safeguard is off.
#[cfg(feature = "sabotage")]
pub struct Sabotage(());

#[cfg(feature = "sabotage")]
impl Drop for Sabotage {
    fn drop(&mut self) {
        switch::OFF.store(0, std::sync::atomic::Ordering::Relaxed);
    }
}
