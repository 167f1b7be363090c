//! Opening: who may, what the store has, and what a local log has more.

use cairn_block::{Error, ErrorKind, Result};

use super::adoption::Adoption;
use super::options::TakeOver;
use crate::format::SECTOR;
use crate::format::manifest::{self, Manifest, Replay, Writer};
use crate::map::Map;
use crate::older_manifest;
use crate::opening::{damaged, follow, has_changed, load_map, read_manifest};
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

/// Refuses a volume that a writer has open, unless it is taken over.
fn unused(
    volume: &str,
    manifest: &Manifest,
    take_over: TakeOver,
    adoption: &Adoption,
) -> Result<()> {
    let Some(writer) = &manifest.writer else { return Ok(()) };
    let is_here = process::runs_here(writer);
    let (host, pid) = (&writer.host, writer.pid);
    let detail = match take_over {
        TakeOver::Always => return Ok(()),
        _ if process::has_ended(writer) || adoption.proves_end(writer) => return Ok(()),
        TakeOver::Unseen if !is_here => return Ok(()),
        TakeOver::Unseen => format!(
            "in use: the process {pid} of this machine has the volume {volume} open for writing, \
             and runs: unmount it, or end that process; ?take-over is for a writer that nobody can \
             reach"
        ),
        TakeOver::Never if is_here => format!(
            "in use: the volume {volume} is open for writing on {host} (process {pid}): unmount it \
             there, or read a snapshot of it"
        ),
        TakeOver::Never => {
            let gone = match process::may_be_earlier_boot(writer) {
                true => "this machine was started again since, or that one is gone for good",
                false => "that machine is gone for good",
            };
            let way = match &writer.log {
                Some(log) => format!(
                    "open it with ?log={log}&take-over, or without what only that log has with \
                     ?take-over"
                ),
                None => "take the volume over with ?take-over".to_owned(),
            };
            format!(
                "in use: the volume {volume} is open for writing on {host} (process {pid}): \
                 unmount it there, or read a snapshot of it; if {gone}, {way}"
            )
        }
    };
    Err(Error::new(ErrorKind::InUse, "open", detail))
}

/// Refuses a volume whose last writer has left a local log, which is not at hand and not given up.
fn without_log(
    volume: &str,
    manifest: &Manifest,
    adoption: &Adoption,
    take_over: TakeOver,
) -> Result<()> {
    let log = manifest.writer.as_ref().and_then(|writer| writer.log.as_ref());
    let Some(log) = log else { return Ok(()) };
    if take_over != TakeOver::Never || adoption.goes_without(log) {
        tracing::warn!(
            "flushes of the volume {volume} that only the log {log} of its last writer has are \
             left out"
        );
        return Ok(());
    }
    let detail = match adoption.name() {
        Some(given) if given == log => format!(
            "the log {log} has nothing of the volume {volume}, and that of its last writer, which \
             has ended, may have had flushed writes that the store lacks: put it back in its \
             place, or open the volume with ?log={log}&discard-log to go on without them"
        ),
        Some(given) if adoption.may_lose() => format!(
            "the writer of the volume {volume} has ended, and its local log {log} may have flushed \
             writes that the store lacks; {given} does not say that it is this log: to go on \
             without them, name the log as its writer did: ?log={log}&discard-log"
        ),
        _ => format!(
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
    take_over: TakeOver,
    mut adoption: Adoption,
) -> Result<Opened> {
    let (manifest, tag, before) = claim(requests, volume, nonce, take_over, &mut adoption)?;
    let mut finish = || {
        let loaded = load(requests, &manifest, true, &mut adoption)?;
        adoption.leave_out(loaded.end);
        adoption.remember()?;
        Ok(loaded)
    };
    match finish() {
        Ok(Loaded { map, replayed, .. }) => Ok(Opened { manifest, tag, map, replayed, adoption }),
        Err(error) => {
            if release(requests, volume, (&manifest, &tag), before) {
                adoption.forget();
            }
            Err(damaged(error))
        }
    }
}

/// Makes this process the writer: raises the epoch. Returns the manifest, and who was the writer
/// before.
fn claim(
    requests: &Requests,
    volume: &str,
    nonce: u64,
    take_over: TakeOver,
    adoption: &mut Adoption,
) -> Result<(Manifest, Tag, Option<Writer>)> {
    for _ in 0..MOST_RACES {
        let (mut manifest, tag) = read_manifest(requests, volume)?;
        pool::complete(&manifest, "open")?;
        let refused = |kind, detail: String| Err(Error::new(kind, "open", detail));
        if manifest.read_only {
            let detail = format!("{volume} is a snapshot: open it for reading, or clone it");
            return refused(ErrorKind::ReadOnly, detail);
        }
        if take_over == TakeOver::Never {
            match older_manifest::refuse(requests, volume, &manifest) {
                Err(error)
                    if error.kind == ErrorKind::NotFound
                        && has_changed(requests, volume, &tag)? =>
                {
                    continue;
                }
                newest => newest.map_err(damaged)?,
            }
        } else {
            // If somebody opens it meanwhile, this manifest is not written.
            older_manifest::extend(requests, volume, &mut manifest)?;
        }
        unused(volume, &manifest, take_over, adoption)?;
        if !adoption.check(volume, &manifest)? {
            without_log(volume, &manifest, adoption, take_over)?;
        }
        let Some(epoch) = manifest.epoch.checked_add(1) else {
            let detail = format!("the volume {volume} was opened 4294967295 times: clone it");
            return refused(ErrorKind::Unsupported, detail);
        };
        adoption.announce(&manifest, nonce)?;
        manifest.epoch = epoch;
        manifest.generation += 1;
        let writer = process::this(nonce, adoption.name());
        let before = manifest.writer.replace(writer);
        let id = manifest.id;
        manifest.replay.push(Replay { id, epoch, from: 0, to: None, recorded: 0 });
        let name = manifest::name(volume);
        if let Some(tag) = requests.replace(&name, &manifest.encode(), &tag)? {
            return Ok((manifest, tag, before));
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
    adoption: &mut Adoption,
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
        let found = follow(requests, &mut map, (log, known.unwrap_or(0)), sectors, fence)?;
        adoption.compare(log, &found)?;
        replayed += found.objects;
        if known.is_some() {
            end = Some(log.from + found.objects);
        }
    }
    Ok(Loaded { map, replayed, end })
}

/// Takes a claim back, as far as the store lets: this process will not write. Who had a local log
/// before is named again: the next opening needs that. False if the store does not let.
fn release(
    requests: &Requests,
    volume: &str,
    (manifest, tag): (&Manifest, &Tag),
    before: Option<Writer>,
) -> bool {
    let generation = manifest.generation + 1;
    let writer = before.filter(|writer| writer.log.is_some());
    let mut released = Manifest { writer, generation, ..manifest.clone() };
    // Its own log, which it has not begun.
    released.replay.pop();
    let replaced = requests.replace(&manifest::name(volume), &released.encode(), tag);
    matches!(replaced, Ok(Some(_)))
}

/// As [`claim_and_load`], for a reader: a writer may remove what an old manifest needed. And a log
/// may grow after it was listed, before its successor gets an object; but a writer that finds
/// objects in old logs replaces the manifest before it writes.
pub(super) fn read(
    requests: &Requests,
    volume: &str,
    exclusive: Option<TakeOver>,
    mut adoption: Adoption,
) -> Result<Opened> {
    let mut last: Option<Tag> = None;
    loop {
        let (manifest, tag) = read_manifest(requests, volume)?;
        pool::complete(&manifest, "open")?;
        if let Some(take_over) = exclusive {
            unused(volume, &manifest, take_over, &adoption)?;
        }
        if !adoption.check(volume, &manifest)?
            && let Some(take_over) = exclusive
        {
            without_log(volume, &manifest, &adoption, take_over)?;
        }
        let newest = older_manifest::refuse(requests, volume, &manifest);
        match newest.and_then(|()| load(requests, &manifest, false, &mut adoption)) {
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
