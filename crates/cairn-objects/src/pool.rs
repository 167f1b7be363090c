//! [`Pool`]: what the volumes of a store share. Copies of volumes, and removing objects that none
//! needs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use cairn_base::runtime::Runtime;
use cairn_block::{Error, ErrorKind, Result};

use crate::address::check_name;
use crate::format::data::{self, Found, HEADER};
use crate::format::id::{LOG, MAP, MapId, VOLUMES};
use crate::format::manifest::{self, Manifest, Replay};
use crate::format::{Corrupt, ObjectId, SECTOR};
use crate::opening::{follow, list_log, load_map, read_manifest};
use crate::process::has_ended;
use crate::requests::{Created, Requests};
use crate::store::{self, Store, Tag};

/// How often a manifest or the list of them may change while it is read.
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

/// What [`Pool::gc`] has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
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

    /// The volumes and snapshots, by name.
    ///
    /// # Errors
    /// The store, or a damaged manifest.
    pub fn volumes(&self) -> Result<Vec<Listing>> {
        let mut found = Vec::new();
        for (name, manifest) in manifests(&self.requests)? {
            let Manifest { size, read_only, writer, .. } = manifest;
            let writer = writer.map(|writer| (writer.host, writer.pid));
            found.push(Listing { name, size, read_only, writer });
        }
        Ok(found)
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

    /// Copies a volume under a new name. The copy has what the source has flushed. Both share
    /// objects, so it takes as long for a large volume as for a small one.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such volume, [`ErrorKind::InUse`] if the new name is
    /// taken; the store.
    pub fn copy(&self, from: &str, to: &str, kind: Copy) -> Result<()> {
        let operation = match kind {
            Copy::Snapshot => "snapshot",
            Copy::Clone => "clone",
        };
        check_name(to)
            .map_err(|bad| refused(ErrorKind::Unsupported, operation, bad.to_string()))?;
        let id = self.requests.runtime().random();
        let (source, tag) = read_manifest(&self.requests, from)?;
        let copy = self.copy_of(&source, id, kind)?;
        let name = manifest::name(to);
        if self.requests.create(&name, &[copy.encode()])? == Created::Theirs {
            let detail = format!("there is a volume {to}: choose another name, or remove it");
            return Err(refused(ErrorKind::InUse, operation, detail));
        }
        let settled = self.settle((from, tag), (to, copy), kind);
        if settled.is_err() {
            // An incomplete copy is not opened; it need not stay, either.
            let _ = self.requests.delete(&name);
        }
        settled
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
            let (now, its_tag) = read_manifest(&self.requests, from)?;
            let generation = copy.generation + 1;
            let settled = its_tag == tag;
            if settled {
                copy.incomplete = false;
            } else {
                tag = its_tag;
                // Another volume for a gc that has read it as it was.
                copy = self.copy_of(&now, self.requests.runtime().random(), kind)?;
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

    /// The manifest of a copy, incomplete, with logs that end where they end now.
    fn copy_of(&self, source: &Manifest, id: u64, kind: Copy) -> Result<Manifest> {
        complete(source, "copy")?;
        let mut replay = Vec::new();
        for log in &source.replay {
            let objects = list_log(&self.requests, log)?.len() as u64;
            let to = log.from + objects;
            if log.to.is_some_and(|end| to < end) {
                let id = ObjectId { log: log.id, epoch: log.epoch, sequence: to };
                return Err(Corrupt::new(id, "is missing").into());
            }
            if objects > 0 {
                replay.push(Replay { to: Some(to), ..*log });
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

    /// Removes a volume or a snapshot. Its objects stay until [`Pool::gc`].
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InUse`] if a writer has it open, unless that process
    /// has ended on this machine, or `force` is set; the store.
    pub fn remove(&self, volume: &str, force: bool) -> Result<()> {
        // A damaged one can be removed, too.
        if let (manifest, false) = (read_manifest(&self.requests, volume), force)
            && let Some(writer) = manifest?.0.writer.filter(|writer| !has_ended(writer))
        {
            let detail = format!(
                "the volume {volume} is open for writing on {} (process {}): unmount it there",
                writer.host, writer.pid
            );
            return Err(refused(ErrorKind::InUse, "remove", detail));
        }
        Ok(self.requests.delete(&manifest::name(volume))?)
    }

    /// Reads all data objects that a volume needs, and compares their checksums. Returns how many
    /// there are, and what is wrong with the damaged ones.
    ///
    /// # Errors
    /// The store; a damaged manifest, map or log, without which the objects are not known.
    pub fn verify(&self, volume: &str) -> Result<(u64, Vec<String>)> {
        let (manifest, _) = read_manifest(&self.requests, volume)?;
        let mut map = load_map(&self.requests, &manifest)?;
        for log in &manifest.replay {
            follow(&self.requests, &mut map, log, manifest.size / SECTOR, None)?;
        }
        let (mut read, mut damaged) = (0, Vec::new());
        for (id, length, _) in map.objects() {
            read += 1;
            let object = match self.requests.get(&id.to_string()) {
                Err(error) if error.kind == store::ErrorKind::Missing => {
                    damaged.push(error.to_string());
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
    /// The store; a damaged manifest or map, because nobody knows what it needs.
    pub fn gc(&self) -> Result<Collected> {
        collect(&self.requests)
    }
}

/// Refuses copies that were not finished.
pub(crate) fn complete(manifest: &Manifest, operation: &str) -> Result<()> {
    if manifest.incomplete {
        let detail = "it is a copy that was not finished: remove it, and copy again";
        return Err(refused(ErrorKind::Unsupported, operation, detail));
    }
    Ok(())
}

/// The manifests of a pool, by the volumes' names.
fn manifests(requests: &Requests) -> Result<BTreeMap<String, Manifest>> {
    let mut found = BTreeMap::new();
    for listed in requests.list(VOLUMES, None)? {
        let Some(name) = listed.name.strip_prefix(VOLUMES) else { continue };
        match read_manifest(requests, name) {
            // It was removed after the list was made.
            Err(error) if error.kind == ErrorKind::NotFound => {}
            manifest => drop(found.insert(name.to_owned(), manifest?.0)),
        }
    }
    Ok(found)
}

/// What manifests need.
#[derive(Default)]
pub(crate) struct Needs {
    objects: HashSet<ObjectId>,
    maps: HashSet<MapId>,
    logs: HashSet<(u64, u32, u64, Option<u64>)>,
    /// The volumes, with epoch and generation of the manifests that were read.
    volumes: HashMap<u64, (u32, u64)>,
}

impl Needs {
    fn add(&mut self, requests: &Requests, manifest: &Manifest) -> Result<()> {
        let map = load_map(requests, manifest)?;
        self.objects.extend(map.objects().map(|(id, ..)| id));
        self.maps.extend(manifest.map.iter().map(|part| part.name.0));
        let logs = manifest.replay.iter();
        self.logs.extend(logs.map(|log| (log.id, log.epoch, log.from, log.to)));
        self.volumes.insert(manifest.id, (manifest.epoch, manifest.generation));
        Ok(())
    }

    /// True if a map has this object, or a log may.
    pub(crate) fn needs(&self, id: &ObjectId) -> bool {
        let in_log = |(log, epoch, from, to): &(u64, u32, u64, Option<u64>)| {
            (*log, *epoch) == (id.log, id.epoch)
                && *from <= id.sequence
                && to.is_none_or(|to| id.sequence < to)
        };
        self.objects.contains(id) || self.logs.iter().any(in_log)
    }
}

/// Reads what the manifests need, until there is none that was not read. A manifest that a copy
/// needs as it was is seen, or the copy sees that it has changed: docs/object-volumes.md.
fn needs(requests: &Requests) -> Result<Needs> {
    let mut needs = Needs::default();
    for _ in 0..MOST_CHANGES {
        let mut new = false;
        for manifest in manifests(requests)?.values() {
            if !needs.volumes.contains_key(&manifest.id) {
                match needs.add(requests, manifest) {
                    // Its writer has written a checkpoint, and somebody has removed the old map.
                    Err(error) if error.kind == ErrorKind::NotFound => {}
                    added => added?,
                }
                new = true;
            }
        }
        if !new {
            return Ok(needs);
        }
    }
    let detail = "the volumes of the pool change faster than they can be read: try again later";
    Err(refused(ErrorKind::InUse, "gc", detail))
}

/// What volumes of other names need.
pub(crate) fn needed_by_others(requests: &Requests, volume: &str) -> Result<Needs> {
    let mut needs = Needs::default();
    for (name, manifest) in manifests(requests)? {
        if name != volume {
            needs.add(requests, &manifest)?;
        }
    }
    Ok(needs)
}

/// Removes what no manifest needs.
pub(crate) fn collect(requests: &Requests) -> Result<Collected> {
    let logs = requests.list(LOG, None)?;
    let maps = requests.list(MAP, None)?;
    let needs = needs(requests)?;
    let mut collected = Collected::default();
    let mut remove = |listed: &store::Listed| {
        requests.delete(&listed.name)?;
        collected.objects += 1;
        collected.bytes += listed.size;
        Ok::<(), store::Error>(())
    };
    for listed in &logs {
        let Some(id) = ObjectId::parse(&listed.name) else { continue };
        // A fence stands for ever: a PUT that was sent long ago must not succeed.
        let fence = listed.size < HEADER as u64 && needs.volumes.contains_key(&id.log);
        if !fence && !needs.needs(&id) {
            remove(listed)?;
        }
    }
    for listed in &maps {
        let Some(id) = MapId::parse(&listed.name) else { continue };
        let read = needs.volumes.get(&id.log);
        let coming = read.is_some_and(|read| (id.epoch, id.generation) > *read);
        if !coming && !needs.maps.contains(&id) {
            remove(listed)?;
        }
    }
    Ok(collected)
}
