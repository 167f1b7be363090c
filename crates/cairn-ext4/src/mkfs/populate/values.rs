//! [`Values`]: attribute values with an inode of their own (the feature ea_inode). Equal values
//! share one.

use std::collections::HashMap;

use cairn_base::Ino;
use cairn_base::checksum::crc32c;
use cairn_vfs::new_tree::Source;
use cairn_vfs::types::Timestamp;

use crate::format::inode::{Inode, InodeFlags, mode};
use crate::format::layout::Layout;
use crate::format::xattr::{OwnedAttribute, OwnedValue, entry_hash_of_inode};

/// A value: where the source has it, and how it is used.
#[derive(Clone, Copy)]
pub(super) struct Value {
    /// A node that has it, and the index of the attribute.
    place: (u32, u32),
    pub(super) len: u32,
    hash: u32,
    /// Entries that refer to it.
    uses: u32,
}

/// All values with an inode of their own.
pub(super) struct Values {
    pub(super) list: Vec<Value>,
    known: HashMap<u32, Vec<u32>>,
    /// Seed of the hashes: the checksum seed, also without metadata_csum.
    seed: u32,
}

impl Values {
    pub(super) fn new(layout: &Layout) -> Self {
        let seed = layout.checksum.seed().unwrap_or_else(|| crc32c(!0, &layout.uuid));
        Self { list: Vec::new(), known: HashMap::new(), seed }
    }

    /// The bytes of a value.
    pub(super) fn bytes<'a>(&self, source: &'a dyn Source, value: &Value) -> &'a [u8] {
        source.node(value.place.0).xattrs[value.place.1 as usize].1
    }

    fn find(&self, source: &dyn Source, value: &[u8]) -> Option<u32> {
        let known = self.known.get(&crc32c(self.seed, value))?;
        let is_it = |number: &&u32| self.bytes(source, &self.list[**number as usize]) == value;
        known.iter().find(is_it).copied()
    }

    /// Adds the value of attribute `place`, if it is new.
    pub(super) fn add(&mut self, source: &dyn Source, place: (u32, u32), value: &[u8]) {
        if self.find(source, value).is_none() {
            let hash = crc32c(self.seed, value);
            let number = self.list.len() as u32;
            self.known.entry(hash).or_default().push(number);
            self.list.push(Value { place, len: value.len() as u32, hash, uses: 0 });
        }
    }

    /// An attribute that refers to its value, which was added. The number of the value stands for
    /// the number of its inode.
    pub(super) fn refer(
        &self,
        source: &dyn Source,
        attribute: &OwnedAttribute,
    ) -> Option<OwnedAttribute> {
        let number = self.find(source, attribute.value_here())?;
        let value = &self.list[number as usize];
        let hash = entry_hash_of_inode(&attribute.name, value.hash);
        let far = OwnedValue::Inode { ino: Ino(number.into()), size: value.len, hash };
        Some(OwnedAttribute { value: far, index: attribute.index, name: attribute.name.clone() })
    }

    /// Counts the references of a container.
    pub(super) fn count_uses(&mut self, attributes: &[OwnedAttribute]) {
        for attribute in attributes {
            if let OwnedValue::Inode { ino, .. } = attribute.value {
                self.list[ino.get() as usize].uses += 1;
            }
        }
    }

    /// The inode of a value, without its map.
    pub(super) fn inode(&self, value: &Value, layout: &Layout) -> Inode {
        let mut inode = Inode::new(0, layout);
        inode.mode = mode::REGULAR | 0o600;
        inode.links = 1;
        inode.size = value.len.into();
        inode.flags = InodeFlags::EA_INODE | InodeFlags::EXTENTS;
        // The hash is stored as the access time, the references as the version.
        inode.atime = Timestamp { seconds: value.hash.cast_signed().into(), nanoseconds: 0 };
        inode.version = value.uses.into();
        inode
    }
}

/// Replaces the numbers of values by those of their inodes.
pub(super) fn number(attributes: &mut [OwnedAttribute], first: u32) {
    for attribute in attributes {
        if let OwnedValue::Inode { ino, .. } = &mut attribute.value {
            *ino = Ino(ino.get() + u64::from(first));
        }
    }
}

/// Blocks that an inode is charged for the values of its attributes.
pub(super) fn charge(attributes: &[OwnedAttribute], block_size: u32) -> u64 {
    let blocks = |attribute: &OwnedAttribute| match attribute.value {
        OwnedValue::Here(_) => 0,
        OwnedValue::Inode { size, .. } => u64::from(size.div_ceil(block_size)),
    };
    attributes.iter().map(blocks).sum()
}
