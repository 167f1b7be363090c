//! Linux mounts volumes that have grown and shrunk, sees every file, and goes on writing.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_f2fs::resize;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::assert_f2fs_clean;
use cairn_testkit::tree::TreeSpec;
use cairn_testkit::vm::{Job, Vm};

use crate::support::{Kind, disk, line, open, snapshot};

/// A kind of volume, and the size that it gets, in MiB.
const CHANGES: &[(Kind, u64)] = &[
    (Kind::new("in place", 64, &[]), 200),
    (Kind::new("larger tables", 64, &["-O", "extra_attr,inode_checksum,sb_checksum"]), 1500),
    (Kind::new("shrunk", 200, &[]), 90),
];

fn resized(image: &Path, size: u64) {
    let file = std::fs::File::options().write(true).open(image).unwrap();
    let before = file.metadata().unwrap().len();
    file.set_len(before.max(size)).unwrap();
    let device = Arc::new(read_image(image).unwrap());
    let (shared, runtime): (Arc<dyn BlockDevice>, Arc<dyn Runtime>) =
        (device.clone(), Threads::new());
    assert_eq!(resize::resize(&shared, &runtime, size).unwrap().after, size);
    write_image(&device, image).unwrap();
    file.set_len(size).unwrap();
}

#[test]
fn linux_uses_what_has_another_size() {
    let directory = tempfile::tempdir().unwrap();
    let images: Vec<_> = CHANGES.iter().map(|(kind, _)| directory.path().join(kind.name)).collect();
    let mut fill = Vm::new().agent();
    let (mut filling, mut looking) = (String::new(), String::new());
    for (index, ((kind, _), image)) in CHANGES.iter().zip(&images).enumerate() {
        kind.make(image);
        fill = fill.disk(image);
        let device = disk(index);
        let spec = TreeSpec { size_max: 300_000, ..TreeSpec::small(index as u64) };
        filling +=
            &format!("mount -t f2fs {device} /mnt\n{}", line(&Job::Build(spec, "/mnt".into())));
        filling += "umount /mnt\n";
        looking += &format!("mount -t f2fs {device} /mnt\n");
        looking += &line(&Job::DigestAll("/mnt".into()));
        looking +=
            "head -c 20000000 /dev/urandom >/mnt/more && sync && rm /mnt/more\numount /mnt\n";
    }
    fill.check(&filling);
    let mut look = Vm::new().agent();
    let mut expected = Vec::new();
    for ((_, size), image) in CHANGES.iter().zip(&images) {
        let before = open(Arc::new(read_image(image).unwrap()), "ro");
        expected.push(snapshot(&*before));
        drop(before);
        resized(image, size << 20);
        assert_f2fs_clean(image);
        look = look.disk(image);
    }
    let seen = Job::snapshots(&look.check(&looking));
    assert_eq!(seen.len(), CHANGES.len());
    for (((kind, _), image), (seen, expected)) in
        CHANGES.iter().zip(&images).zip(seen.iter().zip(&expected))
    {
        println!("{}", kind.name);
        seen.assert_same(expected);
        assert_f2fs_clean(image);
    }
}
