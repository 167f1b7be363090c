//! Linux mounts volumes that mkfs has filled, sees every file, and goes on writing.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_f2fs::mkfs::MkfsOptions;
use cairn_f2fs::mkfs::populate::Population;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::assert_f2fs_clean;
use cairn_testkit::made::{Made, What};
use cairn_testkit::vm::{Job, Vm};
use uuid::Uuid;

use crate::support::{disk, judge, line, open, snapshot};

const EXTRA: &str =
    "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,lost_found,sb_checksum";
/// Name, features, and free bytes of the volumes.
const KINDS: [(&str, &str, u64); 5] = [
    ("plain", "", 40 << 20),
    ("extra", EXTRA, 40 << 20),
    ("flexible", "extra_attr,flexible_inline_xattr", 40 << 20),
    ("android", "encrypt,verity,quota,extra_attr,project_quota,casefold", 40 << 20),
    ("full", "", 0),
];

fn tree() -> Made {
    let mut made = Made::new();
    let many = made.directory(0, "many");
    for number in 0..3000 {
        let file = made.file(many, format!("{number:04}{}", "n".repeat(number % 200)), 0);
        if number % 100 == 0 {
            made.xattr(file, "user.value", &vec![7; number]);
            made.link(0, format!("{number}"), file);
        }
    }
    for (number, size) in [1, 3400, 3500, 4096, 300_000, 9_000_000].into_iter().enumerate() {
        made.file(0, format!("file {number}.mp4"), size);
        made.file(0, format!("file {number}.db"), size);
        made.file(0, format!("file {number}"), size);
    }
    let data = (0..1000).map(|n| n * 30_000..n * 30_000 + 10).collect();
    made.add(0, "sparse", What::File(40_000_000, data));
    made.add(0, "link", What::Link(vec![b'x'; 3900]));
    made.add(0, "device", What::Device(1, 3));
    made
}

fn fill(image: &Path, features: &str, free: u64) {
    let options = MkfsOptions {
        features: vec![features.into()],
        uuid: Some(Uuid::from_u128(7)),
        time: Some(1_600_000_000),
        ..Default::default()
    };
    let runtime = Threads::new();
    let population = Population::new(Arc::new(tree()), &options, &*runtime).unwrap();
    let size = population.required_bytes(free).unwrap();
    let create = OpenOptions::create(size);
    population.write(Arc::new(FileDevice::open(image, create).unwrap()), 2, &*runtime).unwrap();
}

#[test]
fn linux_uses_what_was_filled() {
    let directory = tempfile::tempdir().unwrap();
    let mut vm = Vm::new().agent();
    let (mut script, mut expected) = (String::new(), Vec::new());
    for (index, (name, features, free)) in KINDS.into_iter().enumerate() {
        let image = directory.path().join(name);
        fill(&image, features, free);
        assert_f2fs_clean(&image);
        expected.push(snapshot(&*open(Arc::new(read_image(&image).unwrap()), "ro")));
        vm = vm.disk(&image);
        script += &format!("mount -t f2fs {} /mnt\n", disk(index));
        script += &line(&Job::DigestAll("/mnt".into()));
        script += "head -c 20000000 /dev/urandom >/mnt/more || true\n\
                   rm /mnt/more /mnt/many/1*; mkdir /mnt/new; echo text >>/mnt/sparse; sync\n\
                   head -c 2000000 /dev/urandom >/mnt/new/file; sync; umount /mnt\n";
    }
    let seen = Job::snapshots(&vm.check(&script));
    assert_eq!(seen.len(), KINDS.len());
    for (((name, ..), seen), expected) in KINDS.into_iter().zip(seen).zip(&expected) {
        println!("{name}");
        seen.assert_same(expected);
        // Linux has counted quota.
        judge(&read_image(&directory.path().join(name)).unwrap());
    }
}
