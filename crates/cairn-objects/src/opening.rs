//! What a volume's manifest refers to: the map objects, and the logs that follow them.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::parts::{self, Parts};
use cairn_block::{Error, ErrorKind, Result};

use crate::format::data::{self, FENCE_LENGTH, Found, HEADER, Index};
use crate::format::manifest::{self, Manifest, Replay};
use crate::format::map::{self as map_object, MapPart};
use crate::format::{Corrupt, ObjectId, SECTOR};
use crate::map::Map;
use crate::requests::{Created, Requests};
use crate::store::Tag;

/// Requests that wait for their answers at the same time.
const PARALLEL: usize = 8;
/// Bytes of a data object that are read for its index. Nearly all indexes are shorter.
const HEAD: u64 = 64 << 10;
/// How many objects of another writer may come between a name that was free and the fence there.
const MOST_RACES: u64 = 1000;

/// The manifest of a volume.
pub(crate) fn read_manifest(requests: &Requests, volume: &str) -> Result<(Manifest, Tag)> {
    let object = requests.get(&manifest::name(volume)).map_err(|error| {
        if error.kind == crate::store::ErrorKind::Missing {
            let detail = format!(
                "there is no volume {volume}: look at the address, or make the volume first"
            );
            return Error::new(ErrorKind::NotFound, "open", detail);
        }
        error.into()
    })?;
    Ok((Manifest::decode(volume, &object.bytes)?, object.tag))
}

/// Reads many things at once. Each part is one.
struct Reads<T, F> {
    count: usize,
    read: F,
    found: Mutex<BTreeMap<usize, T>>,
}

impl<T, F> Parts for Reads<T, F>
where
    T: Send + 'static,
    F: Fn(usize) -> Result<T> + Send + Sync + 'static,
{
    type Error = Error;

    fn count(&self) -> usize {
        self.count
    }

    fn part(&self, number: usize) -> Result<()> {
        let found = (self.read)(number)?;
        self.found.lock().insert(number, found);
        Ok(())
    }
}

fn read_all<T: Send + 'static>(
    requests: &Requests,
    count: usize,
    read: impl Fn(usize) -> Result<T> + Send + Sync + 'static,
) -> Result<Vec<T>> {
    let reads = Reads { count, read, found: Mutex::new(Rank::Leaf, BTreeMap::new()) };
    let reads = parts::run(reads, "objects-read", PARALLEL, &**requests.runtime())?;
    Ok(reads.found.into_inner().into_values().collect())
}

/// The map of the last checkpoint.
pub(crate) fn load_map(requests: &Requests, manifest: &Manifest) -> Result<Map> {
    let sectors = manifest.size / SECTOR;
    let refs = Arc::new(manifest.map.clone());
    let (names, store) = (refs.clone(), requests.clone());
    let read = move |number: usize| -> Result<MapPart> {
        let id = names[number].name.0;
        let object = store.get(&id.to_string())?;
        Ok(map_object::decode(id, &object.bytes, sectors)?)
    };
    let mut map = Map::default();
    for (part, at) in read_all(requests, refs.len(), read)?.iter().zip(&*refs) {
        map.load(part, &at.regions);
    }
    Ok(map)
}

/// What is at a name of a log that has `length` bytes.
fn read_head(requests: &Requests, id: ObjectId, length: u64) -> Result<Found> {
    let mut wanted = length.min(HEAD);
    for _ in 0..3 {
        let bytes = requests.get_range(&id.to_string(), 0..wanted)?;
        match data::decode(id, &bytes, length)? {
            Found::Longer(head) if head > wanted && head <= length => wanted = head,
            Found::Longer(head) => {
                let detail = format!("has {length} bytes, and an index of {head}");
                return Err(Corrupt::new(id, detail).into());
            }
            found => return Ok(found),
        }
    }
    Err(Corrupt::new(id, "has an index that grows while it is read").into())
}

/// An object of the log that nobody has listed.
fn read_unlisted(requests: &Requests, id: ObjectId) -> Result<Found> {
    let object = requests.get(&id.to_string())?;
    Ok(data::decode(id, &object.bytes, object.bytes.len() as u64)?)
}

/// The objects that a log has from its first sequence on, without a gap, with their bytes. A fence
/// ends them.
pub(crate) fn list_log(requests: &Requests, log: &Replay) -> Result<Vec<(ObjectId, u64)>> {
    let id = |sequence| ObjectId { log: log.id, epoch: log.epoch, sequence };
    let after = log.from.checked_sub(1).map(|before| id(before).to_string());
    let listed = requests.list(&ObjectId::prefix(log.id, log.epoch), after.as_deref())?;
    let mut found = Vec::new();
    for (next, listed) in (log.from..log.to.unwrap_or(u64::MAX)).zip(listed) {
        let next = id(next);
        if listed.name != next.to_string() || listed.size <= FENCE_LENGTH as u64 {
            break;
        }
        found.push((next, listed.size));
    }
    Ok(found)
}

/// Follows a log and takes its objects into the map. With `fence`, the epoch of a new writer, an
/// open log is ended: nobody can write into it afterwards. Returns the number of objects.
pub(crate) fn follow(
    requests: &Requests,
    map: &mut Map,
    log: &Replay,
    sectors: u64,
    fence: Option<u32>,
) -> Result<u64> {
    let listed = Arc::new(list_log(requests, log)?);
    let (names, store) = (listed.clone(), requests.clone());
    let read = move |number: usize| -> Result<Found> {
        let (id, length) = names[number];
        read_head(&store, id, length)
    };
    let heads = read_all(requests, listed.len(), read)?;
    let mut take = |id: ObjectId, index: &Index| {
        map.apply(id, index.length, &index.entries, sectors);
    };
    for ((id, length), head) in listed.iter().zip(&heads) {
        let Found::Data(index) = head else {
            let detail = format!("has {length} bytes, at least {HEADER}, and is no data object");
            return Err(Corrupt::new(id, detail).into());
        };
        take(*id, index);
    }
    let end = log.from + listed.len() as u64;
    if let Some(to) = log.to {
        if end < to {
            let id = ObjectId { log: log.id, epoch: log.epoch, sequence: end };
            let detail = format!("is missing, and the log goes on to {to:x}");
            return Err(Corrupt::new(id, detail).into());
        }
        return Ok(end - log.from);
    }
    let Some(by) = fence else { return Ok(end - log.from) };
    for sequence in end..end.saturating_add(MOST_RACES) {
        let id = ObjectId { log: log.id, epoch: log.epoch, sequence };
        let fence = data::encode_fence(id, by);
        if requests.create(&id.to_string(), &[fence])? == Created::Ours {
            return Ok(sequence - log.from);
        }
        match read_unlisted(requests, id)? {
            Found::Data(index) => take(id, &index),
            Found::Fence { .. } | Found::Longer(_) => return Ok(sequence - log.from),
        }
    }
    let detail = "its writer is faster than this opening: stop that writer first";
    Err(Error::new(ErrorKind::InUse, "open", detail))
}
