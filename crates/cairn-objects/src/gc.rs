//! Removing objects that no volume needs. docs/object-volumes.md says why none is removed that
//! somebody needs.

use std::collections::{HashMap, HashSet};

use cairn_block::{Error, ErrorKind, Result};

use crate::format::ObjectId;
use crate::format::data::HEADER;
use crate::format::id::{LOG, MAP, MapId, VOLUMES};
use crate::format::manifest::{Manifest, Replay};
use crate::opening::{damaged, find_manifest, has_changed, load_map};
use crate::requests::Requests;
use crate::store;
use crate::store::Tag;

/// How often the list of manifests may change while it is read.
const MOST_CHANGES: u32 = 20;

/// What a gc has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that killed processes had not finished, in a directory. They are no objects.
    pub unfinished: u64,
}

/// The names of a pool's volumes.
pub(crate) fn volume_names(requests: &Requests) -> Result<Vec<String>> {
    let listed = requests.list(VOLUMES, None)?;
    let names = listed.iter().filter_map(|listed| listed.name.strip_prefix(VOLUMES));
    Ok(names.map(str::to_owned).collect())
}

/// The manifest of a volume that may be removed meanwhile.
fn manifest(requests: &Requests, volume: &str) -> Result<Option<(Manifest, Tag)>> {
    match find_manifest(requests, volume) {
        // It was removed after the list was made.
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        found => found?.map(Some).map_err(|corrupt| {
            let mut error = Error::from(corrupt);
            error.detail += &format!(
                "; nothing is removed meanwhile, because it may need any object: to give that \
                 volume up, cairn gc --force --remove {volume}"
            );
            error
        }),
    }
}

/// What manifests need.
#[derive(Default)]
pub(crate) struct Needs {
    objects: HashSet<ObjectId>,
    maps: HashSet<MapId>,
    logs: HashSet<Replay>,
    /// The volumes, with epoch and generation of the manifests that were read.
    volumes: HashMap<u64, (u32, u64)>,
}

impl Needs {
    fn add(&mut self, requests: &Requests, manifest: &Manifest) -> Result<()> {
        let map = load_map(requests, manifest)?;
        self.objects.extend(map.objects().map(|(id, ..)| id));
        self.maps.extend(manifest.map.iter().map(|part| part.name.0));
        self.logs.extend(&manifest.replay);
        self.volumes.insert(manifest.id, (manifest.epoch, manifest.generation));
        Ok(())
    }

    /// True if a map has this object, or a log may.
    pub(crate) fn needs(&self, id: &ObjectId) -> bool {
        let in_log = |log: &Replay| {
            (log.id, log.epoch) == (id.log, id.epoch)
                && log.from <= id.sequence
                && log.to.is_none_or(|to| id.sequence < to)
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
        for name in volume_names(requests)? {
            let Some((manifest, tag)) = manifest(requests, &name)? else { continue };
            if needs.volumes.contains_key(&manifest.id) {
                continue;
            }
            new = true;
            match needs.add(requests, &manifest) {
                // Its writer has written a checkpoint, and somebody has removed the old map.
                Err(error)
                    if error.kind == ErrorKind::NotFound && has_changed(requests, &name, &tag)? => {
                }
                added => added.map_err(damaged)?,
            }
        }
        if !new {
            return Ok(needs);
        }
    }
    let detail = "the volumes of the pool change faster than they can be read: try again later";
    Err(Error::new(ErrorKind::InUse, "gc", detail))
}

/// What volumes of other names need.
pub(crate) fn needed_by_others(requests: &Requests, volume: &str) -> Result<Needs> {
    let mut needs = Needs::default();
    for name in volume_names(requests)? {
        if name != volume
            && let Some((manifest, _)) = manifest(requests, &name)?
        {
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
    let unfinished = requests.sweep()?;
    let mut collected = Collected { unfinished, ..Collected::default() };
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
