//! Volumes with the features of Android: directories that ignore case, encrypted inodes, and quota
//! files. Cairn writes them, and refuses what it cannot do for each inode.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::F2fs;
use cairn_f2fs::mkfs::populate::Population;
use cairn_f2fs::mkfs::{self, MkfsOptions};
use cairn_testkit::judge::assert_f2fs_device_clean;
use cairn_testkit::made::Made;
use cairn_vfs::new_tree::{Node, ReadResult, Source};
use cairn_vfs::{
    Caller, Error, FileSystem, InodeFlags, IoFlags, NewInode, RenameMode, SetAttributes,
};

use crate::support::{CASEFOLD, find, judge, make, names, open, set_bits};

const BLOCK: u64 = 4096;
/// `i_advise`, and its bit.
const ENCRYPT: (u64, u8) = (2, 0x4);

/// A new volume with these features.
fn new(features: &str) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(96 << 20));
    let options = MkfsOptions { features: vec![features.into()], ..MkfsOptions::default() };
    mkfs::make(device.clone(), &options, &*Threads::new()).unwrap();
    device
}

/// A volume with an empty directory `fold` that ignores case, as `chattr +F` makes one.
fn folding(features: &str) -> (Arc<MemoryDevice>, Ino) {
    let device = new(features);
    let fs = open(&device, "");
    let fold = make(&fs, fs.root(), b"fold", NewInode::Directory).unwrap().ino;
    fs.unmount().unwrap();
    drop(fs);
    set_bits(&device, fold, CASEFOLD);
    (device, fold)
}

fn file(fs: &F2fs, parent: Ino, name: &str) -> cairn_vfs::Result<Ino> {
    make(fs, parent, name.as_bytes(), NewInode::Regular).map(|made| made.ino)
}

#[test]
fn names_of_ascii_letters_ignore_case() {
    let (device, fold) = folding("casefold");
    let fs = open(&device, "");
    assert!(fs.ignores_case(fold) && !fs.ignores_case(fs.root()));
    let one = file(&fs, fold, "Name").unwrap();
    assert_eq!(find(&fs, fold, b"nAME").unwrap().ino, one);
    assert!(matches!(file(&fs, fold, "NAME"), Err(Error::Exists)));
    assert!(matches!(file(&fs, fold, "Größe"), Err(Error::Unsupported(_))));
    let unnamed = fs.tmpfile(fs.root(), 0o644, &Caller::ROOT).unwrap().ino;
    assert!(matches!(fs.link(unnamed, fold, "é".as_bytes()), Err(Error::Unsupported(_))));
    fs.link(unnamed, fold, b"Linked").unwrap();
    let moved = file(&fs, fs.root(), "Größe").unwrap();
    let rename =
        |from: Ino, name: &[u8], to: &[u8]| fs.rename(from, name, fold, to, RenameMode::Replace);
    assert!(matches!(
        rename(fs.root(), "Größe".as_bytes(), "É".as_bytes()),
        Err(Error::Unsupported(_))
    ));
    // The entry of an old name keeps its letters.
    rename(fs.root(), "Größe".as_bytes(), b"LINKED").unwrap();
    assert_eq!(find(&fs, fold, b"linked").unwrap().ino, moved);
    assert!(names(&fs, fold).contains(&b"Linked".to_vec()));
    rename(fold, b"linked", b"Other").unwrap();
    rename(fold, b"OTHER", b"other").unwrap();
    assert!(names(&fs, fold).contains(&b"Other".to_vec()), "one name in two forms");

    let below = make(&fs, fold, b"Below", NewInode::Directory).unwrap().ino;
    assert!(fs.ignores_case(below), "inherited");
    for number in 0..600 {
        file(&fs, below, &format!("File {number} {}", "Xy".repeat(number % 60))).unwrap();
    }
    for number in (0..600).step_by(2) {
        let name = format!("fILE {number} {}", "xY".repeat(number % 60));
        fs.unlink(below, name.as_bytes()).unwrap();
    }
    assert_eq!(names(&fs, below).len(), 302);
    fs.unmount().unwrap();
    drop(fs);
    judge(&device);
    let fs = open(&device, "");
    assert_eq!(
        find(&fs, below, format!("FILE 599 {}", "XY".repeat(59)).as_bytes()).unwrap().size,
        0
    );
    assert!(matches!(fs.rmdir(fold, b"BELOW"), Err(Error::NotEmpty)));
    fs.unmount().unwrap();
}

#[test]
fn what_was_fsynced_is_found_in_any_case() {
    let (device, fold) = folding("casefold");
    let fs = open(&device, "");
    let ino = file(&fs, fold, "Synced").unwrap();
    fs.write(ino, 0, b"kept", IoFlags::empty()).unwrap();
    fs.fsync(ino, 0, false).unwrap();
    fs.shutdown(false).unwrap();
    drop(fs);
    let fs = open(&device, "");
    let found = find(&fs, fold, b"sYNCED").unwrap();
    assert_eq!((found.ino, found.size), (ino, 4));
    fs.unmount().unwrap();
    drop(fs);
    judge(&device);
}

#[test]
fn flags_of_directories_stay_as_they_are() {
    let (device, fold) = folding("casefold");
    let fs = open(&device, "");
    let flags = |flags| SetAttributes { flags: Some(flags), ..SetAttributes::default() };
    fs.setattr(fold, &flags(InodeFlags::NODUMP | InodeFlags::INDEX)).unwrap();
    assert!(fs.ignores_case(fold));
    fs.unmount().unwrap();
}

#[test]
fn encrypted_inodes_need_a_key() {
    let device = new("encrypt");
    let fs = open(&device, "");
    let root = fs.root();
    let closed = file(&fs, root, "closed").unwrap();
    fs.write(closed, 0, &[7; 9000], IoFlags::empty()).unwrap();
    let link = make(&fs, root, b"link", NewInode::Symlink(b"closed")).unwrap().ino;
    let directory = make(&fs, root, b"directory", NewInode::Directory).unwrap().ino;
    let full = make(&fs, root, b"full", NewInode::Directory).unwrap().ino;
    file(&fs, full, "inside").unwrap();
    let open_file = file(&fs, root, "open").unwrap();
    fs.unmount().unwrap();
    drop(fs);
    for ino in [closed, link, directory, full] {
        set_bits(&device, ino, ENCRYPT);
    }
    let fs = open(&device, "");
    let no_key = |result: cairn_vfs::Result<()>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Encrypted) && error.errno() == 126, "{error}");
    };
    let size = SetAttributes { size: Some(10), ..SetAttributes::default() };
    no_key(fs.read(closed, 0, &mut [0; 9], IoFlags::empty()).map(drop));
    no_key(fs.write(closed, 0, b"x", IoFlags::empty()).map(drop));
    no_key(fs.setattr(closed, &size).map(drop));
    no_key(fs.readlink(link).map(drop));
    no_key(fs.readdir(full, 0, &mut |_| true));
    no_key(fs.lookup(full, b"inside").map(drop));
    no_key(file(&fs, directory, "new").map(drop));
    no_key(fs.tmpfile(directory, 0o644, &Caller::ROOT).map(drop));
    no_key(fs.link(open_file, directory, b"new").map(drop));
    no_key(fs.rename(root, b"open", directory, b"new", RenameMode::Replace));
    no_key(fs.rename(directory, b"new", root, b"new", RenameMode::Replace));
    no_key(fs.unlink(full, b"inside"));
    // Everything else works.
    let owner =
        SetAttributes { permissions: Some(0o700), uid: Some(7), ..SetAttributes::default() };
    for ino in [closed, directory] {
        assert_eq!(fs.setattr(ino, &owner).unwrap().uid, 7);
    }
    fs.setxattr(closed, b"user.a", b"b", cairn_vfs::XattrMode::Set).unwrap();
    fs.rename(root, b"directory", root, b"renamed", RenameMode::Replace).unwrap();
    fs.link(closed, root, b"another name").unwrap();
    fs.unlink(root, b"closed").unwrap();
    fs.unlink(root, b"another name").unwrap();
    fs.unlink(root, b"link").unwrap();
    fs.rmdir(root, b"renamed").unwrap();
    assert!(matches!(fs.rmdir(root, b"full"), Err(Error::NotEmpty)));
    file(&fs, root, "beside").unwrap();
    fs.unmount().unwrap();
    drop(fs);
    assert_f2fs_device_clean(&device);
}

/// A tree whose nodes belong to many users, and some groups.
struct Owned(Made);

impl Source for Owned {
    fn count(&self) -> u32 {
        self.0.count()
    }

    fn node(&self, id: u32) -> Node<'_> {
        Node { uid: id.wrapping_mul(0x0101_0003), gid: id % 7, ..self.0.node(id) }
    }

    fn entry(&self, directory: u32, index: u32) -> (&[u8], u32) {
        self.0.entry(directory, index)
    }

    fn read(&self, file: u32, offset: u64, buffer: &mut [u8]) -> ReadResult {
        self.0.read(file, offset, buffer)
    }

    fn path(&self, id: u32) -> String {
        self.0.path(id)
    }
}

/// The quota files of a filled volume count right, also for so many owners that they have several
/// blocks of each kind.
#[test]
fn quota_files_of_a_filled_volume_count_right() {
    for features in [
        "quota",
        "extra_attr,project_quota",
        "encrypt,verity,quota,extra_attr,project_quota,lost_found,inode_checksum,casefold",
    ] {
        let mut made = Made::new();
        for number in 0..300_u32 {
            let id = made.file(0, format!("file {number}"), u64::from(number) * 300);
            if number % 50 == 0 {
                made.xattr(id, "user.large", &[7; 3000]);
            }
        }
        made.file(0, "direct node", 900 * BLOCK);
        let options = MkfsOptions { features: vec![features.into()], ..MkfsOptions::default() };
        let tree = Population::new(Arc::new(Owned(made)), &options, &*Threads::new()).unwrap();
        let device = Arc::new(MemoryDevice::new(tree.required_bytes(8 << 20).unwrap()));
        tree.write(device.clone(), 2, &*Threads::new()).unwrap();
        judge(&device);
        let fs = open(&device, "");
        assert_eq!(find(&fs, fs.root(), b"direct node").unwrap().size, 900 * BLOCK);
        fs.unmount().unwrap();
    }
}
