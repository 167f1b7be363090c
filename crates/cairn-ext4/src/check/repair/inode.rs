//! Inodes: their fields, maps and attributes.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Severity, Value};

use super::super::kinds;
use super::mender::{DAMAGED, Mender, WHOSE};
use super::policy::Prune;
use super::{attributes, contents, encryption, orphans, rewrite, runs};
use crate::error::Result;
use crate::format::extent::ROOT_BYTES;
use crate::format::inode::{InodeFlags, mode};
use crate::format::layout::inodes;

/// `i_atime`, which is the hash where an inode holds a value.
const ATIME: Range<usize> = 8..12;

/// The findings of an inode.
type OfInode<'f> = BTreeMap<u64, Vec<&'f Finding>>;

/// Mends inodes, one after the other.
pub(super) fn mend(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    let mut inodes: OfInode<'_> = BTreeMap::new();
    let mut orphans = Vec::new();
    for finding in findings {
        let code = finding.kind.code;
        if [kinds::ORPHAN_PENDING.code, kinds::ORPHAN_INVALID.code].contains(&code) {
            orphans.push(*finding);
        } else if let Some(ino) = finding.place.inode {
            inodes.entry(ino).or_default().push(finding);
        }
    }
    if !orphans.is_empty() {
        return orphans::mend(mender, &orphans);
    }
    for (ino, findings) in inodes {
        one(mender, Ino(ino), &findings)?;
    }
    Ok(())
}

/// True if the inode is to be cleared because of the finding, and what that loses.
fn clears(finding: &Finding) -> Option<&'static str> {
    let code = finding.kind.code;
    if code == kinds::SYMLINK_TARGET.code {
        return Some("the symbolic link");
    }
    let whole = [&kinds::INODE_MODE, &kinds::ENCRYPTION_CONTEXT];
    whole.iter().any(|kind| kind.code == code).then_some("the file")
}

fn one(mender: &mut Mender<'_>, ino: Ino, findings: &[&Finding]) -> Result<()> {
    let is = |finding: &Finding, kind: &cairn_check::Kind| finding.kind.code == kind.code;
    if let Some(finding) = findings.iter().find(|finding| is(finding, &kinds::INODE_ROOT)) {
        return contents::make_root(mender, finding);
    }
    let cleared = findings.iter().find_map(|finding| Some((finding, clears(finding)?)));
    // What lies in a directory has the context that it lacks.
    let is_proved = findings.iter().any(|finding| is(finding, &kinds::ENCRYPTION_POLICY));
    let cleared = cleared.filter(|_| !is_proved);
    if let Some((finding, what)) = cleared.filter(|_| ino != inodes::ROOT) {
        if mender.clear(ino)? {
            mender.lose(finding, ino, what);
        }
        return Ok(());
    }
    let is_resize = ino == inodes::RESIZE;
    if is_resize && findings.iter().any(|finding| finding.kind.code != kinds::INODE_CHECKSUM.code) {
        return contents::mend_resize(mender, findings);
    }
    let (mut map, mut sizes) = (Vec::new(), Vec::new());
    let mut values = HashSet::new();
    for finding in findings {
        let code = finding.kind.code;
        let is_acl = is_attribute_block(mender, ino, finding);
        if (code.starts_with("ext4.map.") && !is_acl) || code.starts_with("ext4.extent.") {
            map.push(*finding);
        } else if is_acl || code.starts_with("ext4.xattr.") {
            // One attribute, or all that are alike in a place.
            let of_one = [kinds::XATTR_VALUE.code, kinds::XATTR_HASH.code].contains(&code);
            let name = finding.place.name.as_ref().filter(|_| of_one);
            if values.insert((finding.place.block, code, name)) {
                attributes::mend(mender, ino, finding)?;
            }
        } else if [kinds::INODE_SIZE.code, kinds::INODE_SIZE_UNPROVED.code].contains(&code) {
            sizes.push(*finding);
        } else {
            field(mender, ino, finding)?;
        }
    }
    // What is cut from the map says another size, which the next round finds.
    if map.is_empty() || !prune(mender, ino, &map)? {
        sizes.into_iter().try_for_each(|finding| field(mender, ino, finding))?;
    }
    Ok(())
}

/// The finding is about the place of the attribute block.
fn is_attribute_block(mender: &Mender<'_>, ino: Ino, finding: &Finding) -> bool {
    if !finding.kind.code.starts_with("ext4.map.") {
        return false;
    }
    let acl = mender.state.record(ino).map_or(0, |record| record.file_acl.get());
    let has_system_acl = finding.kind.code == kinds::MAP_SYSTEM.code
        && finding.place.block == Some(acl)
        && finding.place.file_block == Some(0);
    finding.place.field == Some("i_file_acl") || (acl != 0 && has_system_acl)
}

/// Cuts what is wrong from a map. True if the map has changed.
fn prune(mender: &mut Mender<'_>, ino: Ino, findings: &[&Finding]) -> Result<bool> {
    let Some(mut record) = mender.state.record(ino) else { return Ok(false) };
    let is_checksum = |finding: &Finding| finding.kind.code == kinds::EXTENT_CHECKSUM.code;
    let is_losing = findings
        .iter()
        .any(|finding| finding.kind.severity != Severity::Accounting && !is_checksum(finding));
    if findings.iter().any(|finding| finding.place.field == Some("i_flags")) {
        let found = runs::collect(mender.state, ino, &record);
        record.flags.insert(InodeFlags::EXTENTS);
        let is_stored = runs::store(mender, ino, &mut record, &found.runs)?;
        if is_stored {
            mender.edit(ino, |stored| {
                (stored.block, stored.flags) = (record.block, record.flags);
            })?;
            findings.iter().for_each(|finding| mender.step(finding));
        }
        return Ok(is_stored);
    }
    let mut policy = Prune::new(ino, record.is_directory());
    let mut is_changed = rewrite::rewrite(mender, ino, &mut record, &mut policy)?;
    if !is_changed && is_losing {
        record.block = [0; ROOT_BYTES];
        if record.flags.contains(InodeFlags::EXTENTS) {
            crate::format::extent::Node::empty().encode_root(&mut record.block);
        }
        is_changed = true;
    }
    if !is_changed || !mender.edit(ino, |stored| stored.block = record.block)? {
        return Ok(false);
    }
    for finding in findings {
        match finding.kind.severity {
            Severity::Accounting if is_losing || !policy.is_cut => mender.step(finding),
            _ if is_checksum(finding) => mender.lose(finding, ino, DAMAGED),
            _ if !policy.is_cut && finding.kind.code == kinds::MAP_SYSTEM.code => {
                mender.lose(finding, ino, WHOSE);
            }
            _ => {
                let from = finding.place.file_block.unwrap_or(0);
                let what = format!("contents from block {from} of the file on");
                mender.lose(finding, ino, &what);
            }
        }
    }
    Ok(true)
}

/// A number that the finding has computed.
fn computed(finding: &Finding) -> Option<u64> {
    finding.computed.as_ref().and_then(Value::number)
}

/// Gives the inode of a value the hash of the value.
fn set_hash(mender: &mut Mender<'_>, ino: Ino, finding: &Finding) -> Result<()> {
    let hash = computed(finding).and_then(|hash| u32::try_from(hash).ok());
    let is_done = mender.edit_bytes(ino, |bytes| {
        if let (Some(hash), Some(place)) = (hash, bytes.get_mut(ATIME)) {
            place.copy_from_slice(&hash.to_le_bytes());
        }
    })?;
    if is_done {
        mender.step(finding);
    }
    Ok(())
}

/// Mends a field of a record.
fn field(mender: &mut Mender<'_>, ino: Ino, finding: &Finding) -> Result<()> {
    let (code, now) = (finding.kind.code, mender.now);
    let layout = mender.state.layout;
    let number = computed(finding);
    let is = |kind: &cairn_check::Kind| kind.code == code;
    if is(&kinds::INODE_CHECKSUM) {
        if mender.edit_bytes(ino, |_| ())? {
            mender.lose(finding, ino, DAMAGED);
        }
        return Ok(());
    }
    if is(&kinds::VALUE_HASH) {
        return set_hash(mender, ino, finding);
    }
    if is(&kinds::ENCRYPTION_POLICY) || is(&kinds::ENCRYPTION_INHERITED) {
        return encryption::mend(mender, ino, finding);
    }
    if is(&kinds::INODE_SIZE_UNPROVED) {
        return contents::set_size_of_file(mender, ino, finding);
    }
    if is(&kinds::INODE_TYPE) || is(&kinds::INODE_TYPE_UNPROVED) {
        return set_mode(mender, ino, finding);
    }
    let is_done = if is(&kinds::INODE_EXTRA_SIZE) {
        mender.edit(ino, |record| contents::set_extra_size(record, layout.want_extra_isize))?
    } else if is(&kinds::INODE_DELETED) {
        let is_used = number.is_some();
        mender.edit(ino, |record| record.dtime = if is_used { 0 } else { now })?
    } else if is(&kinds::INODE_FLAGS) || is(&kinds::ENCRYPTION_FLAG) {
        let Some(flags) = number.and_then(|number| u32::try_from(number).ok()) else {
            return Ok(());
        };
        mender.edit(ino, |record| record.flags = InodeFlags::from_bits_retain(flags))?
    } else if is(&kinds::INODE_RESERVED) {
        reserved(mender, ino)?
    } else if is(&kinds::INODE_RESERVED_QUOTA) {
        if mender.clear(ino)? {
            mender.lose(finding, ino, "the limits of users and groups");
        }
        return Ok(());
    } else if is(&kinds::INODE_SIZE) {
        let Some(size) = number else { return Ok(()) };
        contents::set_size(mender, ino, size)?
    } else if is(&kinds::SPECIAL_CONTENTS) {
        mender.edit(ino, |record| record.size = 0)?
    } else if is(&kinds::INODE_FIELD) {
        zero_field(mender, ino, finding.place.field.unwrap_or(""))?
    } else if is(&kinds::INODE_TIME) {
        first_epoch(mender, ino, finding.place.field.unwrap_or(""))?
    } else if is(&kinds::INLINE_DATA) {
        return contents::mend_inline(mender, ino, finding);
    } else {
        false
    };
    if is_done && is(&kinds::ENCRYPTION_FLAG) {
        mender.lose(finding, ino, "the mark: what it has may still be encrypted");
    } else if is_done && is(&kinds::INODE_EXTRA_SIZE) {
        let lost = "the time when it was made, parts of seconds, its project, if it had them";
        mender.lose(finding, ino, lost);
    } else if is_done {
        mender.step(finding);
    }
    Ok(())
}

/// Gives a reserved inode that has a use the fields for it, and clears another.
fn reserved(mender: &Mender<'_>, ino: Ino) -> Result<bool> {
    let has_journal = mender.state.layout.journal_ino == inodes::JOURNAL;
    match ino {
        inodes::JOURNAL if has_journal => {
            mender.edit(ino, |record| record.mode = mode::REGULAR | 0o600)
        }
        // The list of bad blocks is a map and nothing else.
        inodes::BAD => mender.edit(ino, |record| {
            (record.mode, record.links, record.file_acl) = (0, 0, Pba(0));
            (record.uid, record.gid) = (0, 0);
        }),
        inodes::BOOT_LOADER if has_contents(mender, ino) => {
            mender.edit(ino, |record| record.mode = mode::REGULAR | record.mode & 0o777)
        }
        _ => mender.clear(ino),
    }
}

fn has_contents(mender: &Mender<'_>, ino: Ino) -> bool {
    mender.state.record(ino).is_some_and(|record| record.size != 0 || record.blocks_512 != 0)
}

/// Sets the mode, whose file type is wrong.
fn set_mode(mender: &mut Mender<'_>, ino: Ino, finding: &Finding) -> Result<()> {
    let mode = computed(finding).and_then(|mode| u16::try_from(mode).ok());
    let Some(mode) = mode else { return Ok(()) };
    let is_done = mender.edit_bytes(ino, |bytes| {
        if let Some(place) = bytes.first_chunk_mut() {
            *place = mode.to_le_bytes();
        }
    })?;
    if is_done && finding.kind.severity == Severity::Accounting {
        mender.step(finding);
    } else if is_done {
        mender.lose(finding, ino, "the file type that the mode had");
    }
    Ok(())
}

/// Sets a field to zero. False if there is no such field.
fn zero_field(mender: &Mender<'_>, ino: Ino, field: &str) -> Result<bool> {
    let place = match field {
        "i_size_high" => 108..112,
        "i_obso_faddr" => 112..116,
        "i_blocks_high" => 116..118,
        "i_file_acl_high" => 118..120,
        _ => return Ok(false),
    };
    mender.edit_bytes(ino, |bytes| {
        if let Some(place) = bytes.get_mut(place) {
            place.fill(0);
        }
    })
}

/// Makes a time one of the first epoch, which begins in 1901.
fn first_epoch(mender: &Mender<'_>, ino: Ino, field: &str) -> Result<bool> {
    let at = match field {
        "i_ctime" => 132,
        "i_mtime" => 136,
        "i_atime" => 140,
        "i_crtime" => 148,
        _ => return Ok(false),
    };
    mender.edit_bytes(ino, |bytes| {
        if let Some(byte) = bytes.get_mut(at) {
            *byte &= !3;
        }
    })
}
