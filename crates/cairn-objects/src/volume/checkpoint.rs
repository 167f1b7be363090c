//! Checkpoints: the map and the manifest, so that an opening has less to follow.

use std::collections::BTreeSet;

use cairn_block::{ErrorKind, Result};

use super::core::Core;
use super::state::State;
use crate::format::id::MapId;
use crate::format::manifest::{self, Manifest, MapName, MapRef, Replay};
use crate::format::map::{self as map_object, MapPart};
use crate::opening;
use crate::requests::Created;
use crate::store::Tag;

/// Map objects in use. If there are more, all regions are written again.
const MOST_MAP_OBJECTS: usize = 8;

/// How often a manifest of this writer may turn out to be in the store.
const MOST_ADOPTED: u32 = 4;

/// What a checkpoint writes.
struct Plan {
    parts: Vec<(MapId, MapPart)>,
    manifest: Manifest,
    /// Regions that are in `parts`, or have become empty.
    regions: BTreeSet<u64>,
    applied: u64,
}

impl State {
    fn plan(&mut self) -> Plan {
        let mut regions = self.map.take_dirty();
        let mut kept = self.manifest.map.clone();
        if kept.len() >= MOST_MAP_OBJECTS {
            regions.extend(self.map.regions());
            regions.extend(kept.iter().flat_map(|part| &part.regions));
            kept.clear();
        }
        for part in &mut kept {
            part.regions.retain(|region| !regions.contains(region));
        }
        kept.retain(|part| !part.regions.is_empty());
        let generation = self.generation;
        self.generation += 1;
        let Manifest { id, epoch, .. } = self.manifest;
        let mut parts = Vec::new();
        for ((part, regions), number) in self.map.encode(&regions).into_iter().zip(0..) {
            let name = MapId { log: id, epoch, generation, part: number };
            kept.push(MapRef { name: MapName(name), regions });
            parts.push((name, part));
        }
        let recorded = self.recorded;
        let replay = vec![Replay { id, epoch, from: self.applied, to: None, recorded }];
        let manifest = Manifest { generation, map: kept, replay, ..self.manifest.clone() };
        Plan { parts, manifest, regions, applied: self.applied }
    }
}

impl Core {
    /// Writes a checkpoint. The last one says that nobody writes any more.
    pub(super) fn checkpoint(&self, last: bool) -> Result<()> {
        loop {
            self.wait(|state| !state.checkpointing);
            let mut state = self.state.lock();
            if !state.checkpointing {
                state.check()?;
                state.checkpointing = true;
                break;
            }
        }
        let outcome = self.write_checkpoint(last);
        self.state.lock().checkpointing = false;
        self.changed.notify();
        outcome
    }

    /// Replaces the manifest, which has this tag, or is one of this writer whose answer was lost:
    /// nobody else writes manifests of its epoch.
    fn replace_manifest(&self, manifest: &Manifest, mut tag: Tag) -> Result<Tag> {
        let bytes = manifest.encode();
        for _ in 0..MOST_ADOPTED {
            let name = manifest::name(&self.volume);
            if let Some(tag) = self.requests.replace(&name, &bytes, &tag)? {
                return Ok(tag);
            }
            let (found, its_tag) = match opening::read_manifest(&self.requests, &self.volume) {
                Err(error) if error.kind == ErrorKind::NotFound => return Err(self.fenced()),
                found => found?,
            };
            if (found.id, found.epoch) != (manifest.id, manifest.epoch) {
                return Err(self.fenced());
            }
            tag = its_tag;
        }
        Err(self.fenced())
    }

    fn write_checkpoint(&self, last: bool) -> Result<()> {
        let (Plan { parts, mut manifest, regions, applied }, tag) = {
            let mut state = self.state.lock();
            (state.plan(), state.tag.clone())
        };
        if last {
            manifest.writer = None;
            // Whatever copy of the local log comes back, the store has all of it.
            manifest.replay.iter_mut().for_each(|log| log.recorded = 0);
        }
        let write = || {
            for (name, part) in &parts {
                let bytes = map_object::encode(*name, part);
                if self.requests.create(&name.to_string(), &[bytes])? == Created::Theirs {
                    return Err(self.fenced());
                }
            }
            self.replace_manifest(&manifest, tag)
        };
        let outcome = write();
        let mut state = self.state.lock();
        match outcome {
            Ok(tag) => {
                state.tag = tag;
                state.manifest = manifest;
                state.checkpointed = applied;
                drop(state);
                self.counters.checkpoints.add(1);
                Ok(())
            }
            Err(error) => {
                state.map.put_back(&regions);
                Err(error)
            }
        }
    }
}
