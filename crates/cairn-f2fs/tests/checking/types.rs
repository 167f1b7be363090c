//! Every wrong type in `i_mode` of an inode of every shape: a repair without losses gives the inode
//! its type back, as its name and its contents say. What nothing proves is listed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_f2fs::format::inode;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{Caller, FileKind, FileSystem, IoFlags, NewInode, XattrMode};

use crate::inject::{Injection, Target};
use crate::repair::{apply, fsck, plan};
use crate::volume::{MIB, open, volume};
use crate::{check, lines};

const TEXT: &[u8] = b"a line of a file that lies in its inode\n";
const INLINE_AT: usize = 3;
/// Bits 12 to 15 of `i_mode`.
const TYPE_AT: usize = 1;
const PERMISSIONS: u32 = 0o644;

/// Paths with types, and with contents or targets.
pub type Tree = BTreeMap<Vec<u8>, (FileKind, Vec<u8>)>;

pub fn plant(fs: &F2fs) {
    let create = |parent, name: &str, new| {
        let is_open = matches!(new, NewInode::Symlink(_)) || name == "line";
        let permissions = if is_open { 0o777 } else { PERMISSIONS };
        fs.create(parent, name.as_bytes(), new, permissions, &Caller::ROOT).unwrap().ino
    };
    let root = fs.root();
    for (name, bytes) in
        [("inline", TEXT.repeat(60)), ("pointers", vec![7; 50_000]), ("nodes", vec![8; 5_000_000])]
    {
        let ino = create(root, name, NewInode::Regular);
        fs.write(ino, 0, &bytes, IoFlags::empty()).unwrap();
    }
    create(root, "link", NewInode::Symlink(b"pointers"));
    create(root, "long link", NewInode::Symlink(&[b'l'; 3900]));
    create(root, "empty", NewInode::Regular);
    // Contents and permissions that a link could have, too.
    let line = create(root, "line", NewInode::Regular);
    fs.write(line, 0, b"1.24-rc1", IoFlags::empty()).unwrap();
    create(root, "pipe", NewInode::Fifo);
    create(root, "socket", NewInode::Socket);
    create(root, "device", NewInode::CharDevice(0x0105));
    create(root, "disk", NewInode::BlockDevice(0x0010_3005));
    // Holes before what there is, as of a form that is read elsewhere.
    for (name, at, len) in [("hole", 20_480, 30_000), ("long hole", 16_384, 5_000_000)] {
        let ino = create(root, name, NewInode::Regular);
        fs.write(ino, at, &vec![9; len], IoFlags::empty()).unwrap();
    }
    for (name, len) in [("attributes", 40), ("more attributes", 2500)] {
        let ino = create(root, name, NewInode::Regular);
        fs.write(ino, 0, &TEXT.repeat(3), IoFlags::empty()).unwrap();
        fs.setxattr(ino, b"user.name", &vec![b'v'; len], XattrMode::Set).unwrap();
    }
    let small = create(root, "small", NewInode::Directory);
    let large = create(root, "large", NewInode::Directory);
    for index in 0..5_u8 {
        let ino = create(small, &format!("in the inode {index}"), NewInode::Regular);
        fs.write(ino, 0, &[index; 900], IoFlags::empty()).unwrap();
        fs.link(ino, large, format!("linked {index}").as_bytes()).unwrap();
    }
    for index in 0..300 {
        create(large, &format!("a rather long name in a block {index}"), NewInode::Regular);
    }
    create(large, "below", NewInode::Directory);
    fs.unmount().unwrap();
}

fn read(device: &Arc<dyn BlockDevice>) -> Tree {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let runtime = cairn_base::runtime::threads::Threads::new();
    let fs = F2fs::open(device.clone(), runtime, &options).unwrap();
    let mut tree = Tree::new();
    let mut waiting = vec![(fs.root(), Vec::new())];
    while let Some((dir, path)) = waiting.pop() {
        let mut names = Vec::new();
        fs.readdir(dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .unwrap();
        for name in names.into_iter().filter(|name| name != b"." && name != b"..") {
            let attr = fs.lookup(dir, &name).unwrap();
            let path = [&path[..], b"/", &name].concat();
            let bytes = match attr.kind {
                FileKind::Regular => {
                    let mut bytes = vec![0; usize::try_from(attr.size).unwrap()];
                    fs.read(attr.ino, 0, &mut bytes, IoFlags::empty()).unwrap();
                    bytes
                }
                FileKind::Symlink => fs.readlink(attr.ino).unwrap(),
                FileKind::Directory => {
                    waiting.push((attr.ino, path.clone()));
                    Vec::new()
                }
                _ => Vec::new(),
            };
            tree.insert(path, (attr.kind, bytes));
        }
    }
    tree
}

pub struct Judge {
    pub target: Target,
    pub sound: Tree,
    pub numbers: BTreeMap<&'static str, u32>,
}

const NAMES: [&str; 13] = [
    "inline",
    "empty",
    "line",
    "pointers",
    "nodes",
    "link",
    "long link",
    "pipe",
    "socket",
    "device",
    "disk",
    "small",
    "large",
];

/// A planted volume for each list of arguments.
static PLANTED: Mutex<BTreeMap<String, Arc<MemoryDevice>>> = Mutex::new(BTreeMap::new());

/// A volume of mkfs.f2fs with what [`plant`] makes. It is made once.
pub fn planted(arguments: &[&str]) -> Arc<MemoryDevice> {
    let mut planted = PLANTED.lock().unwrap();
    let known = planted.entry(arguments.join(" ")).or_insert_with(|| {
        let device = volume(64 * MIB, arguments);
        plant(&open(device.clone(), ""));
        device
    });
    Arc::new(known.fork())
}

impl Judge {
    pub fn new(arguments: &[&str]) -> Self {
        Self::of(&planted(arguments))
    }

    /// A volume that was planted, and perhaps changed.
    pub fn of(device: &Arc<MemoryDevice>) -> Self {
        let target = Target::of(device);
        let device: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
        let fs = open(Arc::new(target.device.fork()), "");
        let number = |name: &str| fs.lookup(fs.root(), name.as_bytes()).unwrap().ino.get();
        let numbers = NAMES.map(|name| (name, u32::try_from(number(name)).unwrap()));
        let numbers = numbers.into_iter().chain([("/", 3)]).collect();
        drop(fs);
        Self { sound: read(&device), target, numbers }
    }

    /// A change of an inode, with its checksum.
    pub fn change(&self, name: &str, change: &dyn Fn(&mut Vec<u8>)) -> Injection {
        let at = self.target.inode_of(self.numbers[name]);
        let mut bytes = self.target.read(at);
        change(&mut bytes);
        inode::seal(&mut bytes, self.target.layout());
        Injection { what: name.into(), blocks: vec![(at, bytes)] }
    }

    /// A repair; the volume after it is sound, and a further one changes nothing. Returns the tree
    /// if everything was mended, and the paths of what was lost.
    pub fn repair(&self, injection: &Injection, scope: Scope) -> (Option<Tree>, Vec<Vec<u8>>) {
        let what = &injection.what;
        let base: Arc<dyn BlockDevice> = Arc::new(self.target.device.fork());
        let overlay = Arc::new(Overlay::new(base).unwrap());
        let device: Arc<dyn BlockDevice> = overlay.clone();
        for (at, bytes) in &injection.blocks {
            device.write_at(*at, bytes.clone()).unwrap();
        }
        let done = plan(&device, scope).unwrap();
        assert!(!done.is_refused, "{what}:\n{}", lines(&done.after));
        let lost = done.steps.losing().filter_map(|step| Some(step.loss.as_ref()?.path.to_vec()));
        let lost: Vec<_> = lost.collect();
        apply(&done, &device);
        if done.after.count() > 0 {
            assert_eq!(scope, Scope::Accounting, "{what}:\n{}", lines(&done.after));
            return (None, lost);
        }
        let found = check(device.clone()).unwrap();
        assert_eq!(found.count(), 0, "{what}:\n{}", lines(&found));
        assert!(plan(&device, Scope::All).unwrap().changes.is_empty(), "{what}");
        if scope == Scope::All {
            fsck(&self.target, &overlay).unwrap_or_else(|why| panic!("{what}: {why}"));
        }
        (Some(read(&device)), lost)
    }

    fn every_type(&self) {
        for (number, name) in NAMES.into_iter().chain(["/"]).enumerate() {
            for code in (0..16_u8).filter(|code| is_sampled(number, *code)) {
                let set = |bytes: &mut Vec<u8>| {
                    bytes[TYPE_AT] = bytes[TYPE_AT] & 0xf | code << 4;
                };
                let mut injection = self.change(name, &set);
                let (at, bytes) = &injection.blocks[0];
                if self.target.read(*at) == *bytes {
                    continue;
                }
                injection.what = format!("{name}, type {code:#x}");
                let what = &injection.what;
                // Nothing shows the type of a FIFO. A line may be a file's or a link's.
                let is_shown = match name {
                    "pipe" | "socket" => false,
                    "device" | "disk" => is_type(code),
                    "line" => code != LINK,
                    "link" | "long link" => code != FILE,
                    _ => true,
                };
                let (tree, lost) = self.repair(&injection, Scope::Accounting);
                assert!(lost.is_empty(), "{what}");
                assert_eq!(tree.is_some(), is_shown, "{what}");
                assert!(tree.is_none_or(|tree| tree == self.sound), "{what}");
                if !is_shown || code.is_multiple_of(4) || cairn_testkit::deep() {
                    let (tree, lost) = self.repair(&injection, Scope::All);
                    assert_eq!(lost.is_empty(), is_shown, "{what}");
                    let is_named = lost.iter().any(|path| path.ends_with(name.as_bytes()));
                    assert!(is_shown || is_named, "{what}: {lost:?}");
                    let mut tree = tree.unwrap();
                    if !is_shown {
                        let path = [b"/", name.as_bytes()].concat();
                        tree.insert(path.clone(), self.sound[&path].clone());
                    }
                    assert!(tree == self.sound, "{what}");
                }
            }
        }
    }
}

/// The types of files and links.
const FILE: u8 = 8;
const LINK: u8 = 10;

/// Those that can be mistaken for each other, and a part of the others.
fn is_sampled(number: usize, code: u8) -> bool {
    matches!(code, FILE | LINK) || usize::from(code) % 5 == number % 5 || cairn_testkit::deep()
}

/// Is it a type of files?
fn is_type(code: u8) -> bool {
    FileKind::from_mode(u32::from(code) << 12).is_some()
}

#[test]
fn a_wrong_type_is_given_back() {
    Judge::new(&[]).every_type();
}

#[test]
fn a_wrong_type_is_given_back_with_checksums() {
    let features = "extra_attr,inode_checksum,inode_crtime,flexible_inline_xattr";
    Judge::new(&["-O", features]).every_type();
}

/// Type and form of a file with inline contents are wrong: what goes is listed.
#[test]
fn contents_that_are_cut_are_listed() {
    let judge = Judge::new(&[]);
    let injection = judge.change("inline", &|bytes| {
        bytes[TYPE_AT] = 0xc0 | bytes[TYPE_AT] & 0xf;
        // The word before the contents is not 0: they fit no form.
        bytes[360] = 1;
    });
    let (tree, lost) = judge.repair(&injection, Scope::Accounting);
    assert!(tree.is_none() && lost.is_empty());
    let (tree, lost) = judge.repair(&injection, Scope::All);
    assert!(tree.unwrap() == judge.sound || lost.contains(&b"/inline".to_vec()));
}

/// The pointer of a link is none, or leads nowhere: the link is found, and goes.
#[test]
fn a_link_without_a_target_is_found() {
    let judge = Judge::new(&[]);
    for pointer in [0_u32, 58_077, u32::MAX] {
        let target = std::cell::Cell::new(0);
        let mut injection = judge.change("long link", &|bytes| {
            assert_eq!(bytes[INLINE_AT] & 2, 0);
            target.set(u32::from_le_bytes(bytes[360..364].try_into().unwrap()));
            bytes[360..364].copy_from_slice(&pointer.to_le_bytes());
        });
        // The summary of the block leads back to it.
        injection.blocks.push((u64::from(target.get()) * 4096, vec![0; 4096]));
        injection.what = format!("pointer {pointer:#x}");
        assert!(judge.repair(&injection, Scope::Accounting).0.is_none());
        let (tree, lost) = judge.repair(&injection, Scope::All);
        let mut sound = judge.sound.clone();
        sound.remove(&b"/long link"[..]);
        assert!(tree.unwrap() == sound, "{pointer:#x}");
        assert!(lost.contains(&b"/long link".to_vec()), "{pointer:#x}: {lost:?}");
    }
}

/// The size of a link is not that of its target, which ends with a NUL: it is set.
#[test]
fn the_size_of_a_link_is_that_of_its_target() {
    let judge = Judge::new(&[]);
    for (name, size) in [("link", 3_u64), ("link", 20), ("long link", 1), ("long link", 4000)] {
        let mut injection = judge.change(name, &|bytes| {
            bytes[16..24].copy_from_slice(&size.to_le_bytes());
        });
        injection.what = format!("{name}, size {size}");
        let (tree, lost) = judge.repair(&injection, Scope::Accounting);
        assert!(tree.is_some_and(|tree| tree == judge.sound), "{}", injection.what);
        assert!(lost.is_empty());
    }
}
