//! All histories of two steps, each with every way to make them durable, and then every power cut.
//!
//! A directory `d` with one file `f` is there and durable. The steps work on a *target*: that file, or the last one that was made.
//! What is promised then:
//!
//! - of `sync`: everything is as it was;
//! - of a file: its contents, attributes and names are, and no name that it gave up leads to it;
//! - of a directory: its names are, and what kind of thing each leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_vfs::{Caller, FileKind, FileSystem, IoFlags, NewInode, RenameMode, XattrMode};

use super::Subject;
use crate::crash::{CrashLog, Cut, Recording, Volatile};

const XATTR: &[u8] = b"user.state";
const BLOCK: usize = 4096;

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An empty file, the target from now on.
    Create,
    /// The target's latest name becomes another one.
    Rename,
    /// The target's latest name goes.
    Unlink,
    /// A directory.
    MakeDirectory,
    /// One more name of the target.
    Link,
    /// An attribute of the target.
    SetXattr,
    /// Bytes at the target's end.
    Append,
    /// Blocks at the target's end, past the cache.
    AppendDirect,
    /// The target's first block, past the cache.
    OverwriteDirect,
    /// The target loses its last bytes.
    Cut,
}

/// A way to make it durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// `fsync` of the target.
    File,
    /// `fdatasync` of the target.
    FileData,
    /// `fsync` of the directory.
    Directory,
    /// `fdatasync` of the directory.
    DirectoryData,
    /// `sync`.
    All,
}

impl Step {
    const ALL: [Self; 10] = [
        Self::Create,
        Self::Rename,
        Self::Unlink,
        Self::MakeDirectory,
        Self::Link,
        Self::SetXattr,
        Self::Append,
        Self::AppendDirect,
        Self::OverwriteDirect,
        Self::Cut,
    ];
}

impl Persist {
    const ALL: [Self; 5] = [Self::File, Self::FileData, Self::Directory, Self::DirectoryData, Self::All];
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Histories.
    pub histories: usize,
    /// Power cuts.
    pub states: usize,
    /// Names that had to be, or had to be gone.
    pub promises: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    bytes: Vec<u8>,
    xattr: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    Directory,
    File(File),
}

/// The directory as it is, and what is promised of it.
struct World<'f> {
    fs: &'f dyn FileSystem,
    directory: Ino,
    files: BTreeMap<Ino, File>,
    /// What each name leads to: a file's number, or a directory.
    names: BTreeMap<String, Option<Ino>>,
    /// Names that the target had.
    given_up: BTreeSet<String>,
    target: Ino,
    /// Its names, the latest last.
    target_names: Vec<String>,
    counter: u8,
}

/// What must be found: a thing; any file; nothing.
#[derive(Clone, Debug)]
enum Promise {
    Is(Thing),
    IsFile,
    Gone,
}

type Result<T> = cairn_vfs::Result<T>;

impl<'f> World<'f> {
    fn new(fs: &'f dyn FileSystem) -> Result<Self> {
        let root = fs.root();
        let directory = fs.create(root, b"d", NewInode::Directory, 0o755, &Caller::ROOT)?.ino;
        let target = fs.create(directory, b"f", NewInode::Regular, 0o644, &Caller::ROOT)?.ino;
        let bytes = vec![1; 5000];
        fs.write(target, 0, &bytes, IoFlags::empty())?;
        fs.sync()?;
        Ok(Self {
            fs,
            directory,
            files: BTreeMap::from([(target, File { bytes, xattr: None })]),
            names: BTreeMap::from([("f".to_owned(), Some(target))]),
            given_up: BTreeSet::new(),
            target,
            target_names: vec!["f".to_owned()],
            counter: 1,
        })
    }

    fn file(&mut self) -> &mut File {
        self.files.get_mut(&self.target).expect("the target is a file")
    }

    fn new_name(&self) -> String {
        format!("n{}", self.counter)
    }

    fn write(&mut self, offset: usize, len: usize, flags: IoFlags) -> Result<()> {
        let data = vec![self.counter; len];
        let done = self.fs.write(self.target, offset as u64, &data, flags)?;
        assert_eq!(done, len, "a short write on an empty volume");
        let bytes = &mut self.file().bytes;
        let size = bytes.len().max(offset + len);
        bytes.resize(size, 0);
        bytes[offset..offset + len].copy_from_slice(&data);
        Ok(())
    }

    /// False if the target has no name, which the step needs.
    fn step(&mut self, step: Step) -> Result<bool> {
        self.counter += 1;
        let (fs, directory, new) = (self.fs, self.directory, self.new_name());
        let size = self.file().bytes.len();
        let latest = self.target_names.last().cloned();
        match (step, latest) {
            (Step::Create, _) => {
                self.target = fs.create(directory, new.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)?.ino;
                self.files.insert(self.target, File { bytes: Vec::new(), xattr: None });
                self.names.insert(new.clone(), Some(self.target));
                (self.target_names, self.given_up) = (vec![new], BTreeSet::new());
            }
            (Step::Rename, Some(old)) => {
                fs.rename(directory, old.as_bytes(), directory, new.as_bytes(), RenameMode::Replace)?;
                self.take_name(&old);
                self.give_name(new);
            }
            (Step::Unlink, Some(old)) => {
                fs.unlink(directory, old.as_bytes())?;
                self.take_name(&old);
            }
            (Step::Link, Some(_)) => {
                fs.link(self.target, directory, new.as_bytes())?;
                fs.forget(self.target, 1);
                self.give_name(new);
            }
            (Step::Rename | Step::Unlink | Step::Link, None) => return Ok(false),
            (Step::MakeDirectory, _) => {
                let made = fs.create(directory, new.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT)?.ino;
                fs.forget(made, 1);
                self.names.insert(new, None);
            }
            (Step::SetXattr, _) => {
                let value = vec![self.counter; 20];
                fs.setxattr(self.target, XATTR, &value, XattrMode::Set)?;
                self.file().xattr = Some(value);
            }
            (Step::Append, _) => self.write(size, 3000, IoFlags::empty())?,
            (Step::AppendDirect, _) => {
                self.write(size.next_multiple_of(BLOCK), 2 * BLOCK, IoFlags::DIRECT)?;
            }
            (Step::OverwriteDirect, _) => self.write(0, BLOCK, IoFlags::DIRECT)?,
            (Step::Cut, _) => {
                let size = size.saturating_sub(1000);
                fs.setattr(self.target, &cairn_vfs::SetAttributes { size: Some(size as u64), ..Default::default() })?;
                self.file().bytes.truncate(size);
            }
        }
        Ok(true)
    }

    fn take_name(&mut self, old: &str) {
        self.names.remove(old);
        self.target_names.retain(|name| name != old);
        self.given_up.insert(old.to_owned());
    }

    fn give_name(&mut self, new: String) {
        self.names.insert(new.clone(), Some(self.target));
        self.target_names.push(new);
    }

    fn persist(&self, persist: Persist) -> Result<()> {
        match persist {
            Persist::File => self.fs.fsync(self.target, 0, false),
            Persist::FileData => self.fs.fsync(self.target, 0, true),
            Persist::Directory => self.fs.fsync(self.directory, 0, false),
            Persist::DirectoryData => self.fs.fsync(self.directory, 0, true),
            Persist::All => self.fs.sync(),
        }
    }

    fn thing(&self, ino: Option<Ino>) -> Thing {
        ino.map_or(Thing::Directory, |ino| Thing::File(self.files[&ino].clone()))
    }

    /// What is promised, and whether there may be no other names.
    fn promised(&self, persist: Persist) -> (BTreeMap<String, Promise>, bool) {
        let gone = self.given_up.iter().map(|name| (name.clone(), Promise::Gone));
        let all = self.names.iter();
        match persist {
            Persist::File | Persist::FileData => {
                let mine = all.filter(|(_, ino)| **ino == Some(self.target));
                let mine = mine.map(|(name, ino)| (name.clone(), Promise::Is(self.thing(*ino))));
                (mine.chain(gone).collect(), false)
            }
            Persist::Directory | Persist::DirectoryData => {
                let kind = |ino: &Option<Ino>| ino.map_or(Promise::Is(Thing::Directory), |_| Promise::IsFile);
                (all.map(|(name, ino)| (name.clone(), kind(ino))).collect(), true)
            }
            Persist::All => (all.map(|(name, ino)| (name.clone(), Promise::Is(self.thing(*ino)))).collect(), true),
        }
    }
}

fn look(fs: &dyn FileSystem) -> Result<BTreeMap<String, Thing>> {
    let directory = fs.lookup(fs.root(), b"d")?.ino;
    let mut names = Vec::new();
    fs.readdir(directory, 0, &mut |entry| {
        names.push(entry.name);
        true
    })?;
    names.retain(|name| name != b"." && name != b"..");
    let mut found = BTreeMap::new();
    for name in names {
        let attributes = fs.lookup(directory, &name)?;
        let thing = if attributes.kind == FileKind::Directory {
            Thing::Directory
        } else {
            let mut bytes = vec![0; usize::try_from(attributes.size).expect("small")];
            let read = fs.read(attributes.ino, 0, &mut bytes, IoFlags::empty())?;
            assert_eq!(read, bytes.len());
            let xattr = match fs.getxattr(attributes.ino, XATTR) {
                Ok(value) => Some(value),
                Err(cairn_vfs::Error::NoAttribute) => None,
                Err(error) => return Err(error),
            };
            Thing::File(File { bytes, xattr })
        };
        fs.forget(attributes.ino, 1);
        found.insert(String::from_utf8_lossy(&name).into_owned(), thing);
    }
    fs.forget(directory, 1);
    Ok(found)
}

fn describe(thing: Option<&Thing>) -> String {
    match thing {
        None => "nothing".into(),
        Some(Thing::Directory) => "a directory".into(),
        Some(Thing::File(file)) => {
            let sum: u64 = file.bytes.iter().map(|byte| u64::from(*byte)).sum();
            format!("a file of {} bytes (sum {sum}), attribute {:?}", file.bytes.len(), file.xattr)
        }
    }
}

fn check(promised: &BTreeMap<String, Promise>, complete: bool, fs: &dyn FileSystem) -> std::result::Result<(), String> {
    let found = look(fs).map_err(|error| format!("reading after recovery: {error}"))?;
    for (name, promise) in promised {
        let there = found.get(name);
        let kept = match promise {
            Promise::Is(thing) => there == Some(thing),
            Promise::IsFile => matches!(there, Some(Thing::File(_))),
            Promise::Gone => there.is_none(),
        };
        if !kept {
            let promised = match promise {
                Promise::Is(thing) => describe(Some(thing)),
                Promise::IsFile => "a file".into(),
                Promise::Gone => "nothing".into(),
            };
            return Err(format!("{name} is {}, promised was {promised}", describe(there)));
        }
    }
    match found.keys().find(|name| complete && !promised.contains_key(*name)) {
        Some(name) => Err(format!("{name} is there")),
        None => Ok(()),
    }
}

/// A history that was recorded.
struct Run {
    log: CrashLog,
    /// When its last call returned.
    from: u64,
    promised: BTreeMap<String, Promise>,
    complete: bool,
}

/// What happens besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    /// All is written, nothing flushed, and the inodes have left memory before the last call.
    Evicted,
    /// The target is fsynced, twice, before the last step.
    Fsynced,
}

fn run(subject: &Subject<'_>, steps: &[Step], persist: Persist, meanwhile: Meanwhile) -> Result<Option<Run>> {
    let recording = Recording::start(subject.fresh.fork());
    let opened = (subject.open)(recording.device());
    let fs = &*opened.fs;
    let mut world = World::new(fs)?;
    for (index, step) in steps.iter().enumerate() {
        if meanwhile == Meanwhile::Fsynced && index + 1 == steps.len() {
            world.persist(Persist::File)?;
            world.persist(Persist::File)?;
        }
        if !world.step(*step)? {
            return Ok(None);
        }
    }
    if meanwhile == Meanwhile::Evicted {
        fs.extents(world.target, 0, u64::MAX >> 1, true, &mut |_| true)?;
        if !world.target_names.is_empty() {
            fs.forget(world.target, 1);
        }
        fs.forget(world.directory, 1);
        (opened.evict)();
    }
    world.persist(persist)?;
    let from = recording.moment();
    let (promised, complete) = world.promised(persist);
    fs.shutdown(false)?;
    drop(opened);
    Ok(Some(Run { log: recording.finish(), from, promised, complete }))
}

fn judge(subject: &Subject<'_>, run: &Run, cut: Cut, foreign: bool) -> std::result::Result<usize, String> {
    if foreign && let Some(judge) = subject.judge_cut {
        judge(&run.log.device(cut))?;
    }
    let device = Arc::new(run.log.device(cut));
    let opened = (subject.open)(device.clone());
    let kept = if cut.moment >= run.from {
        check(&run.promised, run.complete, &*opened.fs)?;
        run.promised.len()
    } else {
        0
    };
    opened.fs.unmount().map_err(|error| format!("closing after recovery: {error}"))?;
    drop(opened);
    if foreign {
        let device: &MemoryDevice = &device;
        (subject.judge)(device)?;
    }
    Ok(kept)
}

/// Looks at all histories of one and two steps; the foreign judge sees every `rare`-th state. The first broken promise is the
/// error.
///
/// # Errors
/// What was promised is not there, or a judge complains.
pub fn search(subject: &Subject<'_>, rare: usize) -> std::result::Result<Seen, String> {
    let mut seen = Seen::default();
    let second = std::iter::once(None).chain(Step::ALL.into_iter().map(Some));
    for (first, second) in Step::ALL.into_iter().flat_map(|first| second.clone().map(move |second| (first, second))) {
        let steps: Vec<Step> = std::iter::once(first).chain(second).collect();
        for persist in Persist::ALL {
            for meanwhile in [Meanwhile::Nothing, Meanwhile::Evicted, Meanwhile::Fsynced] {
                let name = format!("{steps:?}, {persist:?}, {meanwhile:?} before");
                let run = run(subject, &steps, persist, meanwhile).map_err(|error| format!("{name}: {error}"))?;
                let Some(run) = run else { continue };
                seen.histories += 1;
                let mut cuts: Vec<Cut> = run.log.barrier_cuts();
                cuts.retain(|cut| cut.moment >= run.from || cut.volatile == Volatile::Lost);
                // What comes before the steps is the same for all.
                let late = cuts.len().saturating_sub(subject.cuts);
                let random = Volatile::Random(seen.histories as u64);
                let end = Cut { moment: run.log.log().end, volatile: random };
                for cut in cuts.split_off(late).into_iter().chain([end]) {
                    let foreign = seen.states.is_multiple_of(rare);
                    seen.states += 1;
                    let error = |error| format!("{name}, {cut} (the call returned at {}): {error}", run.from);
                    seen.promises += judge(subject, &run, cut, foreign).map_err(error)?;
                }
            }
        }
    }
    Ok(seen)
}
