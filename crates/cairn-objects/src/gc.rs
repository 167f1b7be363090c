//! Removing objects that no volume needs. docs/object-volumes.md says why none is removed that
//! somebody needs.

use std::collections::{HashMap, HashSet};

use cairn_block::{Error, ErrorKind, Result};

use crate::address::check_name;
use crate::format::ObjectId;
use crate::format::data::HEADER;
use crate::format::id::{LOG, MAP, MapId, VOLUMES};
use crate::format::manifest::{Manifest, Replay};
use crate::marks;
use crate::older_manifest;
use crate::opening::{damaged, find_manifest, has_changed, load_map};
use crate::requests::Requests;
use crate::store::{self, Stranger, Tag};

/// How often the list of manifests may change while it is read.
const MOST_CHANGES: u32 = 20;

/// What a gc has removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that killed processes had not finished, in a directory. They are no objects.
    pub unfinished: u64,
    /// What is in the way and was left alone: links and files of other users.
    pub left: Vec<Stranger>,
}

/// The names of a pool's volumes.
pub(crate) fn volume_names(requests: &Requests) -> Result<Vec<String>> {
    let listed = requests.list(VOLUMES, None)?;
    let names = listed.iter().filter_map(|listed| listed.name.strip_prefix(VOLUMES));
    Ok(names.filter(|name| check_name(name).is_ok()).map(str::to_owned).collect())
}

/// What lies in a pool and belongs to no volume: what the store does not list, and manifests under
/// names that no volume has.
pub(crate) fn strangers(requests: &Requests) -> Result<Vec<Stranger>> {
    let mut found = requests.strangers()?;
    for listed in requests.list(VOLUMES, None)? {
        let bad = listed.name.strip_prefix(VOLUMES).map(check_name);
        if let Some(Err(why)) = bad {
            found.push(Stranger { name: listed.name.clone(), reason: why.to_string() });
        }
    }
    Ok(found)
}

/// Refuses a place where nobody has made a volume.
pub(crate) fn must_exist(requests: &Requests) -> Result<()> {
    for prefix in [VOLUMES, LOG, MAP] {
        if !requests.list(prefix, None)?.is_empty() {
            return Ok(());
        }
    }
    match requests.is_made()? {
        true => Ok(()),
        false => {
            let detail = "there is no pool: look at the address";
            Err(Error::new(ErrorKind::NotFound, "open", detail))
        }
    }
}

/// The manifest of a volume that may be removed meanwhile.
fn manifest(requests: &Requests, volume: &str) -> Result<Option<(Manifest, Tag)>> {
    match find_manifest(requests, volume) {
        // It was removed after the list was made.
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        // It is there, and may need any object.
        Err(error) if error.kind == ErrorKind::PermissionDenied => Err(needed(error, volume)),
        found => found?.map(Some).map_err(|corrupt| needed(corrupt.into(), volume)),
    }
}

fn needed(mut error: Error, volume: &str) -> Error {
    error.detail += &format!(
        "; nothing is removed meanwhile, because it may need any object: give the volume {volume} \
         up by force, or repair it"
    );
    error
}

/// The error of what a volume's manifest leads to.
fn of_volume(mut error: Error, volume: &str) -> Error {
    if error.kind == ErrorKind::NotFound {
        return needed(damaged(error), volume);
    }
    error.detail = format!("the volume {volume}: {}", error.detail);
    error
}

/// What manifests need.
#[derive(Default)]
pub(crate) struct Needs {
    objects: HashSet<ObjectId>,
    maps: HashSet<MapId>,
    logs: HashSet<Replay>,
    /// The volumes by their IDs.
    volumes: HashMap<u64, Volume>,
}

/// A volume whose manifest was read.
struct Volume {
    name: String,
    epoch: u32,
    generation: u64,
}

impl Needs {
    fn add(&mut self, requests: &Requests, name: &str, manifest: &Manifest) -> Result<()> {
        let map = load_map(requests, manifest)?;
        self.objects.extend(map.objects().map(|(id, ..)| id));
        self.maps.extend(manifest.map.iter().map(|part| part.name.0));
        self.logs.extend(&manifest.replay);
        let Manifest { id, epoch, generation, .. } = *manifest;
        self.volumes.insert(id, Volume { name: name.to_owned(), epoch, generation });
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
            match needs.add(requests, &name, &manifest) {
                // Its writer has written a checkpoint, and somebody has removed the old map.
                Err(error)
                    if error.kind == ErrorKind::NotFound && has_changed(requests, &name, &tag)? => {
                }
                added => added.map_err(|error| of_volume(error, &name))?,
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
            needs.add(requests, &name, &manifest)?;
        }
    }
    Ok(needs)
}

/// Removes what no manifest needs.
pub(crate) fn collect(requests: &Requests) -> Result<Collected> {
    let logs = requests.list(LOG, None)?;
    let maps = requests.list(MAP, None)?;
    let needs = needs(requests)?;
    if logs.is_empty() && maps.is_empty() {
        must_exist(requests)?;
    }
    // They were listed before the manifests were read.
    let epochs =
        logs.iter().filter_map(|one| ObjectId::parse(&one.name)).map(|id| (id.log, id.epoch));
    let maps_of =
        maps.iter().filter_map(|one| MapId::parse(&one.name)).map(|id| (id.log, id.epoch));
    for (log, later) in epochs.chain(maps_of) {
        let Some(volume) = needs.volumes.get(&log).filter(|volume| later > volume.epoch) else {
            continue;
        };
        let mut error = damaged(older_manifest::older(&volume.name, volume.epoch, later));
        error.detail += "; nothing is removed meanwhile";
        return Err(error);
    }
    if let Some(lost) = marks::lost(requests, &volume_names(requests)?)?.first() {
        let mut error = marks::error(lost, "gc");
        error.detail += "; nothing is removed meanwhile, because it may need any object";
        return Err(error);
    }
    let mut left = strangers(requests)?;
    let swept = requests.sweep()?;
    let news = swept.left.into_iter().filter(|one| !left.contains(one)).collect::<Vec<_>>();
    left.extend(news);
    let mut collected = Collected { unfinished: swept.files, left, ..Collected::default() };
    let mut remove = |listed: &store::Listed| {
        match requests.delete(&listed.name) {
            Err(error)
                if error.kind == store::ErrorKind::Denied && requests.is_foreign(&listed.name) =>
            {
                let reason = "it belongs to another user, who can remove it".to_owned();
                collected.left.push(Stranger { name: listed.name.clone(), reason });
                return Ok(());
            }
            deleted => deleted?,
        }
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
        let coming =
            read.is_some_and(|read| (id.epoch, id.generation) > (read.epoch, read.generation));
        if !coming && !needs.maps.contains(&id) {
            remove(listed)?;
        }
    }
    Ok(collected)
}
