//! The extended attributes of a file, as far as they can be read.

use cairn_base::{Ino, Pba};
use cairn_check::salvage::{Found, Loss, Receiver, Xattr};
use cairn_vfs::acl::shown_from_compact;

use super::contents::contents;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::xattr::{self, Attribute, VALUE_MAX, Value, XattrLocation};
use crate::raw::RawVolume;
use crate::xattr::names;

struct Read<'a> {
    volume: &'a RawVolume,
    list: Vec<Xattr>,
    faults: Vec<String>,
}

/// Adds its attributes to a file, and reports those that are lost. With `is_deleted`, its block may
/// be another's by now.
pub(super) fn add(
    volume: &RawVolume,
    record: &Record,
    is_deleted: bool,
    found: &mut Found,
    receiver: &mut dyn Receiver,
) -> bool {
    let ino = Ino(found.ino);
    let mut read = Read { volume, list: Vec::new(), faults: Vec::new() };
    match xattr::decode(&record.extra, XattrLocation::Inode, ino) {
        Ok(attributes) => attributes.iter().for_each(|one| read.one(one)),
        Err(error) => read.faults.push(error.to_string()),
    }
    if record.file_acl != Pba(0) {
        read.block(record.file_acl, ino, is_deleted);
    }
    found.xattrs = read.list;
    read.faults.into_iter().all(|what| {
        let what = format!("its attributes are not all known: {what}");
        receiver.lost(Loss { path: found.path.clone(), ino: found.ino, what })
    })
}

impl Read<'_> {
    fn block(&mut self, pba: Pba, ino: Ino, is_deleted: bool) {
        if is_deleted && self.volume.is_block_in_use(pba) != Some(false) {
            return self.faults.push(format!("block {pba} may be that of another file"));
        }
        let bytes = match self.volume.block(pba) {
            Ok(bytes) => bytes,
            Err(error) => return self.faults.push(error.to_string()),
        };
        let sound = xattr::verify_block(&bytes, pba, self.volume.layout.checksum, ino);
        match sound.and_then(|()| xattr::decode(&bytes, XattrLocation::Block, ino)) {
            Ok(attributes) => attributes.iter().for_each(|one| self.one(one)),
            Err(error) => self.faults.push(error.to_string()),
        }
    }

    fn one(&mut self, one: &Attribute<'_>) {
        let Some(name) = names::full(one.index, one.name) else { return };
        let value = match one.value {
            Value::Here(_) if !one.is_aligned() => {
                let shown = names::shown(one.index, one.name);
                return self
                    .faults
                    .push(format!("the place of the value of {shown} is impossible"));
            }
            Value::Here(value) => value.to_vec(),
            Value::Inode { ino, size, .. } => match self.far(ino, size) {
                Some(value) => value,
                None => return self.faults.push(format!("the value in inode {ino}")),
            },
        };
        let is_list = matches!(one.index, names::ACL_ACCESS | names::ACL_DEFAULT);
        let shown = match is_list {
            true => shown_from_compact(&value).map_err(|error| error.to_string()),
            false => Ok(Some(value)),
        };
        match shown {
            Ok(Some(value)) => self.list.push((name, value)),
            Ok(None) => {}
            Err(why) => self.faults.push(why),
        }
    }

    /// A value that has an inode of its own.
    fn far(&self, ino: Ino, size: u32) -> Option<Vec<u8>> {
        let record = self.volume.record(ino)?;
        let is_value = record.flags.contains(InodeFlags::EA_INODE)
            && record.size == u64::from(size)
            && usize::try_from(size).is_ok_and(|size| size <= VALUE_MAX);
        if !is_value {
            return None;
        }
        let mut value = vec![0; usize::try_from(size).ok()?];
        let faults = contents(self.volume, ino, &record).copy(&mut |offset, part| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let place = value.get_mut(start..start.saturating_add(part.len()));
            if let Some(place) = place {
                place.copy_from_slice(part);
            }
            true
        });
        faults.is_empty().then_some(value)
    }
}
