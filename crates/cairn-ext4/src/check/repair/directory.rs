//! Directories: an entry that is wrong is changed where it is; one whose structure is wrong is made
//! anew.

use std::collections::BTreeMap;

use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Severity, Value};

use super::super::dir_blocks::Directory;
use super::super::htree::{self, Role};
use super::super::{directory, kinds};
use super::mender::{DAMAGED, Mender, step};
use super::{contents, rebuild};
use crate::error::Result;
use crate::format::dir_entry::{DOTDOT_AT, remove_at, seal_leaf};
use crate::format::features::Compat;
use crate::format::htree::{NodeKind, seal_node};
use crate::format::inode::InodeFlags;

/// Offset of the type in an entry.
const TYPE_AT: usize = 7;

/// Mends directories, one after the other.
pub(super) fn mend(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    let mut directories: BTreeMap<u64, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        if let Some(ino) = finding.place.inode {
            directories.entry(ino).or_default().push(finding);
        }
    }
    for (ino, findings) in directories {
        let ino = Ino(ino);
        let is_done = match findings.iter().find(|finding| is_empty(finding)) {
            Some(finding) => contents::fill_empty(mender, ino, finding)?,
            None => one(mender, ino, &findings)?,
        };
        if is_done {
            findings.iter().for_each(|finding| note(mender, ino, finding));
        }
    }
    Ok(())
}

/// The directory has no block at all.
fn is_empty(finding: &Finding) -> bool {
    finding.kind.code == kinds::DIRECTORY_HOLE.code && finding.place.file_block.is_none()
}

/// Notes the step, with the name that is lost.
fn note(mender: &mut Mender<'_>, ino: Ino, finding: &Finding) {
    if finding.kind.severity == Severity::Accounting {
        return mender.step(finding);
    }
    let mut path = mender.path(ino);
    let what = match &finding.place.name {
        Some(name) => {
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            "the name"
        }
        None if finding.kind.code == kinds::DIRECTORY_CHECKSUM.code => DAMAGED,
        None => "names in this block",
    };
    mender.steps.add(step(finding).losing(path, what));
}

/// What is to be done in a block.
enum Edit {
    /// The entry at this offset is removed.
    Remove(usize),
    /// The entry at this offset gets this type.
    Type(usize, u8),
    /// `..` refers to this inode.
    Parent(u32),
    /// Only the checksum is wrong.
    Seal,
}

/// What mends a finding without another structure. `None` if nothing does.
fn edit(finding: &Finding) -> Option<Edit> {
    let code = finding.kind.code;
    let is = |kind: &cairn_check::Kind| kind.code == code;
    let at = || usize::try_from(finding.place.offset?).ok();
    let number = finding.computed.as_ref().and_then(Value::number);
    let removed = [&kinds::ENTRY_TARGET, &kinds::DIRECTORY_LINKED, &kinds::ENCRYPTION_NAME];
    if removed.iter().any(|kind| is(kind)) {
        return at().map(Edit::Remove);
    }
    if is(&kinds::ENTRY_TYPE) {
        return Some(Edit::Type(at()?, u8::try_from(number.unwrap_or(2)).ok()?));
    }
    if is(&kinds::DIRECTORY_PARENT) {
        return u32::try_from(number?).ok().map(Edit::Parent);
    }
    // A checksum that is missing has no room.
    let is_sum = is(&kinds::DIRECTORY_CHECKSUM) || is(&kinds::DIRECTORY_CHECKSUM_ONLY);
    (is_sum && number.is_some()).then_some(Edit::Seal)
}

fn one(mender: &Mender<'_>, ino: Ino, findings: &[&Finding]) -> Result<bool> {
    let Some(directory) = directory::open(mender.state, ino) else { return Ok(false) };
    let is_inline = directory.record.flags.contains(InodeFlags::INLINE_DATA);
    let mut edits: BTreeMap<u64, Vec<Edit>> = BTreeMap::new();
    for finding in findings {
        match edit(finding) {
            Some(Edit::Parent(parent)) if is_inline => {
                return mender.edit(ino, |record| {
                    if let Some(place) = record.block.first_chunk_mut() {
                        *place = parent.to_le_bytes();
                    }
                });
            }
            Some(edit) if !is_inline => {
                let block = finding.place.file_block.unwrap_or(0);
                edits.entry(block).or_default().push(edit);
            }
            _ => return rebuild::mend(mender, &directory),
        }
    }
    let is_indexed = directory.record.flags.contains(InodeFlags::INDEX)
        && mender.state.layout.features.compat(Compat::DIR_INDEX);
    let index = if is_indexed { htree::survey(&directory) } else { htree::Index::default() };
    let mut written = Vec::new();
    for (block, edits) in edits {
        match changed(&directory, block, index.role(block), &edits) {
            Some(done) => written.push(done),
            None => return rebuild::mend(mender, &directory),
        }
    }
    for (pba, bytes) in written {
        mender.write(pba, bytes)?;
    }
    Ok(true)
}

/// The block with its changes. `None` if one of them is not possible there.
fn changed(
    directory: &Directory<'_>,
    block: u64,
    role: Option<Role>,
    edits: &[Edit],
) -> Option<(Pba, Vec<u8>)> {
    let run = directory.runs.iter().find(|run| run.start <= block && block < run.end())?;
    let pba = Pba(run.pba.get().saturating_add(block.saturating_sub(run.start)));
    let mut bytes = directory.block(block)?;
    let format = &directory.format;
    for edit in edits {
        match edit {
            Edit::Remove(at) => remove_at(&mut bytes, 0..format.leaf_len(), format, *at).ok()?,
            Edit::Type(at, kind) => *bytes.get_mut(at.saturating_add(TYPE_AT))? = *kind,
            Edit::Parent(parent) => {
                let end = DOTDOT_AT.saturating_add(4);
                bytes.get_mut(DOTDOT_AT..end)?.copy_from_slice(&parent.to_le_bytes());
            }
            Edit::Seal => {}
        }
    }
    match role {
        Some(Role::Root) => seal_node(&mut bytes, NodeKind::Root, format),
        Some(Role::Inner) => seal_node(&mut bytes, NodeKind::Inner, format),
        Some(Role::Leaf(_)) | None => seal_leaf(&mut bytes, format),
    }
    Some((pba, bytes))
}
