//! Linux, in a virtual machine, reads and changes volumes that Cairn has written, and Cairn
//! continues.

use std::path::Path;
use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::threads::Threads;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::judge::{assert_f2fs_clean, mkfs_f2fs};
use cairn_testkit::modes::{MODES, Mode};
use cairn_testkit::tree::{Snapshot, TreeSpec, VolumeTarget, build, plan};
use cairn_testkit::vm::{Job, Vm, serve};
use cairn_vfs::acl::{self, Acl, Entry, Tag};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, RenameMode, XattrMode};

use crate::support::{KINDS, make, snapshot};

#[test]
#[ignore = "runs in the machine"]
fn in_the_machine() {
    serve();
}

fn open(image: &Path, options: &str) -> Arc<F2fs> {
    let device = Arc::new(FileDevice::open(image, OpenOptions::write()).unwrap());
    let fs = F2fs::open(device, Threads::new(), &MountOptions::parse(options).unwrap()).unwrap();
    assert_eq!(fs.read_only_reason(), None);
    fs
}

/// Cases that a seeded tree does not have: many entries, holes in a directory, long targets, access
/// lists, large attributes.
fn extremes(fs: &F2fs) {
    let directory = make(fs, fs.root(), b"many", NewInode::Directory).unwrap().ino;
    let name = |index: u32| {
        format!("entry number {index} {}", "x".repeat(index as usize % 30)).into_bytes()
    };
    for index in 0..3000 {
        make(fs, directory, &name(index), NewInode::Regular).unwrap();
    }
    for index in (0..3000).step_by(3) {
        fs.unlink(directory, &name(index)).unwrap();
    }
    make(fs, fs.root(), b"long link", NewInode::Symlink(&[b'l'; 4000])).unwrap();
    make(fs, fs.root(), &[b'n'; 255], NewInode::Fifo).unwrap();
    let listed = make(fs, fs.root(), b"listed", NewInode::Directory).unwrap().ino;
    set_acls(fs, listed);
    make(fs, listed, b"inherits", NewInode::Regular).unwrap();
    make(fs, listed, b"inherits too", NewInode::Directory).unwrap();
    let file = make(fs, fs.root(), b"attributes", NewInode::Regular).unwrap().ino;
    fs.setxattr(file, b"user.large", &[b'v'; 3000], XattrMode::Set).unwrap();
    fs.write(file, 40 << 20, b"behind a hole", IoFlags::empty()).unwrap();
    fs.link(file, listed, b"second name").map(|made| fs.forget(made.ino, 1)).unwrap();
    fs.rename(fs.root(), b"listed", directory, b"moved", RenameMode::Replace).unwrap();
}

fn set_acls(fs: &F2fs, directory: Ino) {
    let entry = |tag, permissions| Entry { tag, permissions };
    let entries = [Tag::UserObj, Tag::User(1000), Tag::GroupObj, Tag::Mask, Tag::Other];
    let list = Acl::new(entries.map(|tag| entry(tag, 5)).to_vec()).unwrap().to_xattr();
    fs.setxattr(directory, acl::ACCESS, &list, XattrMode::Set).unwrap();
    fs.setxattr(directory, acl::DEFAULT, &list, XattrMode::Set).unwrap();
}

/// The changes that Linux makes before Cairn reads the volume again.
const CHANGES: &str = "cd /mnt/many\nfor i in $(seq 500); do : > linux_$i; done\nrm entry*1*\nmv \
    moved ../back\n\
    ln -s target ../back/link\nmkdir -p a/b/c\necho contents > a/b/c/file\ncd /\n";

#[test]
fn linux_reads_and_changes_what_we_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let (mut vm, mut script, mut ours) = (Vm::new().agent(), String::new(), Vec::new());
    let modes: Vec<&Mode> = MODES.iter().filter(|mode| !mode.zoned).collect();
    for (index, (mode, args)) in modes.iter().zip(KINDS.into_iter().cycle()).enumerate() {
        let image = directory.path().join(index.to_string());
        mkfs_f2fs(&image, 256 << 20, args);
        let fs = open(&image, mode.options);
        build(&VolumeTarget::new(&*fs), &plan(&TreeSpec::small(70 + index as u64)));
        extremes(&fs);
        ours.push(snapshot(&fs));
        fs.unmount().unwrap();
        assert_f2fs_clean(&image);
        vm = vm.disk(&image);
        let device = format!("/dev/vd{}", char::from(b'a' + index as u8));
        let digest = Job::Digest("/mnt".into()).line("kernel::in_the_machine");
        script += &format!(
            "mount -t f2fs -o ro {device} /mnt\n{digest}umount /mnt\nmount -t f2fs {device} \
             /mnt\n{CHANGES}umount /mnt\n\
             mount -t f2fs -o ro {device} /mnt\n{digest}umount /mnt\n"
        );
    }
    let text = vm.check(&script);
    let theirs: Vec<Snapshot> = Job::snapshots(&text);
    assert_eq!(theirs.len(), 2 * modes.len(), "{text}");
    for (index, pair) in theirs.chunks_exact(2).enumerate() {
        let image = directory.path().join(index.to_string());
        assert_eq!(ours[index].diff(&pair[0]), "", "what Linux reads of volume {index}");
        assert_f2fs_clean(&image);
        let fs = open(&image, modes[index].options);
        assert_eq!(pair[1].diff(&snapshot(&fs)), "", "what Linux made of volume {index}");
        let made = fs
            .create(fs.root(), b"after Linux", NewInode::Directory, 0o755, &Caller::ROOT)
            .unwrap();
        make(&fs, made.ino, b"file", NewInode::Regular).unwrap();
        fs.unmount().unwrap();
        assert_f2fs_clean(&image);
    }
}
