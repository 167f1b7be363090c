//! Each flag of the shutdown ioctl, in Linux and in Cairn: the answers of later calls, the tree
//! that the next mount finds, and the flags of the checkpoint.

use std::path::Path;
use std::sync::Arc;

use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{self, mkfs_f2fs};
use cairn_testkit::vm::Vm;
use cairn_vfs::{Caller, FileSystem, GoingDown, IoFlags, NewInode, Result};

use crate::support::open;

/// The flags by number.
const FLAGS: [GoingDown; 5] = [
    GoingDown::FullSync,
    GoingDown::MetaSync,
    GoingDown::NoSync,
    GoingDown::MetaFlush,
    GoingDown::NeedFsck,
];
const LEN: usize = 5000;
const SIZE: u64 = 64 << 20;

/// The state after the shutdown on one side.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    /// The answers to later calls.
    answers: Vec<String>,
    /// Names and sizes that the next mount finds.
    found: Vec<String>,
    /// True if the checkpoint asks for fsck.
    asks_for_fsck: bool,
}

fn asks_for_fsck(image: &Path) -> bool {
    let state = judge::f2fs_checkpoint_state(image);
    state.split(" : ").nth(1).is_some_and(|flags| flags.split_whitespace().any(|f| f == "fsck"))
}

fn create(fs: &dyn FileSystem, name: &str, new: NewInode<'_>) -> Result<cairn_base::Ino> {
    Ok(fs.create(fs.root(), name.as_bytes(), new, 0o755, &Caller::ROOT)?.ino)
}

fn by_cairn(image: &Path, flags: GoingDown) -> Left {
    let device = Arc::new(read_image(image).unwrap());
    let fs = open(device.clone(), "");
    create(&*fs, "synced", NewInode::Directory).unwrap();
    fs.sync().unwrap();
    let named = create(&*fs, "named", NewInode::Regular).unwrap();
    fs.write(named, 0, &[b'x'; LEN], IoFlags::empty()).unwrap();
    fs.go_down(flags).unwrap();
    let told = |what: &str, done: Result<()>| {
        format!("{what} {}", if done.is_ok() { "worked" } else { "failed" })
    };
    let answers = vec![
        told("mkdir", create(&*fs, "late", NewInode::Directory).map(drop)),
        told("sync", fs.fsync(named, 0, false)),
    ];
    let _ = fs.unmount();
    write_image(&device, image).unwrap();
    let asks_for_fsck = asks_for_fsck(image);
    let fs = open(device, "");
    let mut found = Vec::new();
    for name in ["late", "named", "synced"] {
        if let Ok(there) = fs.lookup(fs.root(), name.as_bytes()) {
            let size = if name == "named" { there.size } else { 0 };
            found.push(format!("found {name} {size}"));
        }
    }
    fs.unmount().unwrap();
    Left { answers, found, asks_for_fsck }
}

/// The same calls for the disk `/dev/vdX`. `f2fs_io` has the numbers of Linux.
fn script(disk: char, number: usize) -> String {
    format!(
        "mount -t f2fs /dev/vd{disk} /mnt\nmkdir /mnt/synced\nsync\n\
         exec 3> /mnt/named\nhead -c {LEN} /dev/zero >&3\n\
         f2fs_io shutdown {number} /mnt > /dev/null\necho @disk\n\
         if mkdir /mnt/late 2> /dev/null; then echo mkdir worked; else echo mkdir failed; fi\n\
         if sync /mnt/named 2> /dev/null; then echo sync worked; else echo sync failed; fi\n\
         exec 3>&-\numount /mnt\nmount -t f2fs -o ro /dev/vd{disk} /mnt\n\
         if [ -e /mnt/late ]; then echo found late 0; fi\n\
         if [ -e /mnt/named ]; then echo found named $(stat -c %s /mnt/named); fi\n\
         if [ -e /mnt/synced ]; then echo found synced 0; fi\numount /mnt\n"
    )
}

#[test]
fn every_flag_of_a_shutdown_leaves_what_linux_leaves() {
    let directory = tempfile::tempdir().unwrap();
    let images = FLAGS.map(|flags| directory.path().join(format!("{flags:?}")));
    images.iter().for_each(|image| mkfs_f2fs(image, SIZE, &[]));
    let ours: Vec<_> = FLAGS
        .iter()
        .map(|flags| {
            let image = directory.path().join("ours");
            mkfs_f2fs(&image, SIZE, &[]);
            by_cairn(&image, *flags)
        })
        .collect();
    let vm = images.iter().fold(Vm::new().tool("f2fs_io").tool("sync"), |vm, image| vm.disk(image));
    let told =
        vm.check(&('a'..'f').enumerate().map(|(n, disk)| script(disk, n)).collect::<String>());
    let told: Vec<_> = told.split("@disk").skip(1).collect();
    assert_eq!(told.len(), FLAGS.len(), "{told:?}");
    for (((flags, ours), told), image) in FLAGS.iter().zip(ours).zip(told).zip(&images) {
        let lines = told.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty());
        let (found, answers) = lines.partition(|line| line.starts_with("found"));
        let linux = Left { answers, found, asks_for_fsck: asks_for_fsck(image) };
        println!("{flags:?}: {linux:?}");
        assert_eq!(ours, linux, "{flags:?}: here, and in Linux");
    }
}
