//! [`Adoption`]: what a local log has that the store may lack, while a volume is opened.
//!
//! An opening that takes records over is known by its nonce. It is in the log before the manifest
//! has it, so that the next opening can tell such a one, which may have been killed at any moment,
//! from another writer. Writing the same records again does no harm, as long as nobody else wrote.

use cairn_block::{Error, Result};

use super::options::Options;
use crate::format::local_log::Header;
use crate::format::manifest::{Manifest, Replay};
use crate::local_log::{Contents, Log, Record, Refused, belongs, claimed, header_for};

/// A log, if there is one, and what it has.
pub(super) struct Adoption {
    log: Option<Log>,
    contents: Contents,
    refused: Refused,
    /// What it had is dropped, as asked for.
    dropped: bool,
}

/// Records that are written into the volume.
pub(super) struct Taken {
    pub(super) header: Header,
    pub(super) records: Vec<Record>,
}

impl Adoption {
    /// Opens the log of an opening, and reads it.
    pub(super) fn open(options: &Options) -> Result<Self> {
        let contents = Contents::default();
        let mut adoption = Self { log: None, contents, refused: Refused::Fail, dropped: false };
        if let Some(wish) = &options.log {
            let log = Log::open(wish, !options.read_only)?;
            adoption.contents = log.contents()?;
            adoption.refused = wish.refused.clone();
            adoption.log = Some(log);
        }
        match adoption.contents.damage.take() {
            // What is before the damage is as good as ever.
            Some(_) if adoption.refused == Refused::Discard => {}
            Some(damage) => adoption.give_up(damage)?,
            None => {}
        }
        Ok(adoption)
    }

    /// The records are not for this volume.
    fn give_up(&mut self, why: Error) -> Result<()> {
        match (&self.refused, &self.log) {
            (Refused::Fail, _) => return Err(why),
            (Refused::Export(to), Some(log)) => log.export(&self.contents, to)?,
            _ => {}
        }
        self.contents = Contents::default();
        self.dropped = true;
        Ok(())
    }

    /// True if the caller does without what the last writer's log had, which is this one.
    pub(super) fn goes_without(&self, last: &str) -> bool {
        self.name() == Some(last) && (self.refused == Refused::Discard || self.dropped)
    }

    /// Compares log and manifest. True if the log is the one of the volume's last writer.
    pub(super) fn check(&mut self, volume: &str, manifest: &Manifest) -> Result<bool> {
        let (Some(log), Some(header)) = (&self.log, &self.contents.header) else {
            return Ok(false);
        };
        if belongs(header, manifest) {
            return Ok(true);
        }
        if self.contents.records.is_empty() {
            self.contents = Contents::default();
            return Ok(false);
        }
        let reason = match header.volume == manifest.id {
            true => format!("another writer has changed the volume {volume} since"),
            false => format!("they are of another volume than {volume}"),
        };
        let why = log.refused(&reason);
        self.give_up(why)?;
        Ok(false)
    }

    /// Makes known in the log who is about to claim the volume.
    pub(super) fn announce(&mut self, manifest: &Manifest, nonce: u64) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let header = self.contents.header.unwrap_or_else(|| header_for(manifest.id, manifest.size));
        let before = claimed(&header, manifest).unwrap_or(0);
        let header = Header { claims: [before, nonce], ..header };
        self.contents.header = Some(header);
        log.set_header(header)
    }

    /// How messages name the log.
    pub(super) fn name(&self) -> Option<&str> {
        self.log.as_ref().map(Log::name)
    }

    /// If a log of the store is that of the records: objects below this sequence were in it.
    pub(super) fn known(&self, replay: &Replay) -> Option<u64> {
        let header = self.contents.header.as_ref()?;
        let same = (replay.id, replay.epoch) == (header.volume, header.epoch);
        let known = self.contents.records.iter().map(|record| record.stable).max();
        same.then(|| known.unwrap_or(0))
    }

    /// The store's log of the records ends at `end`. What it has need not be written again.
    pub(super) fn leave_out(&mut self, end: Option<u64>) {
        let Some(header) = &mut self.contents.header else { return };
        header.stored = header.stored.max(end.unwrap_or(0));
        let stored = header.stored;
        self.contents.records.retain(|record| record.frame.object >= stored);
    }

    /// Keeps what the store has: when the next checkpoint is written, only the log says so.
    pub(super) fn remember(&self) -> Result<()> {
        match (&self.log, self.contents.header) {
            (Some(log), Some(header)) => log.set_header(header),
            _ => Ok(()),
        }
    }

    /// The log, and the records that the volume lacks.
    pub(super) fn into_parts(self) -> (Option<Log>, Option<Taken>) {
        let Contents { header, records, .. } = self.contents;
        let taken = header.filter(|_| !records.is_empty());
        (self.log, taken.map(|header| Taken { header, records }))
    }
}
