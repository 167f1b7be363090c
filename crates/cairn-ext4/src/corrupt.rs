//! [`Corrupt`]: a defect of the bytes on disk, with its place and values.

use cairn_base::{FileBlock, Ino, Pba};

/// A defect of the bytes on disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// A superblock field contradicts another or the device.
    #[error("superblock: {field} is {}, {problem}", notation(field, *value))]
    Superblock {
        /// Field name of the specification.
        field: &'static str,
        /// Stored value.
        value: u64,
        /// What is wrong with it: the words behind `FIELD is VALUE, `.
        problem: &'static str,
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
        /// Kind of structure ("superblock", "group", "inode", "extent block", "directory block"…).
        what: &'static str,
        /// Its number (group, inode or block).
        place: u64,
        /// Value on disk.
        stored: u32,
        /// Checksum of the bytes.
        computed: u32,
    },
    /// A group descriptor is invalid.
    #[error("group {group}: {field} is {}, {problem}", notation(field, *value))]
    Group {
        /// Group number.
        group: u32,
        /// Field name.
        field: &'static str,
        /// Stored value.
        value: u64,
        /// What is wrong with it: the words behind `FIELD is VALUE, `.
        problem: &'static str,
    },
    /// An inode is invalid.
    #[error("inode {ino}: {field} is {}, {problem}", notation(field, *value))]
    Inode {
        /// Inode.
        ino: Ino,
        /// Field name.
        field: &'static str,
        /// Stored value.
        value: u64,
        /// What is wrong with it: the words behind `FIELD is VALUE, `.
        problem: &'static str,
    },
    /// An extent or indirect block is invalid.
    #[error("inode {ino}: mapping at file block {at} (block {pba}): {what}, value {value}")]
    Mapping {
        /// Inode.
        ino: Ino,
        /// File block that the walk looks for, or that the entry names.
        at: FileBlock,
        /// Block with the invalid entry; 0 is the inode.
        pba: Pba,
        /// Description of the defect.
        what: &'static str,
        /// The invalid value.
        value: u64,
    },
    /// A directory block is invalid.
    #[error("directory {ino}, block {block}, offset {offset}: {what}, value {value}")]
    Directory {
        /// Directory inode.
        ino: Ino,
        /// Logical block in the directory.
        block: FileBlock,
        /// Byte offset in the block.
        offset: u32,
        /// Description of the defect.
        what: &'static str,
        /// The invalid value.
        value: u64,
    },
    /// An extended attribute is invalid.
    #[error("inode {ino}: extended attributes in {place}: {what}, value {value}")]
    Xattr {
        /// Inode.
        ino: Ino,
        /// "inode", or the block.
        place: &'static str,
        /// Description of the defect.
        what: &'static str,
        /// The invalid value.
        value: u64,
    },
    /// A block or inode bitmap contradicts an operation.
    #[error("{what} bitmap of group {group}: bit {bit} {state}")]
    Bitmap {
        /// "block" or "inode".
        what: &'static str,
        /// Group number.
        group: u32,
        /// Bit number.
        bit: u32,
        /// What was found ("already free", "already in use"…).
        state: &'static str,
    },
    /// The orphan list or orphan file is invalid.
    #[error("orphans: {what}, value {value}")]
    Orphan {
        /// Description of the defect.
        what: &'static str,
        /// The invalid value.
        value: u64,
    },
}

/// A field's value as it is usually written: a mode in octal digits, flags in hexadecimal ones.
fn notation(field: &str, value: u64) -> String {
    let is_of_bits = field.ends_with("_flags") || field.starts_with("s_feature_");
    match field {
        "i_mode" => format!("{value:#o}"),
        "s_magic" => format!("{value:#x}"),
        _ if is_of_bits => format!("{value:#x}"),
        _ => value.to_string(),
    }
}

impl Corrupt {
    /// True if the defect is in the group descriptors, which have backups.
    #[must_use]
    pub fn is_of_descriptors(&self) -> bool {
        matches!(self, Self::Group { .. } | Self::Checksum { what: "group descriptor", .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_written_as_is_usual_for_its_field() {
        let (ino, problem) = (Ino(12), "wrong");
        let said = |field, value| Corrupt::Inode { ino, field, value, problem }.to_string();
        assert_eq!(said("i_mode", 0o40755), "inode 12: i_mode is 0o40755, wrong");
        assert_eq!(said("i_flags", 0x8_0000), "inode 12: i_flags is 0x80000, wrong");
        assert_eq!(said("i_size", 10), "inode 12: i_size is 10, wrong");
    }
}
