//! Extended attributes.

use cairn_base::{Ino, Pba};
use cairn_check::Finding;

use super::super::kinds;
use super::mender::{DAMAGED, Mender};
use crate::error::Result;
use crate::format::xattr::{
    self, OwnedAttribute, OwnedValue, XattrLocation, entry_hash_of_inode, fits,
};

/// Mends the attributes of an inode where the finding is.
pub(super) fn mend(mender: &mut Mender<'_>, ino: Ino, finding: &Finding) -> Result<()> {
    let Some(record) = mender.state.record(ino) else { return Ok(()) };
    let code = finding.kind.code;
    let is_place = code.starts_with("ext4.map.") || finding.place.field == Some("i_file_acl");
    let in_block = finding.place.block.is_some();
    let (location, mut bytes) = match in_block && !is_place {
        true => (XattrLocation::Block, mender.read(record.file_acl)?),
        false => (XattrLocation::Inode, record.extra.clone()),
    };
    let is_losing = code == kinds::XATTR_CHECKSUM.code;
    let is_sum = is_losing || code == kinds::XATTR_CHECKSUM_ONLY.code;
    let is_unusable = is_place && !is_sum;
    if is_sum {
        let pba = record.file_acl;
        let mut block = mender.read(pba)?;
        xattr::seal_block(&mut block, pba, mender.state.layout.checksum);
        mender.write(pba, block)?;
        match is_losing {
            true => mender.lose(finding, ino, DAMAGED),
            false => mender.step(finding),
        }
        return Ok(());
    }
    if is_unusable && !is_readable(mender, record.file_acl, ino, code) {
        mender.edit(ino, |record| record.file_acl = Pba(0))?;
        mender.lose(finding, ino, "the extended attributes in its block");
        return Ok(());
    }
    let (location, is_block) = match is_unusable {
        true => {
            bytes = mender.read(record.file_acl)?;
            mend_header(&mut bytes);
            (XattrLocation::Block, true)
        }
        false => (location, location == XattrLocation::Block),
    };
    let Ok(attributes) = xattr::decode(&bytes, location, ino) else {
        match is_block {
            true => mender.edit(ino, |record| record.file_acl = Pba(0))?,
            false => mender.edit(ino, |record| record.extra.fill(0))?,
        };
        mender.lose(finding, ino, "the extended attributes in this place");
        return Ok(());
    };
    let owned: Vec<OwnedAttribute> = attributes.iter().map(OwnedAttribute::from).collect();
    let (kept, is_lost) = keep(mender, owned, finding);
    put(mender, ino, record.file_acl, location, bytes.len(), kept)?;
    match is_lost {
        true => mender.lose(finding, ino, "an extended attribute"),
        false => mender.step(finding),
    }
    Ok(())
}

/// The attribute block has entries that can be read, when its header is put right.
fn is_readable(mender: &Mender<'_>, pba: Pba, ino: Ino, code: &str) -> bool {
    let layout = &mender.state.layout;
    let has_feature = layout.features.compat(crate::format::features::Compat::EXT_ATTR);
    if code.starts_with("ext4.map.") || !has_feature || !layout.contains(pba, 1) {
        return false;
    }
    let Ok(mut bytes) = mender.read(pba) else { return false };
    mend_header(&mut bytes);
    xattr::decode(&bytes, XattrLocation::Block, ino).is_ok()
}

/// Gives a block's header possible numbers: one inode, one block.
fn mend_header(bytes: &mut [u8]) {
    let one = 1_u32.to_le_bytes();
    for at in [4..8, 8..12] {
        if let Some(place) = bytes.get_mut(at) {
            place.copy_from_slice(&one);
        }
    }
}

/// The attributes that stay, with the right hashes, and whether some do not.
fn keep(
    mender: &Mender<'_>,
    owned: Vec<OwnedAttribute>,
    finding: &Finding,
) -> (Vec<OwnedAttribute>, bool) {
    let is_value = finding.kind.code == kinds::XATTR_VALUE.code;
    let named = finding.place.name.as_deref();
    let before = owned.len();
    let mut kept = Vec::new();
    for mut attribute in owned {
        if let OwnedValue::Inode { ino, hash, .. } = &mut attribute.value {
            if is_value && named == Some(&attribute.name) {
                continue;
            }
            if let Some(record) = mender.state.record(*ino) {
                *hash = entry_hash_of_inode(&attribute.name, record.value_facts().hash);
            }
        }
        kept.push(attribute);
    }
    let is_lost = kept.len() < before;
    (kept, is_lost)
}

fn put(
    mender: &Mender<'_>,
    ino: Ino,
    pba: Pba,
    location: XattrLocation,
    room: usize,
    mut kept: Vec<OwnedAttribute>,
) -> Result<bool> {
    while !fits(room, location, &kept) {
        kept.pop();
    }
    match location {
        XattrLocation::Inode => {
            mender.edit(ino, |record| xattr::encode_inode(&mut record.extra, &kept))
        }
        XattrLocation::Block if kept.is_empty() => {
            mender.edit(ino, |record| record.file_acl = Pba(0))
        }
        XattrLocation::Block => {
            let mut block = mender.empty_block();
            xattr::encode_block(&mut block, &mut kept);
            xattr::seal_block(&mut block, pba, mender.state.layout.checksum);
            mender.write(pba, block)?;
            Ok(true)
        }
    }
}
