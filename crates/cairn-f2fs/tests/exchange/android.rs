//! A volume that Cairn makes as `mkfs.f2fs -g android -C utf8` does: Linux mounts it, counts quota,
//! and makes directories that ignore case, which Cairn and Linux then use in turn.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::{Scope, undo};
use cairn_f2fs::mkfs::{self, MkfsOptions};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::assert_f2fs_device_clean;
use cairn_testkit::vm::Vm;
use cairn_vfs::{Caller, Error, FileSystem, NewInode};

use crate::support::{disk, judge, open};

const FEATURES: &str = "encrypt,verity,quota,extra_attr,project_quota";

/// Both directories ignore case. In one of them a name is beyond ASCII: the Kelvin sign, which is
/// another form of `k`.
const BEFORE: &str = "mkdir /mnt/fold /mnt/signs\nchattr +F /mnt/fold /mnt/signs\n\
    echo text > /mnt/fold/Name\ncat /mnt/fold/nAME\nmkdir /mnt/fold/Sub\n\
    i=0; while [ $i -lt 300 ]; do echo $i > /mnt/fold/SUB/File$i; i=$((i+1)); done\n\
    echo 273 > /mnt/signs/$(printf '\\342\\204\\252')\ncat /mnt/signs/K\n\
    echo long > /mnt/signs/$(printf 'Gr\\303\\266\\303\\237e')\nchown -R 1000:100 /mnt/signs\n";

const AFTER: &str = "cat /mnt/FOLD/new 2>/dev/null && exit 1\n\
    test -e /mnt/fold/nEW && test -e /mnt/fold/sub2/inner && test -e /mnt/fold/SUB/fILE299\n\
    test ! -e /mnt/fold/name && test ! -e /mnt/fold/sub/file7\n\
    for i in 0 1 2 3 4 5; do test -e /mnt/fold/sub2/MORE$i; done\n\
    echo more > /mnt/fold/SUB2/further && cat /mnt/fold/sub2/FURTHER\n\
    rm /mnt/fold/sub2/MORE3 /mnt/signs/*; rmdir /mnt/signs\n";

fn mounted(image: &Path, script: &str) -> String {
    let script = format!("mount -t f2fs {0} /mnt\n{script}umount /mnt\n", disk(0));
    Vm::new().tool("chattr").disk(image).check(&format!("set -e\n{script}"))
}

fn names_by_cairn(fs: &dyn FileSystem) {
    let root = fs.root();
    let find = |parent, name: &[u8]| {
        let found = fs.lookup(parent, name).unwrap().ino;
        fs.forget(found, 1);
        found
    };
    let make = |parent, name: &[u8], new: NewInode<'_>| {
        let made = fs.create(parent, name, new, 0o755, &Caller::ROOT)?.ino;
        fs.forget(made, 1);
        Ok::<_, Error>(made)
    };
    let (fold, signs) = (find(root, b"fold"), find(root, b"signs"));
    let below = find(fold, b"sUB");
    for number in 0..300 {
        find(below, format!("FILE{number}").as_bytes());
    }
    make(fold, b"New", NewInode::Regular).unwrap();
    assert!(matches!(make(fold, b"nEW", NewInode::Regular), Err(Error::Exists)));
    let sub2 = make(fold, b"Sub2", NewInode::Directory).unwrap();
    make(sub2, b"INNER", NewInode::Regular).unwrap();
    for number in 0..600 {
        make(sub2, format!("More{number}").as_bytes(), NewInode::Regular).unwrap();
    }
    fs.unlink(fold, b"NAME").unwrap();
    fs.unlink(below, b"fILE7").unwrap();
    assert!(matches!(make(signs, b"k", NewInode::Regular), Err(Error::Unsupported(_))));
    assert!(matches!(make(signs, "é".as_bytes(), NewInode::Regular), Err(Error::Unsupported(_))));
    fs.unlink(signs, "Größe".as_bytes()).unwrap();
}

/// Counts quota again, as `cairn check --repair` does.
fn count_quota(device: &Arc<dyn BlockDevice>) {
    let runtime: Arc<dyn Runtime> = Threads::new();
    let plan = cairn_f2fs::repair::plan(device.clone(), runtime, Arc::new(()), Scope::Accounting);
    let plan = plan.unwrap();
    assert!(plan.before.count() > 0 && plan.after.count() == 0);
    let undo = MemoryDevice::new(undo::file_size(&plan.changes));
    plan.apply(&**device, &undo).unwrap();
}

#[test]
fn linux_and_cairn_use_a_volume_of_android_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("android");
    let device = FileDevice::open(&image, OpenOptions::create(96 << 20)).unwrap();
    let options = MkfsOptions {
        features: vec![FEATURES.into()],
        casefold: Some("utf8".into()),
        ..MkfsOptions::default()
    };
    mkfs::make(Arc::new(device), &options, &*Threads::new()).unwrap();
    judge(&read_image(&image).unwrap());
    assert_eq!(mounted(&image, BEFORE), "text\n273\n");
    // Linux has counted quota as the check does.
    judge(&read_image(&image).unwrap());
    let device = Arc::new(read_image(&image).unwrap());
    let fs = open(device.clone(), "");
    names_by_cairn(&*fs);
    fs.unmount().unwrap();
    drop(fs);
    assert_f2fs_device_clean(&device);
    count_quota(&(device.clone() as _));
    judge(&device);
    write_image(&device, &image).unwrap();
    assert_eq!(mounted(&image, AFTER), "more\n");
    judge(&read_image(&image).unwrap());
}
