//! The extended attributes of an inode: in the inode, in its attribute block, in other inodes.

use cairn_base::{Ino, Pba};
use cairn_check::{Detail, Fields};

use super::record::record as record_of;
use crate::error::Result;
use crate::format::xattr::{self, Value, XattrLocation};
use crate::raw::RawVolume;
use crate::xattr::names;

/// The attributes of an inode.
///
/// # Errors
/// Its record cannot be read.
pub(super) fn show(volume: &RawVolume, ino: Ino) -> Result<Fields> {
    let (_, record) = record_of(volume, ino)?;
    let mut fields = Fields::new().with("inode", ino.get());
    let mut list = Vec::new();
    let mut errors = Vec::new();
    match xattr::decode(&record.extra, XattrLocation::Inode, ino) {
        Ok(found) => list.extend(found.iter().map(|one| shown(one, "inode"))),
        Err(error) => errors.push(error.to_string()),
    }
    if record.file_acl != Pba(0) {
        fields.put("block", record.file_acl.get());
        match volume.block(record.file_acl) {
            Ok(block) => {
                fields.put("h_refcount", xattr::refcount(&block));
                let sound =
                    xattr::verify_block(&block, record.file_acl, volume.layout.checksum, ino);
                fields.put("checksum_right", sound.is_ok());
                errors.extend(sound.err().map(|error| error.to_string()));
                match xattr::decode(&block, XattrLocation::Block, ino) {
                    Ok(found) => list.extend(found.iter().map(|one| shown(one, "block"))),
                    Err(error) => errors.push(error.to_string()),
                }
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    fields.put("xattrs", list);
    if !errors.is_empty() {
        fields.put("errors", errors);
    }
    Ok(fields)
}

fn shown(one: &xattr::Attribute<'_>, place: &'static str) -> Fields {
    let full = names::full(one.index, one.name).unwrap_or_else(|| {
        let prefix = match one.index {
            names::SYSTEM => "system.".to_owned(),
            index => format!("{index}:"),
        };
        [prefix.as_bytes(), one.name].concat()
    });
    let mut fields = Fields::new()
        .with("name", Detail::Name(full))
        .with("place", place)
        .with("e_name_index", one.index)
        .with("e_hash", Detail::Hex(one.hash.into()));
    match one.value {
        Value::Here(value) => {
            fields.put("offset", one.value_at);
            fields.put("size", value.len());
            fields.put("value", Detail::Name(value.to_vec()));
        }
        Value::Inode { ino, size, .. } => {
            fields.put("size", size);
            fields.put("e_value_inum", ino.get());
        }
    }
    fields
}
