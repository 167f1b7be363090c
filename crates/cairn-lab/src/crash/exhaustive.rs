//! Every history of at most two operations over a small name space, with every way to make it
//! durable.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_crash::durability::{
    Broken, DAMAGED, Damage, Seen, Subject, examine, examine_cut, histories,
};
use cairn_f2fs::format::Nid;
use cairn_vfs::FileSystem;
use cairn_vfs::types::{Caller, NewInode};

use super::failure::{Failure, Run};
use super::judges::{Judges, told};
use super::kinds::{Format, Kind};
use super::report::Searched;
use super::stop::is_stopped;
use crate::error::{Error, Result};
use crate::progress::Progress;

/// Byte ranges of the superblocks, in which an error is recorded.
const SUPERBLOCKS: std::ops::Range<u64> = 0..8192;

/// What of a history is examined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    /// Its last cuts.
    pub(super) cuts: usize,
    /// The foreign checker looks at every so-manieth state.
    pub(super) rare: usize,
}

type Told<T> = Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A volume with a file whose inode is damaged, if a checksum detects it.
fn damaged(kind: &'static Kind, fresh: &MemoryDevice) -> Result<Option<Damage>> {
    let device: Arc<MemoryDevice> = Arc::new(fresh.fork());
    let make = |fs: &dyn FileSystem| {
        fs.create(fs.root(), DAMAGED, NewInode::Regular, 0o644, &Caller::ROOT)
    };
    let at = match kind.format {
        Format::Ext4 if kind.has_checksums => {
            let fs =
                cairn_ext4::Ext4::open(device.clone(), Simulated::new(1), &Default::default())?;
            let made = make(&*fs)?;
            let at = fs.record_at(made.ino)?;
            fs.unmount()?;
            at + 8
        }
        Format::F2fs if kind.mode == "checksums" => {
            let fs =
                cairn_f2fs::F2fs::open(device.clone(), Simulated::new(1), &Default::default())?;
            let made = make(&*fs)?;
            fs.sync()?;
            let nid = Nid::of(made.ino).ok_or(cairn_vfs::Error::NotFound)?;
            let at = fs.disk().nat.lookup(nid)?.block_addr.bytes();
            fs.unmount()?;
            at + 32
        }
        _ => return Ok(None),
    };
    Ok(Some(Damage::new(device.fork(), at, SUPERBLOCKS)))
}

/// Makes a volume smaller, so that its end moves.
fn smaller(format: Format, device: Arc<dyn BlockDevice>) -> Told<()> {
    let runtime: Arc<dyn Runtime> = Threads::new();
    match format {
        Format::Ext4 => {
            use cairn_ext4::resize;
            let least = resize::least(device.clone(), runtime.clone()).map_err(text)?;
            // So little that the journal stays where it is: while it moves there is none.
            let size = least.max(device.geometry().size / 8 * 7);
            resize::resize(device, runtime, size).map(drop).map_err(text)
        }
        Format::F2fs => {
            use cairn_f2fs::resize;
            let least = resize::least(&device, runtime.clone()).map_err(text)?;
            resize::resize(&device, &runtime, least).map(drop).map_err(text)
        }
    }
}

/// Calls `work` with a kind as the subject of a search.
fn with_subject<T>(
    kind: &'static Kind,
    depth: Depth,
    work: impl FnOnce(&Subject<'_>, &Judges) -> T,
) -> Result<T> {
    let judges = Judges::new(kind, false)?;
    let fresh = kind.fresh()?;
    let open = |device: Arc<dyn BlockDevice>| kind.open(device, Simulated::new(1), "");
    let judge = |device: &MemoryDevice| {
        judges.check(device, "after recovery")?;
        judges.foreign_check(device, "after recovery")
    };
    let resize = |device: Arc<dyn BlockDevice>| smaller(kind.format, device);
    let subject = Subject {
        damage: damaged(kind, &fresh)?,
        fresh,
        every_word: true,
        cuts: depth.cuts,
        open: &open,
        judge: &judge,
        judge_cut: None,
        // Zones cannot be taken from the end of an image.
        resize: if kind.mode == "zoned" { None } else { Some(&resize) },
    };
    Ok(work(&subject, &judges))
}

/// Searches a kind, until the first failure.
pub(super) fn search(
    kind: &'static Kind,
    depth: Depth,
    progress: &Progress,
) -> Result<(Searched, Option<Failure>)> {
    with_subject(kind, depth, |subject, judges| {
        let all = histories(subject);
        progress.expect(all.len());
        progress.show(&format!("{} {}, histories", kind.format, kind.mode));
        let (mut seen, mut found) = (Seen::default(), None);
        for history in all.into_iter().take_while(|_| !is_stopped()) {
            let panicked = |error| Broken { history: history.clone(), cut: None, error };
            let examined = told(|| Ok(examine(subject, &history, depth.rare, &mut seen)))
                .unwrap_or_else(|error| Err(panicked(error)));
            if let Err(Broken { history, cut, error }) = examined {
                found = Some(Failure { kind, run: Run::History(history), cut, error });
                break;
            }
            progress.step();
        }
        let mut searched = Searched { runs: seen.histories, ..Searched::new(kind) };
        searched.states = seen.states;
        searched.judged("cairn", (seen.states, seen.promises, 0));
        if let Some(name) = judges.checker() {
            searched.judged(name, (seen.states.div_ceil(depth.rare), 0, 0));
        }
        (searched, found)
    })
}

/// Repeats a history of a failure, at its cut or at all.
pub(super) fn replay(
    failure: &Failure,
    history: &cairn_crash::durability::History,
) -> Result<(Searched, Option<Failure>)> {
    let kind = failure.kind;
    let depth = Depth { cuts: usize::MAX, rare: 1 };
    with_subject(kind, depth, |subject, _| {
        let mut seen = Seen::default();
        let panicked = |error| Broken { history: history.clone(), cut: None, error };
        let examined = told(|| {
            Ok(match failure.cut {
                Some(cut) => examine_cut(subject, history, cut),
                None => examine(subject, history, 1, &mut seen),
            })
        });
        let examined = examined.unwrap_or_else(|error| Err(panicked(error)));
        let states = if failure.cut.is_some() { 1 } else { seen.states };
        let mut searched = Searched { runs: 1, states, ..Searched::new(kind) };
        searched.judged("cairn", (states, seen.promises, 0));
        let found = examined.err().map(|Broken { history, cut, error }| Failure {
            kind,
            run: Run::History(history),
            cut,
            error,
        });
        (searched, found)
    })
}

impl From<String> for Error {
    fn from(what: String) -> Self {
        Self::Program(what)
    }
}
