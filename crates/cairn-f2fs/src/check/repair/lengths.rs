//! Wrong lengths of names in entries. The hash of an entry proves the length of its name.

use cairn_vfs::Name;

use super::edit::Edit;
use crate::error::Result;
use crate::form::names::Names;
use crate::format::dentry::{Dentries, DentriesMut};
use crate::format::units::Nid;

impl Edit<'_> {
    /// A block of a directory in which names have the lengths by which they have their hashes.
    pub(super) fn with_lengths(&self, dir: Nid, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        let names = self.names_of(dir)?.unwrap_or(Names::Plain);
        if matches!(names, Names::Encrypted { .. }) {
            return Ok(bytes);
        }
        let mut from = 0;
        while let Some(found) = Dentries::new(&bytes).next(from) {
            let (slot, is_right) = match found {
                Ok(entry) if matches!(entry.name, b"." | b"..") => (entry.slot, true),
                Ok(entry) => {
                    let own = names.hash(entry.name);
                    (entry.slot, own.is_none_or(|own| own == entry.hash))
                }
                Err(bad) => (bad.slot, false),
            };
            from = found.map_or_else(|bad| bad.next_slot(), |entry| entry.next_slot());
            let entries = Dentries::new(&bytes);
            let Some(hash) = entries.hash_at(slot).filter(|_| !is_right) else { continue };
            let is_wanted =
                |name: &[u8]| names.hash(name) == Some(hash) && Name::check(name).is_ok();
            if let Some(len) = entries.length_of(slot, is_wanted) {
                DentriesMut::new(&mut bytes).set_length(slot, len);
                from = slot.saturating_add(crate::format::dentry::slots_for(len));
            }
        }
        Ok(bytes)
    }
}
