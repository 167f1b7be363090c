//! [`Pool`]: what the volumes of a store share. Copies of volumes, and removing objects that none
//! needs.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::runtime::Runtime;
use cairn_block::{Error, ErrorKind, Result};

use crate::address::check_name;
use crate::format::data::{self, Found};
use crate::format::manifest::{self, Manifest, Replay};
use crate::format::{Corrupt, SECTOR};
use crate::gc::{self, must_exist, volume_names};
use crate::map::Map;
use crate::marks;
use crate::older_manifest;
use crate::opening::{
    Followed, check_map, damaged, find_manifest, follow, has_changed, load_map, read_manifest,
};
use crate::process::has_ended;
use crate::requests::{Created, Requests};
use crate::store::{self, Store, Stranger, Tag};

pub use crate::gc::Collected;

/// Most volumes that an error names.
const MOST_NAMED: usize = 10;
/// How often a manifest may change while it is read.
const MOST_CHANGES: u32 = 20;

/// The volumes of a store.
pub struct Pool {
    requests: Requests,
}

/// What a copy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// It never changes.
    Snapshot,
    /// It is written like its source.
    Clone,
}

/// A volume of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Its name.
    pub name: String,
    /// Bytes of the disk.
    pub size: u64,
    /// A snapshot.
    pub read_only: bool,
    /// Host and process of the writer that has it open, or had when it died.
    pub writer: Option<(String, u32)>,
}

/// A volume that is in the list, and cannot be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Its name.
    pub name: String,
    /// What is wrong with its manifest.
    pub error: Error,
}

fn refused(kind: ErrorKind, operation: &str, detail: impl Into<String>) -> Error {
    Error::new(kind, operation, detail)
}

impl Pool {
    /// The pool in a store. Requests are repeated for `patience`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, runtime: Arc<dyn Runtime>, patience: Duration) -> Self {
        Self { requests: Requests::new(store, runtime, patience) }
    }

    /// The volumes and snapshots, by name, and those whose manifests cannot be read.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if nobody has made a volume in the store; the store.
    pub fn volumes(&self) -> Result<(Vec<Listing>, Vec<Unreadable>)> {
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        let names = volume_names(&self.requests)?;
        if names.is_empty() {
            must_exist(&self.requests)?;
        }
        for name in marks::lost(&self.requests, &names)? {
            let error = marks::error(&name, "open");
            unreadable.push(Unreadable { name, error });
        }
        for name in names {
            match find_manifest(&self.requests, &name) {
                // It was removed after the list was made.
                Err(error) if error.kind == ErrorKind::NotFound => {}
                Err(error) if error.kind == ErrorKind::PermissionDenied => {
                    unreadable.push(Unreadable { name, error });
                }
                manifest => match manifest? {
                    Ok((Manifest { size, read_only, writer, .. }, _)) => {
                        let writer = writer.map(|writer| (writer.host, writer.pid));
                        found.push(Listing { name, size, read_only, writer });
                    }
                    Err(corrupt) => unreadable.push(Unreadable { name, error: corrupt.into() }),
                },
            }
        }
        Ok((found, unreadable))
    }

    /// What lies in the pool and belongs to no volume, such as links of other users. It is left
    /// alone.
    ///
    /// # Errors
    /// The store.
    pub fn strangers(&self) -> Result<Vec<Stranger>> {
        gc::strangers(&self.requests)
    }

    /// Whether there is a volume of this name, whole or not.
    ///
    /// # Errors
    /// The store.
    pub fn exists(&self, volume: &str) -> Result<bool> {
        match self.requests.get(&manifest::name(volume)) {
            Err(error) if error.kind == store::ErrorKind::Missing => Ok(false),
            found => Ok(found.map(|_| true)?),
        }
    }

    /// Removes volumes whose names begin so and end in their IDs, if their writers were on this
    /// machine and have ended.
    ///
    /// # Errors
    /// The store.
    pub fn remove_abandoned(&self, begin: &str) -> Result<()> {
        let names = volume_names(&self.requests)?;
        for name in names.iter().filter(|name| name.starts_with(begin)) {
            let manifest = match find_manifest(&self.requests, name) {
                // Another process has removed it.
                Err(error) if error.kind == ErrorKind::NotFound => continue,
                found => found?,
            };
            let is_abandoned = |of: &Manifest| {
                let is_meant = *name == format!("{begin}{:016x}", of.id);
                is_meant && of.writer.as_ref().is_some_and(has_ended)
            };
            if manifest.is_ok_and(|(manifest, _)| is_abandoned(&manifest)) {
                self.delete(name)?;
            }
        }
        Ok(())
    }

    /// Copies a volume under a new name. The copy has what the source has flushed. Both share
    /// objects, so it takes as long for a large volume as for a small one.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such volume, [`ErrorKind::Exists`] if the new name is
    /// taken, [`ErrorKind::InUse`] if a writer that has ended has left a local log; the store.
    pub fn copy(&self, from: &str, to: &str, kind: Copy) -> Result<()> {
        let operation = match kind {
            Copy::Snapshot => "snapshot",
            Copy::Clone => "clone",
        };
        check_name(to)
            .map_err(|bad| refused(ErrorKind::Unsupported, operation, bad.to_string()))?;
        let id = self.requests.runtime().random();
        let (copy, tag) = self.copied(from, id, kind)?;
        let name = manifest::name(to);
        if self.requests.create(&name, &[copy.encode()])? == Created::Theirs {
            let detail = format!("there is a volume {to}: choose another name, or remove it");
            return Err(refused(ErrorKind::Exists, operation, detail));
        }
        let settled = self.settle((from, tag), (to, copy), kind);
        if settled.is_err() {
            // An incomplete copy is not opened; it need not stay, either.
            let _ = self.requests.delete(&name);
        }
        settled.and_then(|()| marks::set(&self.requests, to, operation))
    }

    /// Finishes a copy of a source that does not change meanwhile: no gc has missed both.
    fn settle(
        &self,
        (from, mut tag): (&str, Tag),
        (to, mut copy): (&str, Manifest),
        kind: Copy,
    ) -> Result<()> {
        let operation = "copy";
        let name = manifest::name(to);
        for _ in 0..MOST_CHANGES {
            let (_, copied) = read_manifest(&self.requests, to)?;
            let generation = copy.generation + 1;
            let settled = !has_changed(&self.requests, from, &tag)?;
            if settled {
                copy.incomplete = false;
            } else {
                // Another volume for a gc that has read it as it was.
                let id = self.requests.runtime().random();
                (copy, tag) = self.copied(from, id, kind)?;
            }
            copy.generation = generation;
            if self.requests.replace(&name, &copy.encode(), &copied)?.is_none() {
                let detail = format!("somebody else has changed {to}: try again");
                return Err(refused(ErrorKind::InUse, operation, detail));
            }
            if settled {
                return Ok(());
            }
        }
        let detail = format!("{from} changes faster than it can be copied: try again later");
        Err(refused(ErrorKind::InUse, operation, detail))
    }

    /// The manifest of a copy, incomplete, and the tag of the source's.
    fn copied(&self, from: &str, id: u64, kind: Copy) -> Result<(Manifest, Tag)> {
        self.with_manifest(from, |source| self.copy_of(source, id, kind))
    }

    /// Does something with a volume's manifest. Again, if an object that it needs is gone because
    /// the manifest has changed meanwhile.
    fn with_manifest<T>(
        &self,
        volume: &str,
        work: impl Fn(&Manifest) -> Result<T>,
    ) -> Result<(T, Tag)> {
        for _ in 0..MOST_CHANGES {
            let (manifest, tag) = read_manifest(&self.requests, volume)?;
            let newest = older_manifest::refuse(&self.requests, volume, &manifest);
            match newest.and_then(|()| work(&manifest)) {
                Err(error)
                    if error.kind == ErrorKind::NotFound
                        && has_changed(&self.requests, volume, &tag)? => {}
                done => return done.map(|done| (done, tag)).map_err(damaged),
            }
        }
        let detail = format!("{volume} changes faster than it can be read: try again later");
        Err(refused(ErrorKind::InUse, "read the volume", detail))
    }

    /// The manifest of a copy, incomplete, with logs that end where they end now. What it refers to
    /// can be read.
    fn copy_of(&self, source: &Manifest, id: u64, kind: Copy) -> Result<Manifest> {
        complete(source, "copy")?;
        let ended = source.writer.as_ref().filter(|writer| has_ended(writer));
        if let Some(log) = ended.and_then(|writer| writer.log.as_ref()) {
            let detail = format!(
                "its writer has ended, and its local log {log} may have flushed writes that the \
                 store lacks: open the volume with ?log={log}, then copy it"
            );
            return Err(refused(ErrorKind::InUse, "copy", detail));
        }
        check_map(&self.requests, source)?;
        let (mut replay, sectors) = (Vec::new(), source.size / SECTOR);
        for log in &source.replay {
            let mut map = Map::default();
            let Followed { objects, .. } =
                follow(&self.requests, &mut map, (log, 0), sectors, None)?;
            if objects > 0 {
                replay.push(Replay { to: Some(log.from + objects), recorded: 0, ..*log });
            }
        }
        Ok(Manifest {
            id,
            epoch: 0,
            generation: 0,
            writer: None,
            read_only: kind == Copy::Snapshot,
            incomplete: true,
            replay,
            ..source.clone()
        })
    }

    /// Refuses a name under which [`Pool::replace`] would replace nothing. One that no volume has
    /// is not refused.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`] if it is that of a snapshot, [`ErrorKind::InUse`] if a writer has
    /// the volume open; a damaged manifest; the store.
    pub fn may_replace(&self, volume: &str) -> Result<()> {
        match read_manifest(&self.requests, volume) {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            found => replaceable(&found?.0, volume),
        }
    }

    /// Gives a volume the contents of another of the pool, with one PUT: it has its old contents
    /// or the new ones. Both share objects afterwards; those that only the old contents need stay
    /// until [`Pool::gc`].
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if one of them is not there; [`ErrorKind::ReadOnly`] if the volume
    /// is a snapshot; [`ErrorKind::InUse`] if a writer has one open, or another changes the volume
    /// meanwhile; the store.
    pub fn replace(&self, from: &str, to: &str) -> Result<()> {
        let (old, tag) = read_manifest(&self.requests, to)?;
        replaceable(&old, to)?;
        let id = self.requests.runtime().random();
        let (copy, _) = self.copied(from, id, Copy::Clone)?;
        // A gc that does not see this manifest has seen the source's: that stays until now.
        let copy = Manifest { incomplete: false, ..copy };
        if self.requests.replace(&manifest::name(to), &copy.encode(), &tag)?.is_some() {
            return Ok(());
        }
        let detail = format!("somebody else has changed {to}: try again");
        Err(refused(ErrorKind::InUse, "replace", detail))
    }

    /// Removes a volume or a snapshot. Its objects stay until [`Pool::gc`].
    ///
    /// # Errors
    /// As [`Pool::remove_all`].
    pub fn remove(&self, volume: &str, force: bool) -> Result<()> {
        self.remove_all(&[volume.to_owned()], force)
    }

    /// Removes volumes and snapshots: all of them, or none if one cannot be removed. Their objects
    /// stay until [`Pool::gc`].
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InUse`] if a writer has one open, unless that process
    /// has ended on this machine, or `force` is set; the store, which may fail after the first are
    /// removed.
    pub fn remove_all(&self, volumes: &[String], force: bool) -> Result<()> {
        for volume in volumes {
            self.may_remove(volume, force)?;
        }
        volumes.iter().try_for_each(|volume| self.delete(volume))
    }

    fn delete(&self, volume: &str) -> Result<()> {
        marks::clear(&self.requests, volume)?;
        Ok(self.requests.delete(&manifest::name(volume))?)
    }

    /// Refuses what cannot be removed.
    fn may_remove(&self, volume: &str, force: bool) -> Result<()> {
        let operation = "remove";
        check_name(volume)
            .map_err(|bad| refused(ErrorKind::Unsupported, operation, bad.to_string()))?;
        match find_manifest(&self.requests, volume) {
            // One that is damaged or cannot be read can be removed, too.
            Err(error) if force && error.kind == ErrorKind::PermissionDenied => Ok(()),
            Err(error) if error.kind == ErrorKind::NotFound => {
                match marks::is_lost(&self.requests, volume)? {
                    true if force => Ok(()),
                    true => Err(marks::error(volume, operation)),
                    false => Err(self.not_there(volume)?),
                }
            }
            found if force => found.map(drop),
            found => unused(&found??.0, volume, operation),
        }
    }

    /// The error for a name that no volume has. It says which there are.
    fn not_there(&self, volume: &str) -> Result<Error> {
        let names = volume_names(&self.requests)?;
        if names.is_empty() {
            must_exist(&self.requests)?;
        }
        let more = if names.len() > MOST_NAMED { ", …" } else { "" };
        let named = names.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<_>>();
        let there = match &named[..] {
            [] => "the pool has none".to_owned(),
            all => format!("the pool has {}{more}", all.join(", ")),
        };
        let detail = format!("there is no volume {volume}: {there}");
        Ok(refused(ErrorKind::NotFound, "remove", detail))
    }

    /// Reads all data objects that a volume needs, and compares their checksums. Returns how many
    /// there are, and what is wrong with the damaged ones.
    ///
    /// # Errors
    /// The store; a damaged manifest, map or log, without which the objects are not known.
    pub fn verify(&self, volume: &str) -> Result<(u64, Vec<String>)> {
        let (map, _) = self.with_manifest(volume, |manifest| {
            let mut map = load_map(&self.requests, manifest)?;
            for log in &manifest.replay {
                follow(&self.requests, &mut map, (log, 0), manifest.size / SECTOR, None)?;
            }
            Ok(map)
        })?;
        let (mut read, mut damaged) = (0, Vec::new());
        for (id, length, _) in map.objects() {
            read += 1;
            let object = match self.requests.get(&id.to_string()) {
                Err(error) if error.kind == store::ErrorKind::Missing => {
                    damaged.push(Corrupt::new(id, "is missing").to_string());
                    continue;
                }
                object => object?,
            };
            let verified = match data::decode(id, &object.bytes, object.bytes.len() as u64) {
                Ok(Found::Data(index)) if index.length == length => index.verify(id, &object.bytes),
                Ok(_) => Err(Corrupt::new(id, format!("has not the {length} bytes of the map"))),
                Err(corrupt) => Err(corrupt),
            };
            damaged.extend(verified.err().map(|corrupt| corrupt.to_string()));
        }
        Ok((read, damaged))
    }

    /// Removes objects that no volume needs. Volumes may be in use meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if nobody has made a volume in the store; the store; a damaged
    /// manifest or map, because nobody knows what it needs.
    pub fn gc(&self) -> Result<Collected> {
        gc::collect(&self.requests)
    }
}

/// Refuses a volume that must keep its contents.
fn replaceable(manifest: &Manifest, volume: &str) -> Result<()> {
    let operation = "replace";
    if manifest.read_only {
        let detail = format!(
            "{volume} is a snapshot, which never changes: choose another name, or remove it first"
        );
        return Err(refused(ErrorKind::ReadOnly, operation, detail));
    }
    unused(manifest, volume, operation)
}

/// Refuses a volume that a writer has open.
fn unused(manifest: &Manifest, volume: &str, operation: &str) -> Result<()> {
    let writer = manifest.writer.as_ref().filter(|writer| !has_ended(writer));
    let Some(writer) = writer else { return Ok(()) };
    let detail = format!(
        "the volume {volume} is open for writing on {} (process {}): unmount it there",
        writer.host, writer.pid
    );
    Err(refused(ErrorKind::InUse, operation, detail))
}

/// Refuses copies that were not finished.
pub(crate) fn complete(manifest: &Manifest, operation: &str) -> Result<()> {
    if manifest.incomplete {
        let detail = "it is a copy that was not finished: remove it, and copy again";
        return Err(refused(ErrorKind::Unsupported, operation, detail));
    }
    Ok(())
}
