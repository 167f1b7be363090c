//! Extended attributes of one inode: in its record, in a block that inodes share, and large values
//! in their own inodes.
//!
//! Invariant: a name is in one place only. A value goes to the inode if it fits, otherwise to the
//! block, otherwise (with ea_inode) to its own inode. A shared block is never changed; the inode
//! gets a copy.
//!
//! Locking: the caller holds the inode's metadata lock, exclusively for changes and shared for
//! reading.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

pub(crate) mod acl;
mod block;
pub(crate) mod inline_data;
pub(crate) mod names;
mod refused;
pub(crate) mod shrink;

use cairn_base::checksum::crc32c;
use cairn_base::units::{as_index, as_u64, stored};
use cairn_base::{Ino, Pba};
use cairn_cache::block::BufferCache;
use cairn_vfs::XattrMode;

use crate::checksum::MetadataChecksum;
use crate::error::Result;
use crate::format::xattr::{
    self, Attribute, OwnedAttribute, OwnedValue, VALUE_MAX, Value, XattrLocation,
    entry_hash_of_inode, fits,
};
use crate::space::BlockSource;
use crate::txn::Handle;
pub(crate) use refused::refused;

/// Inodes for large values (the ea_inode feature). The inode layer implements it.
pub(crate) trait ValueInodes {
    /// The contents of a value inode, which must have `EA_INODE_FL` and this size.
    ///
    /// # Errors
    /// The inode is damaged or has another size, or the device failed.
    fn read(&self, ino: Ino, size: u32) -> Result<Vec<u8>>;

    /// Creates an inode with this value, its hash ([`XattrStore::value_hash`]) and one reference.
    ///
    /// # Errors
    /// The volume is full or does not maintain such inodes.
    fn create(&self, handle: &Handle, value: &[u8], hash: u32) -> Result<Ino>;

    /// Adds a reference.
    ///
    /// # Errors
    /// The inode is damaged, or the journal was aborted.
    fn retain(&self, handle: &Handle, ino: Ino) -> Result<()>;

    /// Drops a reference, and with the last one the inode.
    ///
    /// # Errors
    /// The inode is damaged, or the journal was aborted.
    fn release(&self, handle: &Handle, ino: Ino) -> Result<()>;
}

/// What attributes need of the volume.
#[derive(Clone, Copy)]
pub(crate) struct XattrStore<'v> {
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a cluster. An inode is charged for its value inodes in clusters.
    pub cluster_size: u32,
    /// Checksum of attribute blocks.
    pub checksum: MetadataChecksum,
    /// Seed of value hashes: the checksum seed, also without metadata_csum.
    pub value_seed: u32,
    /// The cache of metadata blocks.
    pub buffers: &'v BufferCache,
    /// Allocates and frees blocks.
    pub source: &'v dyn BlockSource,
    /// Value inodes, with the ea_inode feature.
    pub values: Option<&'v dyn ValueInodes>,
}

/// The parts of an inode that contain attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XattrView<'i> {
    /// The inode.
    pub ino: Ino,
    /// Bytes of the record behind the fields of `i_extra_isize`; may be empty.
    pub in_inode: &'i [u8],
    /// The attribute block; 0 if there is none.
    pub file_acl: Pba,
}

/// The parts of an inode that contain attributes, for changes. The caller writes the inode.
#[derive(Debug)]
pub(crate) struct XattrEdit<'i> {
    /// The inode.
    pub ino: Ino,
    /// Bytes of the record behind the fields of `i_extra_isize`.
    pub in_inode: &'i mut [u8],
    /// The attribute block; 0 if there is none.
    pub file_acl: &'i mut Pba,
    /// The preferred place of a new block.
    pub goal: Pba,
}

impl XattrEdit<'_> {
    /// The same parts, for reading.
    #[must_use]
    pub(crate) const fn view(&self) -> XattrView<'_> {
        XattrView { ino: self.ino, in_inode: self.in_inode, file_acl: *self.file_acl }
    }
}

/// The attributes of both containers during a change.
#[derive(Default)]
pub(crate) struct Content {
    pub(crate) inode: Vec<OwnedAttribute>,
    pub(crate) block: Vec<OwnedAttribute>,
    block_changed: bool,
    inode_changed: bool,
}

impl XattrStore<'_> {
    /// Hash of a value with its own inode.
    #[must_use]
    pub(crate) fn value_hash(&self, value: &[u8]) -> u32 {
        crc32c(self.value_seed, value)
    }

    /// The value of an attribute, by its full name. ACLs have the form of `system.posix_acl_*`.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::NoAttribute`] if it does not exist, `Invalid` for a malformed ACL; the
    /// attributes are damaged.
    pub(crate) fn get(&self, view: XattrView<'_>, name: &[u8]) -> Result<Vec<u8>> {
        let (index, rest) = names::parse(name)?;
        let value = self.get_raw(view, index, rest)?.ok_or(cairn_vfs::Error::NoAttribute)?;
        if matches!(index, names::ACL_ACCESS | names::ACL_DEFAULT) {
            return acl::to_shown(&value);
        }
        Ok(value)
    }

    /// The stored value, by prefix index and the rest of the name.
    ///
    /// # Errors
    /// The attributes are damaged.
    pub(crate) fn get_raw(
        &self,
        view: XattrView<'_>,
        index: u8,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let is_it = |a: &&Attribute<'_>| a.index == index && a.name == name;
        let in_inode = xattr::decode(view.in_inode, XattrLocation::Inode, view.ino)?;
        if let Some(attribute) = in_inode.iter().find(is_it) {
            return self.value_of(view.ino, attribute, XattrLocation::Inode).map(Some);
        }
        if view.file_acl == Pba(0) {
            return Ok(None);
        }
        let buffer = self.load_block(view.ino, view.file_acl)?;
        let image = buffer.image();
        let in_block = xattr::decode(&image, XattrLocation::Block, view.ino)?;
        in_block
            .iter()
            .find(is_it)
            .map(|attribute| self.value_of(view.ino, attribute, XattrLocation::Block))
            .transpose()
    }

    fn value_of(
        &self,
        ino: Ino,
        attribute: &Attribute<'_>,
        location: XattrLocation,
    ) -> Result<Vec<u8>> {
        let (far, size, stored) = match attribute.value {
            Value::Here(_) if !attribute.is_aligned() => {
                let at = as_u64(attribute.value_at);
                return Err(location.corrupt(ino, refused::MISPLACED, at).into());
            }
            Value::Here(value) => return Ok(value.to_vec()),
            Value::Inode { ino, size, hash } => (ino, size, hash),
        };
        let values = self.values.ok_or_else(|| {
            location.corrupt(ino, "value in an inode without ea_inode", far.get())
        })?;
        let value = values.read(far, size)?;
        let hash = self.value_hash(&value);
        if !xattr::is_of_value(stored, attribute.name, hash) {
            return Err(location
                .corrupt(ino, "hash of a value in an inode does not match", far.get())
                .into());
        }
        Ok(value)
    }

    /// Full names of all visible attributes, those in the inode first.
    ///
    /// # Errors
    /// The attributes are damaged.
    pub(crate) fn list(&self, view: XattrView<'_>) -> Result<Vec<Vec<u8>>> {
        let shown = |all: &[Attribute<'_>]| {
            all.iter().filter_map(|a| names::full(a.index, a.name)).collect::<Vec<_>>()
        };
        let mut names = shown(&xattr::decode(view.in_inode, XattrLocation::Inode, view.ino)?);
        if view.file_acl != Pba(0) {
            let buffer = self.load_block(view.ino, view.file_acl)?;
            names.extend(shown(&xattr::decode(&buffer.image(), XattrLocation::Block, view.ino)?));
        }
        Ok(names)
    }

    /// Sets an attribute by its full name. Returns the change of the inode's space in units of 512
    /// bytes.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::NoAttributeSpace`] if it fits no container, `NoSpace` if no block is
    /// free; `Exists` and `NoAttribute` by `mode`; `TooBig`.
    pub(crate) fn set(
        &self,
        handle: &Handle,
        edit: &mut XattrEdit<'_>,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<i64> {
        let (index, rest) = names::parse(name)?;
        if value.len() > VALUE_MAX {
            return Err(cairn_vfs::Error::TooBig.into());
        }
        if matches!(index, names::ACL_ACCESS | names::ACL_DEFAULT) {
            return self.set_raw(handle, edit, index, rest, &acl::to_stored(value)?, mode);
        }
        self.set_raw(handle, edit, index, rest, value, mode)
    }

    /// As [`XattrStore::set`], by prefix index and the rest of the name, with the stored form of
    /// the value.
    ///
    /// # Errors
    /// As [`XattrStore::set`].
    pub(crate) fn set_raw(
        &self,
        handle: &Handle,
        edit: &mut XattrEdit<'_>,
        index: u8,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<i64> {
        let mut content = self.content(edit.view())?;
        let old = content.take(index, name);
        match (mode, &old) {
            (XattrMode::Create, Some(_)) => return Err(cairn_vfs::Error::Exists.into()),
            (XattrMode::Replace, None) => return Err(cairn_vfs::Error::NoAttribute.into()),
            _ => {}
        }
        let here =
            OwnedAttribute { index, name: name.to_vec(), value: OwnedValue::Here(value.to_vec()) };
        let capacity = (edit.in_inode.len(), as_index(self.block_size));
        let Err(here) = content.place(here, capacity) else {
            return self.store(handle, edit, content, old);
        };
        let values =
            self.values.filter(|_| !value.is_empty()).ok_or(cairn_vfs::Error::NoAttributeSpace)?;
        let hash = self.value_hash(value);
        let ino = values.create(handle, value, hash)?;
        let size = stored(value.len());
        let far = OwnedValue::Inode { ino, size, hash: entry_hash_of_inode(name, hash) };
        let change = match content.place(OwnedAttribute { value: far, ..here }, capacity) {
            Ok(()) => self.store(handle, edit, content, old),
            Err(_) => Err(cairn_vfs::Error::NoAttributeSpace.into()),
        };
        if change.is_err() {
            values.release(handle, ino)?;
        }
        Ok(self.charge(size).saturating_add(change?))
    }

    /// Removes an attribute by its full name. Returns the change of the inode's space in units of
    /// 512 bytes.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::NoAttribute`] if it does not exist; the attributes are damaged.
    pub(crate) fn remove(
        &self,
        handle: &Handle,
        edit: &mut XattrEdit<'_>,
        name: &[u8],
    ) -> Result<i64> {
        let (index, rest) = names::parse(name)?;
        let mut content = self.content(edit.view())?;
        let old = content.take(index, rest).ok_or(cairn_vfs::Error::NoAttribute)?;
        self.store(handle, edit, content, Some(old))
    }

    /// Frees everything that the attributes of a deleted inode refer to. Returns the change of its
    /// space.
    ///
    /// # Errors
    /// The attributes are damaged, or a block or inode could not be freed.
    pub(crate) fn remove_all(&self, handle: &Handle, edit: &mut XattrEdit<'_>) -> Result<i64> {
        let content = self.content(edit.view())?;
        let mut change = 0_i64;
        for attribute in &content.inode {
            change = change.saturating_add(self.release_value(handle, attribute)?);
        }
        edit.in_inode.fill(0);
        if *edit.file_acl != Pba(0) {
            change = content
                .block
                .iter()
                .fold(change, |change, attribute| change.saturating_sub(self.charge_of(attribute)));
            change = change.saturating_add(self.leave_block(handle, edit, &content.block)?);
        }
        Ok(change)
    }

    fn content(&self, view: XattrView<'_>) -> Result<Content> {
        let owned = |all: Vec<Attribute<'_>>| all.iter().map(OwnedAttribute::from).collect();
        let inode = owned(xattr::decode(view.in_inode, XattrLocation::Inode, view.ino)?);
        let block = if view.file_acl == Pba(0) {
            Vec::new()
        } else {
            let buffer = self.load_block(view.ino, view.file_acl)?;
            owned(xattr::decode(&buffer.image(), XattrLocation::Block, view.ino)?)
        };
        Ok(Content { inode, block, block_changed: false, inode_changed: false })
    }

    /// Writes changed containers. The block comes first, because only there space can run out.
    fn store(
        &self,
        handle: &Handle,
        edit: &mut XattrEdit<'_>,
        mut content: Content,
        old: Option<(OwnedAttribute, XattrLocation)>,
    ) -> Result<i64> {
        let mut change = 0_i64;
        let mut shared = false;
        if content.block_changed {
            let removed = old
                .as_ref()
                .filter(|(_, location)| *location == XattrLocation::Block)
                .map(|(old, _)| old);
            let stored = self.store_block(handle, edit, &mut content.block, removed)?;
            change = change.saturating_add(stored.change);
            shared = stored.left_to_others;
        }
        if content.inode_changed {
            xattr::encode_inode(edit.in_inode, &content.inode);
        }
        if let Some((old, location)) = old {
            // The other users of a shared block still refer to its value inodes.
            change = change.saturating_add(if location == XattrLocation::Block && shared {
                self.charge_of(&old).saturating_neg()
            } else {
                self.release_value(handle, &old)?
            });
        }
        Ok(change)
    }

    /// Drops the inode that holds a value, if one does. Returns the change of space.
    fn release_value(&self, handle: &Handle, attribute: &OwnedAttribute) -> Result<i64> {
        if let (OwnedValue::Inode { ino, .. }, Some(values)) = (&attribute.value, self.values) {
            values.release(handle, *ino)?;
        }
        Ok(self.charge_of(attribute).saturating_neg())
    }

    fn charge_of(&self, attribute: &OwnedAttribute) -> i64 {
        match attribute.value {
            OwnedValue::Here(_) => 0,
            OwnedValue::Inode { size, .. } => self.charge(size),
        }
    }

    /// The charge of a value inode to its user, in units of 512 bytes.
    fn charge(&self, size: u32) -> i64 {
        i64::from(size.div_ceil(self.cluster_size))
            .saturating_mul(i64::from(self.cluster_size / 512))
    }
}

impl Content {
    /// Removes an attribute from its container and returns it.
    fn take(&mut self, index: u8, name: &[u8]) -> Option<(OwnedAttribute, XattrLocation)> {
        let at =
            |all: &[OwnedAttribute]| all.iter().position(|a| a.index == index && a.name == name);
        if let Some(at) = at(&self.inode) {
            self.inode_changed = true;
            return Some((self.inode.remove(at), XattrLocation::Inode));
        }
        let at = at(&self.block)?;
        self.block_changed = true;
        Some((self.block.remove(at), XattrLocation::Block))
    }

    /// True if there is an attribute with the same name.
    pub(crate) fn contains(&self, other: &OwnedAttribute) -> bool {
        let mut all = self.inode.iter().chain(&self.block);
        all.any(|known| known.index == other.index && known.name == other.name)
    }

    /// Adds an attribute to a container with room, or returns it.
    pub(crate) fn place(
        &mut self,
        attribute: OwnedAttribute,
        capacity: (usize, usize),
    ) -> Result<(), OwnedAttribute> {
        let (inode_len, block_len) = capacity;
        self.inode.push(attribute);
        if fits(inode_len, XattrLocation::Inode, &self.inode) {
            self.inode_changed = true;
            return Ok(());
        }
        let Some(attribute) = self.inode.pop() else { return Ok(()) };
        self.block.push(attribute);
        if fits(block_len, XattrLocation::Block, &self.block) {
            self.block_changed = true;
            return Ok(());
        }
        self.block.pop().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
