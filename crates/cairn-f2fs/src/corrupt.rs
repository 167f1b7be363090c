//! What can be wrong on disk: facts with place and values, shared by mount, walks and tests.

use crate::format::units::{BlockAddr, Nid, SegNo};

/// A defect of the bytes on disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// A superblock field contradicts another or the device.
    #[error("superblock: {field} is {value}, {expected}")]
    Superblock {
        /// Field name of the specification.
        field: &'static str,
        /// Stored value.
        value: u64,
        /// What would be right, in words.
        expected: &'static str,
    },
    /// The device ends before the volume.
    #[error("the image is shorter than its filesystem: {} of {volume} bytes are \
        missing", volume.saturating_sub(*device))]
    TooShort {
        /// Bytes of the volume.
        volume: u64,
        /// Bytes of the device.
        device: u64,
    },
    /// A checksum does not match.
    #[error("{what} {place}: checksum {stored:#x} stored, {computed:#x} computed")]
    Checksum {
        /// Kind of structure ("superblock", "checkpoint block", "inode").
        what: &'static str,
        /// Its number (block or inode).
        place: u64,
        /// Value on disk.
        stored: u32,
        /// Value over the bytes found.
        computed: u32,
    },
    /// A checkpoint field contradicts another or the layout.
    #[error("checkpoint: {field} is {value}, {expected}")]
    Checkpoint {
        /// Field name of the specification.
        field: &'static str,
        /// Stored value.
        value: u64,
        /// What would be right.
        expected: &'static str,
    },
    /// Neither checkpoint pack can be used.
    #[error("no valid checkpoint pack (pack 1: {first}; pack 2: {second})")]
    NoCheckpoint {
        /// What is wrong with the first.
        first: Box<Self>,
        /// What is wrong with the second.
        second: Box<Self>,
    },
    /// The newest checkpoint pack is damaged, and the volume cannot be opened with the one before
    /// it. Blocks that only the older pack uses may have been discarded or overwritten since.
    #[error("the newest checkpoint pack, in block {block}, is damaged, and the older one cannot be \
        used instead ({why}){}", match is_restorable {
            true => ": a repair without losses restores the newest one",
            false => "",
        })]
    NewestPack {
        /// The first block of the damaged pack.
        block: u64,
        /// Can the damaged blocks be restored from the rest of the pack?
        is_restorable: bool,
        /// What is wrong with the volume of the older pack.
        why: Box<Self>,
    },
    /// A NAT entry or journal is impossible.
    #[error("NAT, nid {nid}: {what}, value {value:#x}")]
    Nat {
        /// Node.
        nid: Nid,
        /// What is wrong.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
    /// A SIT entry or journal is impossible.
    #[error("SIT, segment {segno}: {what}, value {value}")]
    Sit {
        /// Segment.
        segno: SegNo,
        /// What is wrong.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
    /// A summary block is impossible.
    #[error("summary: {what}, value {value}")]
    Summary {
        /// What is wrong.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
    /// A node block belongs to another node, or is impossible.
    #[error("node {nid} at block {addr}: {what}, value {value:#x}")]
    Node {
        /// Node that was looked for.
        nid: Nid,
        /// Where.
        addr: BlockAddr,
        /// What is wrong.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
    /// An inode is impossible.
    #[error("inode {ino}: {field} is {value}, {expected}")]
    Inode {
        /// Inode.
        ino: Nid,
        /// Field name.
        field: &'static str,
        /// Stored value.
        value: u64,
        /// What would be right.
        expected: &'static str,
    },
    /// A data pointer is impossible.
    #[error("inode {ino}, file block {block}: {what}, value {value:#x}")]
    Mapping {
        /// Inode.
        ino: Nid,
        /// Logical block.
        block: u64,
        /// What is wrong.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
    /// A directory entry is impossible.
    #[error("directory {ino}, block {block}, slot {slot}: {what}, value {value}")]
    Directory {
        /// Directory inode.
        ino: Nid,
        /// Logical block in the directory (0 if inline).
        block: u64,
        /// Slot in the block.
        slot: u32,
        /// What is wrong.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
    /// An extended attribute is impossible.
    #[error("inode {ino}: extended attributes at byte {offset}: {what}, value {value}")]
    Xattr {
        /// Inode.
        ino: Nid,
        /// Byte offset in the area (inline part, then the attribute node).
        offset: usize,
        /// What is wrong.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
    /// An orphan block is impossible.
    #[error("orphan block: {what}, value {value}")]
    Orphan {
        /// What is wrong.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
    /// A compressed cluster cannot be unpacked.
    #[error("inode {ino}, cluster at file block {block}: {what}, value {value}")]
    Cluster {
        /// Inode.
        ino: Nid,
        /// First logical block of the cluster.
        block: u64,
        /// What is wrong.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
}
