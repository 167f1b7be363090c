//! The flags of a checkpoint.

use bitflags::bitflags;

bitflags! {
    /// `ckpt_flags`. Unknown bits are kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CheckpointFlags: u32 {
        /// Written at unmount: node summaries are in the pack.
        const UMOUNT = 0x1;
        /// Orphan blocks are in the pack.
        const ORPHAN_PRESENT = 0x2;
        /// Data summaries are in the compact form.
        const COMPACT_SUM = 0x4;
        /// The filesystem had an error.
        const ERROR = 0x8;
        /// fsck must run.
        const FSCK = 0x10;
        /// Node summaries are in the pack, without an unmount.
        const FASTBOOT = 0x20;
        /// Node footers carry this checkpoint's checksum in the upper half of their version.
        const CRC_RECOVERY = 0x40;
        /// `nat_bits` lie at the end of the pack's segment.
        const NAT_BITS = 0x80;
        /// Free space has been discarded.
        const TRIMMED = 0x100;
        /// Roll-forward compares only the lower half of the footers' version.
        const NOCRC_RECOVERY = 0x200;
        /// The checksum is at 192 and the bitmaps follow it, NAT first.
        const LARGE_NAT_BITMAP = 0x400;
        /// Quota files must be rebuilt.
        const QUOTA_NEED_FSCK = 0x800;
        /// Checkpoints are disabled.
        const DISABLED = 0x1000;
        /// Checkpoints are disabled, without cleaning first.
        const DISABLED_QUICK = 0x2000;
        /// A resize was in progress.
        const RESIZEFS = 0x4000;
        const _ = !0;
    }
}

impl CheckpointFlags {
    /// Flags that describe one pack and not the volume.
    pub(crate) const OF_ONE_PACK: Self = Self::UMOUNT
        .union(Self::ORPHAN_PRESENT)
        .union(Self::COMPACT_SUM)
        .union(Self::FASTBOOT)
        .union(Self::NAT_BITS)
        .union(Self::TRIMMED)
        .union(Self::NOCRC_RECOVERY)
        .union(Self::DISABLED)
        .union(Self::DISABLED_QUICK)
        .union(Self::RESIZEFS);
}
