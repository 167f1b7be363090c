//! Names for inodes that lack one: that which they record, that in a free slot, or one in
//! `lost+found`.

use cairn_check::{Finding, Value};
use cairn_vfs::FileKind;

use super::super::kinds;
use super::super::last_names::Last;
use super::super::nodes::{DAMAGED, ORPHAN};
use super::edit::{Edit, ino_of};
use super::names::{DEPTH, Found};
use crate::error::Result;
use crate::form::names::Names;
use crate::format::dentry::{Dentries, DentriesMut};
use crate::format::inode::Advise;
use crate::format::units::Nid;

impl Edit<'_> {
    /// Gives an inode without a name one: its last one, if that is known, or one in `lost+found`,
    /// also if it may be a deleted one. False if it gets none: what nothing proves is a loss.
    /// `names` are those of directories that lead to themselves only.
    pub(super) fn reconnect(&mut self, finding: &Finding, names: &[Found]) -> Result<bool> {
        let Some(ino) = ino_of(&finding.place) else { return Ok(false) };
        let Some((record, _)) = self.inode(ino)? else { return Ok(false) };
        let is_cycle = finding.kind.code == kinds::DIRECTORY_CYCLE.code;
        let has_none = is_cycle || self.freed.contains(&ino);
        let last = if has_none { Last::default() } else { self.context.last_names.of(ino) };
        let recorded = if has_none { None } else { self.recorded(ino)? };
        if let Some((parent, name)) = &recorded
            && record.kind != FileKind::Directory
            && self.turn_entry(*parent, name, (ino, record.kind))?
        {
            self.mended(finding);
            return Ok(true);
        }
        let known = match (last.slot, recorded) {
            (Some(slot), _) => Some((slot.dir, slot.name, Some(slot.hash))),
            (None, recorded) => recorded.map(|(parent, name)| (parent, name, None)),
        };
        // The directory may get its name in this round.
        if known.as_ref().is_some_and(|(parent, ..)| self.lacks_way(*parent, ino)) {
            return Ok(false);
        }
        let own = match known {
            Some(known) => self.usable(ino, known)?,
            None => None,
        };
        let is_lost = !has_none && (last.is_lost || own.is_none());
        if is_lost && !self.may_lose() {
            return Ok(false);
        }
        if own.is_none() && matches!(self.names_of(Nid::ROOT)?, Some(Names::Encrypted { .. })) {
            return Ok(false);
        }
        if is_cycle {
            for found in names.iter().filter(|found| found.ino == ino) {
                self.remove(*found)?;
            }
        }
        let is_found = own.is_none();
        let place = match own {
            Some(own) => Some(own),
            None => self.found_place(ino)?,
        };
        let Some((parent, name, hash)) = place else { return Ok(false) };
        if !self.insert_hashed(parent, (&name, hash), ino, record.kind)? {
            return Ok(false);
        }
        if record.kind == FileKind::Directory {
            self.change(parent, |record| record.links = record.links.saturating_add(1))?;
            self.set_parent(ino, parent)?;
        }
        self.change(ino, |record| {
            (record.pino, record.name) = (parent, name.as_slice().into());
            record.advise.remove(Advise::LOST_PINO | Advise::ENC_NAME);
        })?;
        if is_cycle {
            self.lost((finding.kind, finding.place.clone()), ino, "the name");
        } else if is_lost {
            let (from, name) = match is_found {
                true => (&record.name[..], "the name; it may have been"),
                false => (&name[..], "the name, if it was another than"),
            };
            let what = format!("{name} {}", String::from_utf8_lossy(from));
            self.lost((&kinds::INODE_NAME, finding.place.clone()), ino, &what);
        } else {
            self.mended(finding);
        }
        Ok(true)
    }

    /// The name of an inode in `lost+found`.
    fn found_place(&mut self, ino: Nid) -> Result<Option<(Nid, Vec<u8>, u32)>> {
        let (parent, name) = (self.lost_found()?, format!("#{ino}").into_bytes());
        let hash = self.names_of(parent)?.and_then(|names| names.hash_of_new(&name));
        Ok(hash.map(|hash| (parent, name, hash)))
    }

    /// The directory, the name and its hash, if the inode can have that name.
    fn usable(
        &self,
        ino: Nid,
        (parent, name, hash): (Nid, Vec<u8>, Option<u32>),
    ) -> Result<Option<(Nid, Vec<u8>, u32)>> {
        if !self.is_below_root(parent, ino) {
            return Ok(None);
        }
        let names = self.names_of(parent)?;
        let hash = hash.or_else(|| names.and_then(|names| names.hash_of_new(&name)));
        let is_new = self.lookup(parent, &name)?.is_none();
        Ok(hash.filter(|_| is_new).map(|hash| (parent, name, hash)))
    }

    /// Does the way up from a directory end at another one without a name?
    fn lacks_way(&self, dir: Nid, ino: Nid) -> bool {
        let mut at = dir;
        for _ in 0..DEPTH {
            let node = self.context.nodes.inode(at);
            let Some(node) = node.filter(|node| node.kind() == Some(FileKind::Directory)) else {
                return false;
            };
            if at == Nid::ROOT || at == ino {
                return false;
            }
            if node.links() == 0 {
                return !node.is(ORPHAN) && !node.is(DAMAGED);
            }
            at = Nid(node.other());
        }
        false
    }

    /// The name that an inode without names records may lead to another inode, which has more names
    /// than it counts and records another one: then the entry has a wrong number. It gets that of
    /// the inode without names. False if this is not so.
    fn turn_entry(&self, dir: Nid, name: &[u8], to: (Nid, FileKind)) -> Result<bool> {
        let Some(other) = self.lookup(dir, name)? else { return Ok(false) };
        let has_too_many = self.context.nodes.inode(other).is_some_and(|node| {
            let is_file = node.kind().is_some_and(|kind| kind != FileKind::Directory);
            is_file && node.links() > node.other()
        });
        let has_other =
            self.recorded(other)?.is_some_and(|(parent, own)| (parent, &own[..]) != (dir, name));
        if !has_too_many || !has_other {
            return Ok(false);
        }
        for block in self.dir_blocks(dir)? {
            let Some(mut bytes) = self.dir_block(dir, block)? else { continue };
            let mut entries = Dentries::new(&bytes).iter().flatten();
            let found = entries.find(|entry| entry.ino == other && entry.name == name);
            let slot = found.map(|entry| entry.slot);
            drop(entries);
            if let Some(slot) = slot {
                DentriesMut::new(&mut bytes).set_target(slot, to.0, to.1);
                self.put_dir_block(dir, block, bytes)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives an inode with too few names the one that it records, if that is missing. False if it
    /// is there.
    pub(super) fn restore_name(&mut self, finding: &Finding) -> Result<bool> {
        let is_count = finding.place.field == Some("i_links");
        let Some(ino) = ino_of(&finding.place).filter(|_| is_count) else { return Ok(false) };
        let Some((record, _)) = self.inode(ino)? else { return Ok(false) };
        let is_missing = match (&finding.stored, &finding.computed) {
            (Some(Value::Number(stored)), Some(Value::Number(found))) => stored > found,
            _ => false,
        };
        if is_missing
            && record.kind != FileKind::Directory
            && let Some((parent, name)) = self.recorded(ino)?
            && self.is_below_root(parent, ino)
            && self.lookup(parent, &name)?.is_none()
            && self.insert(parent, &name, ino, record.kind)?
        {
            self.mended(finding);
            return Ok(true);
        }
        Ok(false)
    }

    /// Gives an inode with too few names the one that it records, if that is missing; else it has
    /// lost names.
    pub(super) fn mend_names(&mut self, finding: &Finding) -> Result<bool> {
        if self.restore_name(finding)? {
            return Ok(true);
        }
        let Some(ino) = ino_of(&finding.place) else { return Ok(false) };
        let Some((record, _)) = self.inode(ino)? else { return Ok(false) };
        let Some(Value::Number(found)) = finding.computed else { return Ok(false) };
        let found = u32::try_from(found).unwrap_or(u32::MAX);
        let done = self.change(ino, |record| record.links = found)?;
        if done {
            let lost = record.links.saturating_sub(found);
            let what = format!("{lost} of {} names", record.links);
            self.lost((finding.kind, finding.place.clone()), ino, &what);
        }
        Ok(done)
    }
}
