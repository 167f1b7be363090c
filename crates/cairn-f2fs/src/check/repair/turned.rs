//! Entries whose number is wrong and leads to another inode, which has a name too many then, while
//! the right one lacks one.

use std::collections::BTreeSet;

use cairn_check::{Finding, Kind, Value};
use cairn_vfs::FileKind;

use super::super::kinds;
use super::edit::{Edit, ino_of};
use super::names::Found;
use crate::error::Result;
use crate::format::dentry::{Dentries, DentriesMut};
use crate::format::units::Nid;

/// Findings that speak of one name more or less, or follow from such an entry.
const NAMES: [&Kind; 4] =
    [&kinds::INODE_UNREACHABLE, &kinds::INODE_LINKS, &kinds::INODE_NAMES, &kinds::DIRECTORY_TYPE];

impl Edit<'_> {
    /// If one inode lacks a name, one has a name too many, and nothing else is wrong with names:
    /// the entry that is too many gets the number of the inode that lacks one, if a record shows
    /// which it is. False if this is not so.
    pub(super) fn turn_back(&mut self, findings: &[Finding]) -> Result<bool> {
        let is_other = |found: &Finding| !NAMES.iter().any(|kind| kind.code == found.kind.code);
        let (mut missing, mut excess) = (BTreeSet::new(), Vec::new());
        for finding in findings {
            if is_other(finding) {
                continue;
            }
            let Some(ino) = ino_of(&finding.place) else { continue };
            match difference(finding) {
                Some(1) => drop(missing.insert(ino)),
                Some(-1) => excess.push((ino, finding)),
                Some(_) => return Ok(false),
                None => {}
            }
        }
        let (Some(lacking), [(other, finding)], 1) = (missing.first(), &excess[..], missing.len())
        else {
            return Ok(false);
        };
        let (Some((record, _)), Some((present, _))) = (self.inode(*lacking)?, self.inode(*other)?)
        else {
            return Ok(false);
        };
        if [record.kind, present.kind].contains(&FileKind::Directory) {
            return Ok(false);
        }
        let found = self.find_names(&BTreeSet::from([*other]))?;
        let mut named = Vec::new();
        for entry in found {
            named.push((entry, self.name_in(entry)?));
        }
        let is = |recorded: &Option<(Nid, Vec<u8>)>, (entry, name): &(Found, Vec<u8>)| {
            recorded.as_ref().is_some_and(|(dir, own)| *dir == entry.dir && own == name)
        };
        let (right, own) = (self.recorded(*lacking)?, self.recorded(*other)?);
        let of_lacking = named.iter().filter(|one| is(&right, one));
        let mut turned: Vec<Found> = of_lacking.map(|(entry, _)| *entry).collect();
        if turned.is_empty() && present.links == 1 && named.iter().any(|one| is(&own, one)) {
            let others = named.iter().filter(|one| !is(&own, one));
            turned = others.map(|(entry, _)| *entry).collect();
        }
        let [entry] = turned[..] else { return Ok(false) };
        let Some(mut bytes) = self.dir_block(entry.dir, entry.block)? else { return Ok(false) };
        DentriesMut::new(&mut bytes).set_target(entry.slot, *lacking, record.kind);
        self.put_dir_block(entry.dir, entry.block, bytes)?;
        self.mended(finding);
        Ok(true)
    }

    /// The files with a name too many, if an inode lacks one: the number of an entry may be wrong,
    /// and nothing shows which.
    pub(super) fn in_doubt<'f>(&self, findings: &'f [Finding]) -> Vec<(Nid, &'f Finding)> {
        if !findings.iter().any(lacks_name) {
            return Vec::new();
        }
        let excess = findings.iter().filter(|found| difference(found).is_some_and(|one| one < 0));
        let named = excess.filter_map(|found| Some((ino_of(&found.place)?, found)));
        named.filter(|(ino, _)| self.has_too_many_names(*ino)).collect()
    }

    /// Does an inode have more names than it counts? A directory has one.
    pub(super) fn has_too_many_names(&self, ino: Nid) -> bool {
        self.context.nodes.inode(ino).is_some_and(|node| match node.kind() {
            Some(FileKind::Directory) => node.links() > 1,
            Some(_) => node.links() > node.other(),
            None => false,
        })
    }

    /// The name of an entry.
    pub(super) fn name_in(&self, found: Found) -> Result<Vec<u8>> {
        let bytes = self.dir_block(found.dir, found.block)?.unwrap_or_default();
        let entry = Dentries::new(&bytes).next(found.slot).and_then(|entry| entry.ok());
        Ok(entry.map(|entry| entry.name.to_vec()).unwrap_or_default())
    }
}

/// Does the finding say that an inode lacks a name?
pub(super) fn lacks_name(finding: &Finding) -> bool {
    difference(finding).is_some_and(|lacking| lacking > 0)
}

/// Names that an inode lacks. Negative if it has too many.
fn difference(finding: &Finding) -> Option<i64> {
    if finding.kind.code == kinds::INODE_UNREACHABLE.code {
        return Some(1);
    }
    if finding.place.field != Some("i_links") {
        return None;
    }
    match (&finding.stored, &finding.computed) {
        (Some(Value::Number(stored)), Some(Value::Number(computed))) => {
            i64::try_from(*stored).ok()?.checked_sub(i64::try_from(*computed).ok()?)
        }
        _ => None,
    }
}
