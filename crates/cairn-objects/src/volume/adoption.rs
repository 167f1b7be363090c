//! [`Adoption`]: what a local log has that the store may lack, while a volume is opened.
//!
//! An opening that takes records over is known by its nonce. It is in the log before the manifest
//! has it, so that the next opening can tell such a one, which may have been killed at any moment,
//! from another writer. Writing the same records again does no harm, as long as nobody else wrote.
//!
//! The store knows up to which record its newest object was made. A log that ends before that is
//! not the last state of the file: a copy has taken its place.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::runtime::Runtime;
use cairn_block::{Error, Result};

use super::options::Options;
use crate::format::local_log::Header;
use crate::format::manifest::{Manifest, Replay, Writer};
use crate::local_log::{Contents, Log, Opening, Record, Refused, belongs, claimed, header_for};
use crate::opening::Followed;
use crate::process;

/// A log, if there is one, and what it has.
pub(super) struct Adoption {
    log: Option<Log>,
    contents: Contents,
    refused: Refused,
    writes: bool,
    /// It is the log of the volume's last writer.
    is_last: bool,
    /// What it had is dropped, as asked for.
    dropped: bool,
    runtime: Arc<dyn Runtime>,
}

/// Records that are written into the volume.
pub(super) struct Taken {
    pub(super) header: Header,
    pub(super) records: Vec<Record>,
}

/// How long ago something was, for people.
fn ago(age: Duration) -> String {
    let seconds = age.as_secs();
    let (number, unit) = match seconds {
        0..120 => (seconds, "seconds"),
        120..7200 => (seconds / 60, "minutes"),
        7200..172_800 => (seconds / 3600, "hours"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{number} {unit} ago")
}

impl Adoption {
    /// Opens the log of an opening, and reads it.
    pub(super) fn open(options: &Options) -> Result<Self> {
        let mut adoption = Self {
            log: None,
            contents: Contents::default(),
            refused: Refused::Fail,
            writes: !options.read_only,
            is_last: false,
            dropped: false,
            runtime: options.runtime.clone(),
        };
        if let Some(wish) = &options.log {
            let opening = match (adoption.writes, options.exclusive) {
                (true, _) => Opening::Writes,
                (false, true) => Opening::Reads,
                (false, false) => Opening::ReadsBeside,
            };
            let log = Log::open(wish, opening)?;
            adoption.contents = log.contents()?;
            adoption.refused = wish.refused.clone();
            adoption.log = Some(log);
        }
        Ok(adoption)
    }

    /// What a message says of the records, and when the file was written.
    fn shown(&self, log: &Log) -> String {
        let Contents { records, .. } = &self.contents;
        let age = log.written().and_then(|at| self.runtime.now().duration_since(at).ok());
        let age = age.map_or(String::new(), |age| format!(", last written {}", ago(age)));
        format!("{} records of {} bytes{age}", records.len(), self.contents.bytes())
    }

    /// The records are not for this volume.
    fn give_up(&mut self, why: Error) -> Result<()> {
        let Some(log) = &self.log else { return Err(why) };
        let name = log.name();
        let shown = self.shown(log);
        match &self.refused {
            Refused::Fail => return Err(why),
            Refused::Export(_) if !self.writes => {
                let detail = format!(
                    "{}; nothing is exported, because this opening only reads: give ?export-log to \
                     one that writes",
                    why.detail
                );
                return Err(Error { detail, ..why });
            }
            Refused::Export(to) => {
                log.export(&self.contents, to)?;
                let to = to.display();
                tracing::warn!("the log {name} is dropped; {to} has the blocks of {shown}");
            }
            Refused::Discard if self.writes => {
                tracing::warn!("the log {name} is dropped, with {shown}");
            }
            Refused::Discard => tracing::warn!("the log {name} is left out, with {shown}"),
        }
        self.contents = Contents::default();
        self.dropped = true;
        Ok(())
    }

    /// The log is damaged. What is before that is as good as ever.
    fn give_up_damaged(&mut self, what: &str, manifest: &Manifest) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        if self.refused == Refused::Discard && self.contents.header.is_some() {
            let (name, shown) = (log.name(), self.shown(log));
            tracing::warn!(
                "the log {name} is damaged, {what}: what is before that is kept, {shown}"
            );
            return Ok(());
        }
        let writers = manifest.writer.as_ref().and_then(|writer| writer.log.as_deref());
        let unknown = self.contents.header.is_none();
        let writers = writers.filter(|writers| unknown && *writers != log.name());
        let why = log.damaged(what, writers);
        self.give_up(why)
    }

    /// True if a writer that nobody can see has ended: it was on a machine of this name, and this
    /// opening has the lock of the log that it had locked.
    pub(super) fn proves_end(&self, writer: &Writer) -> bool {
        let Some(header) = &self.contents.header else { return false };
        process::may_be_earlier_boot(writer)
            && self.name().is_some_and(|name| writer.log.as_deref() == Some(name))
            && (header.nonce == writer.nonce || header.claims.contains(&writer.nonce))
    }

    /// True if the caller asks to do without flushes.
    pub(super) fn may_lose(&self) -> bool {
        self.refused == Refused::Discard || self.dropped
    }

    /// True if the caller does without what the last writer's log had, which is this one.
    pub(super) fn goes_without(&self, last: &str) -> bool {
        self.name() == Some(last) && self.may_lose()
    }

    /// Compares log and manifest. True if the log is the one of the volume's last writer.
    pub(super) fn check(&mut self, volume: &str, manifest: &Manifest) -> Result<bool> {
        if let Some(what) = self.contents.damage.take() {
            self.give_up_damaged(&what, manifest)?;
        }
        let (Some(log), Some(header)) = (&self.log, &self.contents.header) else {
            return Ok(false);
        };
        self.is_last = belongs(header, manifest);
        if self.is_last {
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
        log.set_header(header).inspect_err(|_| {
            log.forget();
        })
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

    /// Compares the local log with one of the store. That says which records were durable in the
    /// local log of its writer: fails if this one is from before that. All records that it has are
    /// in the store then: an object has what was recorded before it was made. Fails, too, if
    /// another than the writer of the records has written the objects of their epoch: into another
    /// copy of the pool.
    pub(super) fn compare(&mut self, replay: &Replay, found: &Followed) -> Result<()> {
        let (Some(log), Some(header)) = (&self.log, &self.contents.header) else { return Ok(()) };
        let Followed { recorded, nonce, .. } = *found;
        let header = *header;
        let forgotten = Header { claims: header.claims, ..header_for(header.volume, header.size) };
        let is_theirs = (replay.id, replay.epoch) == (header.volume, header.epoch);
        if is_theirs && self.is_last && !self.dropped && nonce.is_some_and(|by| by != header.nonce)
        {
            let why = log.refused(
                "another writer has made the objects of their epoch: this is \
                another copy of the pool",
            );
            self.give_up(why)?;
            self.contents.header = Some(forgotten);
            return Ok(());
        }
        let is_later = (replay.id, true) == (header.volume, replay.epoch >= header.epoch);
        if recorded == 0 || !self.is_last || !is_later || self.dropped {
            return Ok(());
        }
        let next = self.contents.next();
        let what = match replay.epoch == header.epoch {
            true if next >= recorded => return Ok(()),
            true => format!("it ends before record {next}, and {} was durable", recorded - 1),
            false => "a later opening has used the log since".to_owned(),
        };
        let why = log.outdated(&what);
        self.give_up(why)?;
        self.contents.header = Some(forgotten);
        Ok(())
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

    /// The volume is not opened: a file that was made for the log is removed.
    pub(super) fn forget(&self) {
        if let Some(log) = &self.log {
            log.forget();
        }
    }

    /// The log, and the records that the volume lacks.
    pub(super) fn into_parts(self) -> (Option<Log>, Option<Taken>) {
        let Contents { header, records, .. } = self.contents;
        let taken = header.filter(|_| !records.is_empty());
        (self.log, taken.map(|header| Taken { header, records }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_number_of_the_next_smaller_unit() {
        for (seconds, shown) in [
            (0, "0 seconds ago"),
            (119, "119 seconds ago"),
            (7199, "119 minutes ago"),
            (7200, "2 hours ago"),
            (400_000, "4 days ago"),
        ] {
            assert_eq!(ago(Duration::from_secs(seconds)), shown);
        }
    }
}
