//! Extended attributes.

use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Kind, Severity};

use super::super::{attributes, kinds};
use super::mender::{DAMAGED, Mender};
use crate::error::Result;
use crate::format::xattr::{
    self, Attribute, OwnedAttribute, OwnedValue, XattrLocation, entry_hash_of_inode, fits,
};
use crate::xattr::{names, refused};

/// Mends the attributes of an inode where the finding is.
pub(super) fn mend(mender: &mut Mender<'_>, ino: Ino, finding: &Finding) -> Result<()> {
    let Some(record) = mender.state.record(ino) else { return Ok(()) };
    let code = finding.kind.code;
    let is_place = code.starts_with("ext4.map.") || finding.place.field == Some("i_file_acl");
    let in_block = finding.place.block.is_some();
    // What another file has, too, may be its contents. It is mended when one of them has a copy.
    let is_shared = mender.state.twice.contains(mender.state.cluster(record.file_acl.get()));
    if is_shared && in_block && !code.starts_with("ext4.map.") {
        return Ok(());
    }
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
        // Each inode whose block lies where none can be has a finding of its own.
        let users = match code.starts_with("ext4.map.") {
            true => vec![ino],
            false => users(mender, record.file_acl),
        };
        return drop_block(mender, finding, &users, "the extended attributes in its block");
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
        let what = "the extended attributes in this place";
        if is_block {
            let users = users(mender, record.file_acl);
            return drop_block(mender, finding, &users, what);
        }
        mender.edit(ino, |record| record.extra.fill(0))?;
        mender.lose(finding, ino, what);
        return Ok(());
    };
    let sharing = match if is_block { xattr::refcount(&bytes) } else { 1 } {
        0 | 1 => String::new(),
        count => format!(", which {count} inodes share"),
    };
    let (kept, mut lost) = keep(mender, &attributes, location, finding);
    lost.extend(put(mender, ino, record.file_acl, location, bytes.len(), kept)?);
    for attribute in &lost {
        let name = names::shown(attribute.index, &attribute.name);
        mender.lose(finding, ino, &format!("the extended attribute {name}{sharing}"));
    }
    // What another finding was about may be gone with it.
    if lost.is_empty() && (is_unusable || finding.kind.severity == Severity::Accounting) {
        mender.step(finding);
    }
    Ok(())
}

/// The inodes that have this block of attributes.
fn users(mender: &Mender<'_>, pba: Pba) -> Vec<Ino> {
    let state = mender.state;
    let used = state.inodes.iter().filter(|(_, facts)| facts.is_in_use());
    let has_block = |ino: &Ino| state.record(*ino).is_some_and(|record| record.file_acl == pba);
    used.map(|(number, _)| Ino(number)).filter(has_block).collect()
}

/// Takes their block of attributes from inodes.
fn drop_block(mender: &mut Mender<'_>, finding: &Finding, users: &[Ino], what: &str) -> Result<()> {
    for user in users {
        mender.edit(*user, |record| record.file_acl = Pba(0))?;
        mender.lose(finding, *user, what);
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

/// Gives a block's header possible numbers: one inode, one block; and its mark, if one byte of that
/// is wrong.
fn mend_header(bytes: &mut [u8]) {
    let mark = xattr::MAGIC.to_le_bytes();
    if let Some(stored) = bytes.first_chunk_mut::<4>()
        && stored.iter().zip(&mark).filter(|(one, other)| one != other).count() == 1
    {
        *stored = mark;
    }
    let one = 1_u32.to_le_bytes();
    for at in [4..8, 8..12] {
        if let Some(place) = bytes.get_mut(at) {
            place.copy_from_slice(&one);
        }
    }
}

/// The attributes that stay, with the right hash where one is wrong, and those that do not.
fn keep(
    mender: &Mender<'_>,
    all: &[Attribute<'_>],
    location: XattrLocation,
    finding: &Finding,
) -> (Vec<OwnedAttribute>, Vec<OwnedAttribute>) {
    let is = |kind: &Kind| finding.kind.code == kind.code;
    let named = finding.place.name.as_deref();
    let overlapping = attributes::overlapping(all, location);
    let (mut kept, mut lost) = (Vec::new(), Vec::new());
    for attribute in all {
        let is_named = named == Some(attribute.name);
        let mut owned = OwnedAttribute::from(attribute);
        let is_far = matches!(owned.value, OwnedValue::Inode { .. });
        let is_wrong = refused(attribute).is_some()
            || overlapping.iter().any(|(other, _)| std::ptr::eq(*other, attribute));
        if is_wrong && (is(&kinds::XATTR_INVALID) || is(&kinds::XATTR_REFUSED))
            || is(&kinds::XATTR_VALUE) && is_named && is_far
        {
            lost.push(owned);
            continue;
        }
        if is(&kinds::XATTR_HASH)
            && is_named
            && let OwnedValue::Inode { ino, hash, .. } = &mut owned.value
            && let Some(record) = mender.state.record(*ino)
        {
            *hash = entry_hash_of_inode(attribute.name, record.value_facts().hash);
        }
        kept.push(owned);
    }
    (kept, lost)
}

/// Writes the attributes. Returns those for which there is no room.
fn put(
    mender: &Mender<'_>,
    ino: Ino,
    pba: Pba,
    location: XattrLocation,
    room: usize,
    mut kept: Vec<OwnedAttribute>,
) -> Result<Vec<OwnedAttribute>> {
    let mut left = Vec::new();
    while !fits(room, location, &kept) {
        left.extend(kept.pop());
    }
    match location {
        XattrLocation::Inode => {
            mender.edit(ino, |record| xattr::encode_inode(&mut record.extra, &kept))?;
        }
        XattrLocation::Block if kept.is_empty() => {
            for user in users(mender, pba) {
                mender.edit(user, |record| record.file_acl = Pba(0))?;
            }
        }
        XattrLocation::Block => {
            let mut block = mender.empty_block();
            xattr::encode_block(&mut block, &mut kept);
            xattr::seal_block(&mut block, pba, mender.state.layout.checksum);
            mender.write(pba, block)?;
        }
    }
    Ok(left)
}
