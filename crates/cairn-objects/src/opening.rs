//! What a volume's manifest refers to: the map objects, and the logs that follow them.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::parts::{self, Parts};
use cairn_block::{Error, ErrorKind, Result};

use crate::format::data::{self, Found, HEADER, Index};
use crate::format::id::MapId;
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
/// How often a log may change while it is listed.
const MOST_LISTS: u32 = 100;
/// How many objects of another writer may come between a name that was free and the fence there.
const MOST_RACES: u64 = 1000;

/// The manifest of a volume.
pub(crate) fn read_manifest(requests: &Requests, volume: &str) -> Result<(Manifest, Tag)> {
    Ok(find_manifest(requests, volume)??)
}

/// The manifest of a volume, or what is wrong with it.
pub(crate) fn find_manifest(
    requests: &Requests,
    volume: &str,
) -> Result<std::result::Result<(Manifest, Tag), Corrupt>> {
    let object = requests.get(&manifest::name(volume)).map_err(|error| {
        if error.kind == crate::store::ErrorKind::Missing {
            let detail = format!(
                "there is no volume {volume}: look at the address, or make the volume first"
            );
            return Error::new(ErrorKind::NotFound, "open", detail);
        }
        error.into()
    })?;
    Ok(Manifest::decode(volume, &object.bytes).map(|manifest| (manifest, object.tag)))
}

/// An object that a manifest needs is not there, maybe because a newer manifest does not need it:
/// of the kind [`ErrorKind::NotFound`].
fn absent(id: impl std::fmt::Display, detail: impl Into<String>) -> Error {
    let detail = Corrupt::new(id, detail).to_string();
    Error::new(ErrorKind::NotFound, "read the store", detail)
}

/// What an object that is not there means where the manifest is the newest: damage.
pub(crate) fn damaged(error: Error) -> Error {
    match error.kind {
        ErrorKind::NotFound => Error { kind: ErrorKind::Io, ..error },
        _ => error,
    }
}

/// True if a manifest is no more what it was.
pub(crate) fn has_changed(requests: &Requests, volume: &str, tag: &Tag) -> Result<bool> {
    match find_manifest(requests, volume) {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(true),
        found => Ok(found?.is_ok_and(|(_, now)| now != *tag)),
    }
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

/// A map object.
fn read_map_part(requests: &Requests, id: MapId, sectors: u64) -> Result<MapPart> {
    match requests.get(&id.to_string()) {
        Err(error) if error.kind == crate::store::ErrorKind::Missing => {
            Err(absent(id, "is missing"))
        }
        object => Ok(map_object::decode(id, &object?.bytes, sectors)?),
    }
}

/// The map of the last checkpoint.
pub(crate) fn load_map(requests: &Requests, manifest: &Manifest) -> Result<Map> {
    let sectors = manifest.size / SECTOR;
    let refs = Arc::new(manifest.map.clone());
    let (names, store) = (refs.clone(), requests.clone());
    let read = move |number: usize| read_map_part(&store, names[number].name.0, sectors);
    let mut map = Map::default();
    for (part, at) in read_all(requests, refs.len(), read)?.iter().zip(&*refs) {
        map.load(part, &at.regions);
    }
    Ok(map)
}

/// Reads the map objects of the last checkpoint, and keeps none.
pub(crate) fn check_map(requests: &Requests, manifest: &Manifest) -> Result<()> {
    let sectors = manifest.size / SECTOR;
    let (refs, store) = (manifest.map.clone(), requests.clone());
    let count = refs.len();
    let read = move |number: usize| read_map_part(&store, refs[number].name.0, sectors).map(drop);
    read_all(requests, count, read).map(drop)
}

/// What is at a name of a log that has `length` bytes.
fn read_head(requests: &Requests, id: ObjectId, length: u64) -> Result<Found> {
    if length == 0 {
        return Err(Corrupt::new(id, "has 0 bytes: neither a data object nor a fence").into());
    }
    let mut wanted = length.min(HEAD);
    for _ in 0..3 {
        let bytes = match requests.get_range(&id.to_string(), 0..wanted) {
            Err(error) if error.kind == crate::store::ErrorKind::Missing => {
                return Err(absent(id, "is missing"));
            }
            bytes => bytes?,
        };
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
///
/// The end of an open log is where an object is missing. That it was never there must not be
/// contradicted by an object behind it: one that is lost would take back what was flushed. Those
/// below the sequence `known` are known to have been there.
fn list_log(requests: &Requests, log: &Replay, known: u64) -> Result<Vec<(ObjectId, u64)>> {
    let id = |sequence| ObjectId { log: log.id, epoch: log.epoch, sequence };
    let after = log.from.checked_sub(1).map(|before| id(before).to_string());
    let last = log.to.unwrap_or(u64::MAX);
    let mut suspect = None;
    for _ in 0..MOST_LISTS {
        let listed = requests.list(&ObjectId::prefix(log.id, log.epoch), after.as_deref())?;
        let named = listed.iter().filter_map(|one| Some((ObjectId::parse(&one.name)?, one.size)));
        let mut found: Vec<_> = named.filter(|(id, _)| id.sequence < last).collect();
        let follows = |((id, size), next): &((ObjectId, u64), u64)| {
            id.sequence == *next && *size >= HEADER as u64
        };
        let count = found.iter().copied().zip(log.from..).take_while(follows).count();
        let rest = found.split_off(count);
        let end = id(log.from + count as u64);
        // What ends a log and has a name is a fence.
        let ends = rest.first().filter(|(id, _)| *id == end);
        ends.map_or(Ok(()), |(_, size)| is_fence(requests, end, *size).map(drop))?;
        if let Some(to) = log.to {
            if end.sequence < to {
                let detail = format!("is missing, and the log goes on to {to:x}");
                return Err(absent(end, detail));
            }
            return Ok(found);
        }
        if end.sequence < known {
            let detail = "is missing, and was in the store when the local log was written, so what \
                          was flushed with it is lost";
            return Err(absent(end, detail));
        }
        let Some(witness) = witness(requests, end, &rest)? else { return Ok(found) };
        if suspect == Some(end) {
            let is = if ends.is_some() { "is a fence" } else { "is missing" };
            let detail = format!(
                "{is}, and was in the store when {witness} was made, so what was flushed with it \
                 is lost"
            );
            return Err(absent(end, detail));
        }
        // It may have come when the list had passed its name. The next list has it.
        suspect = Some(end);
    }
    let detail = "its log changes faster than it can be listed: try again later";
    Err(Error::new(ErrorKind::InUse, "open", detail))
}

/// Whether what is at a short name is a fence. Fails if it is neither that nor a data object.
fn is_fence(requests: &Requests, id: ObjectId, size: u64) -> Result<bool> {
    Ok(size < HEADER as u64 && matches!(read_head(requests, id, size)?, Found::Fence { .. }))
}

/// An object behind the end of a log that proves that another was at `end`: one that was made when
/// that was in the store, or a fence, which comes behind the last object. Objects that were on
/// their way together with the missing one prove nothing.
fn witness(
    requests: &Requests,
    end: ObjectId,
    rest: &[(ObjectId, u64)],
) -> Result<Option<ObjectId>> {
    let behind = || rest.iter().filter(|(id, _)| *id != end);
    for (id, size) in behind().filter(|(_, size)| *size < HEADER as u64) {
        if is_fence(requests, *id, *size)? {
            return Ok(Some(*id));
        }
    }
    // Later objects know no less.
    let Some((id, size)) = behind().rfind(|(_, size)| *size >= HEADER as u64) else {
        return Ok(None);
    };
    match read_head(requests, *id, *size) {
        Ok(Found::Data(index)) if index.stable > end.sequence => Ok(Some(*id)),
        // It was removed since.
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        head => head.map(|_| None),
    }
}

/// What a log has.
#[derive(Clone, Copy)]
pub(crate) struct Followed {
    /// How many objects.
    pub(crate) objects: u64,
    /// Records of its writer's local log below this number were durable when the last one was made,
    /// or before. 0: it was not begun.
    pub(crate) recorded: u64,
    /// Of the opening that wrote the last one.
    pub(crate) nonce: Option<u64>,
}

/// Follows a log and takes its objects into the map. With `fence`, the epoch of a new writer, an
/// open log is ended: nobody can write into it afterwards. Objects below the sequence `known` must
/// be there.
pub(crate) fn follow(
    requests: &Requests,
    map: &mut Map,
    (log, known): (&Replay, u64),
    sectors: u64,
    fence: Option<u32>,
) -> Result<Followed> {
    let listed = Arc::new(list_log(requests, log, known)?);
    let (names, store) = (listed.clone(), requests.clone());
    let read = move |number: usize| -> Result<Found> {
        let (id, length) = names[number];
        read_head(&store, id, length)
    };
    let heads = read_all(requests, listed.len(), read)?;
    let (mut recorded, mut nonce) = (log.recorded, None);
    let mut take = |id: ObjectId, index: &Index| {
        recorded = recorded.max(index.recorded);
        nonce = Some(index.nonce);
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
    let fence = fence.filter(|_| log.to.is_none());
    let Some(by) = fence else {
        return Ok(Followed { objects: end - log.from, recorded, nonce });
    };
    for sequence in end..end.saturating_add(MOST_RACES) {
        let id = ObjectId { log: log.id, epoch: log.epoch, sequence };
        let fence = data::encode_fence(id, by);
        let is_ended = match requests.create(&id.to_string(), &[fence])? {
            Created::Ours => true,
            Created::Theirs => match read_unlisted(requests, id)? {
                Found::Data(index) => {
                    take(id, &index);
                    false
                }
                Found::Fence { .. } | Found::Longer(_) => true,
            },
        };
        if is_ended {
            return Ok(Followed { objects: sequence - log.from, recorded, nonce });
        }
    }
    let detail = "its writer is faster than this opening: stop that writer first";
    Err(Error::new(ErrorKind::InUse, "open", detail))
}
