//! What readers of a damaged volume deliver: for each change of a field, a file or a directory is
//! as it was, or an error is returned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_check::repair::Scope;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{FileKind, FileSystem, IoFlags, SetAttributes};

use crate::flags::sampled_of;
use crate::inject::Injection;
use crate::repair::{apply, damaged, plan};
use crate::rescue::rescued;
use crate::sweep::cases;
use crate::types::Judge;
use crate::volume::open;
use crate::{check, lines};

/// Most bytes of a file that are read.
const MOST: u64 = 6 << 20;
/// Most bytes of a path that is followed.
const DEPTH: usize = 60;

/// What only a walk over the whole volume finds, because the place itself is possible: a hole, a
/// pointer to a free block, a name that leads to another inode, and a name of one slot that is
/// marked as free.
const UNSEEN: [&str; 4] = ["hole", "free block", "number", "bitmap"];

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub ino: u64,
    pub kind: FileKind,
    pub size: u64,
    /// The contents, or the target.
    pub bytes: Vec<u8>,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What could be read, and the paths of what could not.
#[derive(Default)]
pub struct View {
    pub found: BTreeMap<Vec<u8>, Read>,
    pub failed: BTreeSet<Vec<u8>>,
}

impl View {
    /// Everything that can be read of a volume.
    pub fn of(device: &Arc<dyn BlockDevice>) -> Self {
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        match F2fs::open(device.clone(), Threads::new(), &options) {
            Ok(fs) => Self::seen(&fs),
            Err(_) => Self { failed: BTreeSet::from([Vec::new()]), ..Self::default() },
        }
    }

    /// Everything that can be read of a mounted volume.
    pub fn seen(fs: &F2fs) -> Self {
        let mut view = Self::default();
        view.walk(fs);
        view
    }

    fn walk(&mut self, fs: &F2fs) {
        let mut waiting = vec![(fs.root(), Vec::new())];
        while let Some((dir, path)) = waiting.pop() {
            let mut names = Vec::new();
            let listed = fs.readdir(dir, 0, &mut |entry| {
                names.push(entry.name.to_vec());
                true
            });
            // A directory below itself has no end.
            if path.len() > DEPTH {
                continue;
            }
            if listed.is_err() {
                self.failed.insert(path.clone());
            }
            for name in names.into_iter().filter(|name| name != b"." && name != b"..") {
                let path = [&path[..], b"/", &name].concat();
                let Ok(attr) = fs.lookup(dir, &name) else {
                    self.failed.insert(path);
                    continue;
                };
                if attr.kind == FileKind::Directory {
                    waiting.push((attr.ino, path.clone()));
                }
                match read(fs, &attr) {
                    Some(read) => drop(self.found.insert(path, read)),
                    None => drop(self.failed.insert(path)),
                }
            }
        }
    }

    /// Could this path, or a directory on the way to it, not be read?
    pub fn has_failed(&self, path: &[u8]) -> bool {
        self.failed.iter().any(|failed| {
            path.strip_prefix(&failed[..])
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        })
    }

    /// Paths that are read otherwise than on a sound volume.
    pub fn wrong(&self, sound: &Self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (path, right) in sound.found.iter().filter(|(path, _)| !self.has_failed(path)) {
            let why = match self.found.get(path) {
                None => "missing",
                Some(found) if found.kind != right.kind => "another type",
                Some(found) if found.size != right.size && found.kind == FileKind::Regular => {
                    "another size"
                }
                Some(found) if found.bytes != right.bytes => "other contents",
                Some(found) if found.attributes != right.attributes => "other attributes",
                Some(_) => continue,
            };
            wrong.push(format!("{}: {why}", String::from_utf8_lossy(path)));
        }
        for path in self.found.keys().filter(|path| !sound.found.contains_key(*path)) {
            wrong.push(format!("{}: it was not there", String::from_utf8_lossy(path)));
        }
        wrong
    }
}

/// What is read of a volume before and after a repair without losses. All of it can be read, and
/// nothing is wrong with the volume then.
pub fn repaired_views(device: &Arc<dyn BlockDevice>, what: &str) -> [View; 2] {
    let before = View::of(device);
    assert!(before.failed.is_empty(), "{what}: {:?}", before.failed);
    [before, repaired_view(device, what)]
}

/// As [`repaired_views`], of a volume of which something cannot be read before the repair.
pub fn repaired_view(device: &Arc<dyn BlockDevice>, what: &str) -> View {
    let mended = plan(device, Scope::Accounting).unwrap();
    assert_eq!(mended.after.count(), 0, "{what}:\n{}", lines(&mended.after));
    apply(&mended, device);
    assert_eq!(check(device.clone()).unwrap().count(), 0, "{what}");
    let view = View::of(device);
    assert!(view.failed.is_empty(), "{what}: {:?}", view.failed);
    view
}

fn read(fs: &F2fs, attr: &cairn_vfs::Attributes) -> Option<Read> {
    let bytes = match attr.kind {
        FileKind::Regular => {
            let mut bytes = vec![0; usize::try_from(attr.size.min(MOST)).unwrap()];
            let len = fs.read(attr.ino, 0, &mut bytes, IoFlags::empty()).ok()?;
            bytes.truncate(len);
            bytes
        }
        FileKind::Symlink => fs.readlink(attr.ino).ok()?,
        FileKind::CharDevice | FileKind::BlockDevice => attr.device.to_le_bytes().to_vec(),
        _ => Vec::new(),
    };
    let mut attributes = BTreeMap::new();
    for name in fs.listxattr(attr.ino).ok()? {
        let value = fs.getxattr(attr.ino, &name).ok()?;
        attributes.insert(name, value);
    }
    let (ino, kind, size) = (attr.ino.get(), attr.kind, attr.size);
    Some(Read { ino, kind, size, bytes, attributes })
}

fn search(arguments: &[&str], seed: u64) {
    let judge = Judge::new(arguments);
    let sound: Arc<dyn BlockDevice> = Arc::new(judge.target.device.fork());
    let sound = View::of(&sound);
    assert!(sound.failed.is_empty() && sound.found.len() > 300);
    let (mut wrong, mut right, mut unknown) = (String::new(), 0, 0);
    for case in sampled_of(cases(&judge), seed, 60) {
        if UNSEEN.contains(&case.field) {
            continue;
        }
        let device: Arc<dyn BlockDevice> = Arc::new(damaged(&judge.target, &case.injection));
        let found = View::of(&device).wrong(&sound);
        if found.is_empty() {
            right += 1;
            continue;
        }
        let report = check(device.clone()).unwrap();
        // What nothing contradicts may be right.
        if report.count() == 0 {
            unknown += 1;
            continue;
        }
        wrong +=
            &format!("{}:\n  {}\n", case.injection.what, found[..found.len().min(3)].join("\n  "));
        wrong += &lines(&report);
    }
    println!("{right} right, {unknown} of which nothing is known");
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn readers_deliver_what_was_there() {
    search(&[], 11);
}

#[test]
fn readers_deliver_what_was_there_with_extra_attributes() {
    search(&["-O", "extra_attr,inode_checksum,inode_crtime"], 12);
}

#[test]
fn readers_deliver_what_was_there_with_flexible_attributes() {
    search(&["-O", "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,compression"], 13);
}

/// Not even the root seems to be empty when its first block is lost.
#[test]
fn a_directory_without_its_first_block_is_not_listed_as_empty() {
    let judge = Judge::new(&[]);
    let sound: Arc<dyn BlockDevice> = Arc::new(judge.target.device.fork());
    let sound = View::of(&sound);
    for name in ["/", "large"] {
        let inode = judge.target.read(judge.target.inode_of(judge.numbers[name]));
        let at = u64::from(crate::listed::word(&inode, 360)) * 4096;
        for (what, injection) in [
            ("zeros", Injection { what: name.into(), blocks: vec![(at, vec![0; 4096])] }),
            ("hole", judge.change(name, &|bytes| bytes[360..364].fill(0))),
        ] {
            let device = Arc::new(damaged(&judge.target, &injection));
            let view = View::of(&(device.clone() as Arc<dyn BlockDevice>));
            assert!(view.wrong(&sound).is_empty(), "{name}, {what}: {:?}", view.wrong(&sound));
            let path = if name == "/" { Vec::new() } else { b"/large".to_vec() };
            assert!(view.failed.contains(&path), "{name}, {what}");
            // A volume that is written says the same.
            let fs = open(device, "");
            let dir = match name {
                "/" => Ok(fs.root()),
                _ => fs.lookup(fs.root(), name.as_bytes()).map(|attr| attr.ino),
            };
            let error = dir.and_then(|dir| fs.readdir(dir, 0, &mut |_| true)).unwrap_err();
            assert_eq!(error.errno(), 117, "{name}, {what}: {error}");
        }
    }
}

/// The rest of inline contents is neither cut off nor cleared, before a repair sets the size.
#[test]
fn inline_contents_that_go_on_behind_the_end_are_refused() {
    let judge = Judge::new(&[]);
    let injection = judge.change("inline", &|bytes| {
        bytes[16..24].copy_from_slice(&1_u64.to_le_bytes());
    });
    let device = Arc::new(damaged(&judge.target, &injection));
    let failed = View::of(&(device.clone() as Arc<dyn BlockDevice>)).failed;
    assert!(failed.contains(&b"/inline"[..]));
    let taken = rescued(Arc::new(damaged(&judge.target, &injection)));
    assert!(taken.losses.iter().any(|loss| loss.what.contains("i_size is 1")));
    let fs = open(device.clone(), "");
    let ino = fs.lookup(fs.root(), b"inline").unwrap().ino;
    let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    for result in [
        fs.write(ino, 0, b"x", IoFlags::empty()).map(drop),
        fs.write(ino, 9000, b"x", IoFlags::empty()).map(drop),
        fs.setattr(ino, &size(100)).map(drop),
        fs.setattr(ino, &size(100_000)).map(drop),
    ] {
        assert_eq!(result.unwrap_err().errno(), 117);
    }
    fs.unmount().unwrap();
    let (tree, lost) = judge.repair(&injection, Scope::All);
    assert!(tree.unwrap() == judge.sound && lost == [b"/inline"]);
    // Cutting everything off asks for nothing of it.
    let fs = open(Arc::new(damaged(&judge.target, &injection)), "");
    fs.setattr(ino, &size(0)).unwrap();
    fs.setattr(ino, &size(2000)).unwrap();
    let mut read = vec![1; 2000];
    assert_eq!(fs.read(ino, 0, &mut read, IoFlags::empty()).unwrap(), 2000);
    assert!(read.iter().all(|byte| *byte == 0));
}

/// Linux reads the file by its size. Bytes behind a gap do not show another size.
#[test]
fn damage_behind_inline_contents_does_not_make_the_file_longer() {
    let judge = Judge::new(&[]);
    // The contents are 28 bytes at byte 364.
    let change = |junk: bool| {
        judge.change("inline", &|bytes| {
            bytes[16..24].copy_from_slice(&28_u64.to_le_bytes());
            bytes[364..364 + 3400].fill(0);
            bytes[364..364 + 28].fill(b'x');
            if junk {
                bytes[2500] = 0x20;
            }
        })
    };
    let sound = View::of(&(Arc::new(damaged(&judge.target, &change(false))) as _));
    let injection = change(true);
    let device = Arc::new(damaged(&judge.target, &injection));
    let view = View::of(&(device.clone() as Arc<dyn BlockDevice>));
    assert!(view.failed.is_empty() && view.wrong(&sound).is_empty());
    let (tree, lost) = judge.repair(&injection, Scope::All);
    let (right, _) = judge.repair(&change(false), Scope::All);
    assert!(tree.unwrap() == right.unwrap() && lost == [b"/inline"]);
}
