//! Opening: who may, what the store has, and what a local log has more.

use cairn_block::{Error, ErrorKind, Result};

use super::adoption::Adoption;
use crate::format::SECTOR;
use crate::format::manifest::{self, Manifest, Replay};
use crate::map::Map;
use crate::opening::{damaged, follow, load_map, read_manifest};
use crate::pool;
use crate::process;
use crate::requests::Requests;
use crate::store::Tag;

/// How often another opening may come first.
const MOST_RACES: u32 = 100;

/// What an opening has read.
pub(super) struct Opened {
    pub(super) manifest: Manifest,
    pub(super) tag: Tag,
    pub(super) map: Map,
    /// Objects of logs that are in the map, and in no map object.
    pub(super) replayed: u64,
    pub(super) adoption: Adoption,
}

/// What the store has of a volume.
struct Loaded {
    map: Map,
    replayed: u64,
    /// Where the log ended whose last flushes the local log has.
    end: Option<u64>,
}

/// Refuses a volume that a writer has open.
fn unused(volume: &str, manifest: &Manifest) -> Result<()> {
    let writer = manifest.writer.as_ref().filter(|writer| !process::has_ended(writer));
    let Some(writer) = writer else { return Ok(()) };
    let detail = format!(
        "in use: the volume {volume} is open for writing on {} (process {}): unmount it there, or \
         read a snapshot of it; if that machine is gone for good, take the volume over with \
         ?take-over",
        writer.host, writer.pid
    );
    Err(Error::new(ErrorKind::InUse, "open", detail))
}

/// Refuses a volume whose last writer has left a local log, which is not at hand and not given up.
fn without_log(volume: &str, manifest: &Manifest, adoption: &Adoption) -> Result<()> {
    let log = manifest.writer.as_ref().and_then(|writer| writer.log.as_ref());
    let Some(log) = log.filter(|log| !adoption.goes_without(log)) else { return Ok(()) };
    let detail = match adoption.name() == Some(log) {
        true => format!(
            "the log {log} has nothing of the volume {volume}, and that of its last writer, which \
             has ended, may have had flushed writes that the store lacks: put it back in its \
             place, or open the volume with ?log={log}&discard-log to go on without them"
        ),
        false => format!(
            "the writer of the volume {volume} has ended, and its local log {log} may have flushed \
             writes that the store lacks: open the volume with ?log={log}, or without them with \
             ?take-over"
        ),
    };
    Err(Error::new(ErrorKind::InUse, "open", detail))
}

/// Makes this process the writer, and reads what there is.
pub(super) fn claim_and_load(
    requests: &Requests,
    volume: &str,
    nonce: u64,
    take_over: bool,
    mut adoption: Adoption,
) -> Result<Opened> {
    let (manifest, tag) = claim(requests, volume, nonce, take_over, &mut adoption)?;
    let loaded = load(requests, &manifest, true, &adoption);
    let loaded = loaded.inspect_err(|_| release(requests, volume, &manifest, &tag));
    let Loaded { map, replayed, end } = loaded.map_err(damaged)?;
    adoption.leave_out(end);
    adoption.remember().inspect_err(|_| release(requests, volume, &manifest, &tag))?;
    Ok(Opened { manifest, tag, map, replayed, adoption })
}

/// Makes this process the writer: raises the epoch.
fn claim(
    requests: &Requests,
    volume: &str,
    nonce: u64,
    take_over: bool,
    adoption: &mut Adoption,
) -> Result<(Manifest, Tag)> {
    for _ in 0..MOST_RACES {
        let (mut manifest, tag) = read_manifest(requests, volume)?;
        pool::complete(&manifest, "open")?;
        let refused = |kind, detail: String| Err(Error::new(kind, "open", detail));
        if manifest.read_only {
            let detail = format!("{volume} is a snapshot: open it for reading, or clone it");
            return refused(ErrorKind::ReadOnly, detail);
        }
        if !take_over {
            unused(volume, &manifest)?;
        }
        if !adoption.check(volume, &manifest)? && !take_over {
            without_log(volume, &manifest, adoption)?;
        }
        let Some(epoch) = manifest.epoch.checked_add(1) else {
            let detail = format!("the volume {volume} was opened 4294967295 times: clone it");
            return refused(ErrorKind::Unsupported, detail);
        };
        adoption.announce(&manifest, nonce)?;
        manifest.epoch = epoch;
        manifest.generation += 1;
        manifest.writer = Some(process::this(nonce, adoption.name()));
        manifest.replay.push(Replay { id: manifest.id, epoch, from: 0, to: None });
        let name = manifest::name(volume);
        if let Some(tag) = requests.replace(&name, &manifest.encode(), &tag)? {
            return Ok((manifest, tag));
        }
    }
    let detail = format!("others open the volume {volume} at the same time: try again later");
    Err(Error::new(ErrorKind::InUse, "open", detail))
}

/// The map of a volume, and how many objects of logs are in it. A writer ends the logs of those
/// before it.
fn load(
    requests: &Requests,
    manifest: &Manifest,
    writes: bool,
    adoption: &Adoption,
) -> Result<Loaded> {
    let mut map = load_map(requests, manifest)?;
    let mut logs = manifest.replay.as_slice();
    if writes {
        // The last is this opening's own.
        logs = &logs[..logs.len() - 1];
    }
    let fence = writes.then_some(manifest.epoch);
    let (mut replayed, mut end) = (0, None);
    for log in logs {
        let known = adoption.known(log);
        let sectors = manifest.size / SECTOR;
        let objects = follow(requests, &mut map, (log, known.unwrap_or(0)), sectors, fence)?;
        replayed += objects;
        if known.is_some() {
            end = Some(log.from + objects);
        }
    }
    Ok(Loaded { map, replayed, end })
}

/// Takes a claim back, as far as the store lets: this process will not write.
fn release(requests: &Requests, volume: &str, manifest: &Manifest, tag: &Tag) {
    let generation = manifest.generation + 1;
    let mut released = Manifest { writer: None, generation, ..manifest.clone() };
    // Its own log, which it has not begun.
    released.replay.pop();
    let _ = requests.replace(&manifest::name(volume), &released.encode(), tag);
}

/// As [`claim_and_load`], for a reader: a writer may remove what an old manifest needed. And a log
/// may grow after it was listed, before its successor gets an object; but a writer that finds
/// objects in old logs replaces the manifest before it writes.
pub(super) fn read(
    requests: &Requests,
    volume: &str,
    exclusive: bool,
    mut adoption: Adoption,
) -> Result<Opened> {
    let mut last: Option<Tag> = None;
    loop {
        let (manifest, tag) = read_manifest(requests, volume)?;
        pool::complete(&manifest, "open")?;
        if exclusive {
            unused(volume, &manifest)?;
        }
        if !adoption.check(volume, &manifest)? && exclusive {
            without_log(volume, &manifest, &adoption)?;
        }
        match load(requests, &manifest, false, &adoption) {
            Err(error) if error.kind == ErrorKind::NotFound && last.as_ref() != Some(&tag) => {
                last = Some(tag);
            }
            loaded => {
                let Loaded { map, replayed, end } = loaded.map_err(damaged)?;
                let several = manifest.replay.len() > 1;
                if !several || read_manifest(requests, volume)?.1 == tag {
                    adoption.leave_out(end);
                    return Ok(Opened { manifest, tag, map, replayed, adoption });
                }
            }
        }
    }
}
