//! Volumes that Cairn makes, filled by the kernel in a virtual machine, read by Cairn: the trees
//! must be equal.

use std::path::{Path, PathBuf};

use cairn::{Format, ImageSpec, Info, MkfsOptions, OpenOptions};
use cairn_testkit::judge::{assert_clean, assert_f2fs_clean};
use cairn_testkit::tree::{Snapshot, SnapshotOptions, TreeSpec, digest_volume};
use cairn_testkit::vm::{Job, Vm, serve};

#[test]
#[ignore = "runs in the machine"]
fn in_the_machine() {
    serve();
}

/// What a seeded tree does not have: access lists, many entries, depth, a long name, large
/// attributes, a file with holes.
const EXTREMES: &str = r#"
mkdir $D/acl
setfacl -m u:1000:rwx,g:100:r-x $D/acl
setfacl -d -m u:1001:rw- $D/acl
echo inherits > $D/acl/file
mkdir $D/many
for i in $(seq 1500); do : > $D/many/entry_number_$i; done
for i in $(seq 1 3 1500); do rm $D/many/entry_number_$i; done
P=$D; for i in $(seq 60); do P=$P/d$i; mkdir $P; done; echo bottom > $P/file
echo long > $D/$(printf 'n%.0s' $(seq 255))
echo large > $D/attributes
setfattr -n user.large -v $(printf 'v%.0s' $(seq 3000)) $D/attributes
dd if=/dev/urandom of=$D/sparse bs=4096 count=3 seek=2000 2>/dev/null
dd if=/dev/urandom of=$D/sparse bs=4096 count=1 seek=9 conv=notrunc 2>/dev/null
dd if=/dev/urandom of=$D/plain bs=65536 count=100 2>/dev/null
truncate -s 5000000 $D/plain
"#;

fn make(image: &Path, format: Format, change: impl FnOnce(&mut MkfsOptions)) {
    let mut options = MkfsOptions::new(format);
    options.size = Some(160 << 20);
    change(&mut options);
    cairn::mkfs(&ImageSpec::whole(image), &options).unwrap();
}

/// One script for one disk.
fn fill_and_digest(disk: usize, kind: &str, seed: u64) -> String {
    let device = format!("/dev/vd{}", char::from(b'a' + disk as u8));
    let build = Job::Build(TreeSpec::small(seed), "/mnt/tree".into()).line("in_the_machine");
    let digest = Job::Digest("/mnt".into()).line("in_the_machine");
    // A second mount: what is digested has been on the disk.
    format!(
        "mount -t {kind} {device} /mnt\nmkdir /mnt/tree\n{build}D=/mnt/tree\n{EXTREMES}\
         umount /mnt\n\
         mount -t {kind} -o ro {device} /mnt\nstat -f -c 'df %b %f %a %c %d' /mnt\n{digest}umount \
         /mnt\n"
    )
}

/// What is on the image, and what `df` says: blocks, free, available, inodes, free.
fn read(image: &Path) -> (Snapshot, String) {
    let volume = cairn::open(&ImageSpec::whole(image), &OpenOptions::read_only()).unwrap();
    let found = volume.filesystem().statfs().unwrap();
    let [blocks, free, available] = [found.blocks, found.free_blocks, found.available_blocks];
    let df = format!("df {blocks} {free} {available} {} {}", found.inodes, found.free_inodes);
    (digest_volume(&**volume.filesystem(), SnapshotOptions::default()).unwrap(), df)
}

#[test]
fn the_kernel_fills_what_we_make_and_we_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let features =
        "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,lost_found,sb_checksum";
    let images: [(&str, Format, &str, Option<u32>); 4] = [
        ("default", Format::F2fs, "", None),
        ("features", Format::F2fs, features, None),
        ("sections", Format::F2fs, "", Some(2)),
        ("ext4", Format::Ext4, "", None),
    ];
    let (mut script, mut vm) =
        (String::new(), Vm::new().tool("setfattr").tool("setfacl").tool("stat").agent());
    for (disk, (name, format, features, segments_per_section)) in images.iter().enumerate() {
        let image = directory.path().join(name);
        make(&image, *format, |options| {
            options.features = vec![(*features).into()];
            // Small ext4 volumes have small blocks, and no room for the large attribute.
            options.block_size = Some(4096);
            options.segments_per_section = *segments_per_section;
        });
        vm = vm.disk(&image);
        script.push_str(&fill_and_digest(disk, format.name(), 40 + disk as u64));
    }
    let text = vm.check(&script);
    let digests = Job::snapshots(&text);
    assert_eq!(digests.len(), images.len(), "{text}");
    let dfs: Vec<&str> = text.lines().filter(|line| line.starts_with("df ")).collect();
    assert_eq!(dfs.len(), images.len(), "{text}");
    for (((name, format, ..), expected), df) in images.iter().zip(digests).zip(dfs) {
        let image: PathBuf = directory.path().join(name);
        match format {
            Format::F2fs => assert_f2fs_clean(&image),
            _ => assert_clean(&image),
        }
        assert!(expected.len() > 1000, "{name}: {} entries", expected.len());
        let (found, ours) = read(&image);
        assert_eq!((expected.diff(&found).as_str(), &*ours), ("", df.trim_end()), "{name}");
    }
}

/// The kernel loses power after an fsync: nodes that no checkpoint knows are found in the chain.
#[test]
fn what_the_kernel_fsynced_is_there_after_a_reset() {
    let image = tempfile::NamedTempFile::new().unwrap();
    make(image.path(), Format::F2fs, |_| {});
    let script = "mount -t f2fs /dev/vda /mnt\nmkdir /mnt/d\necho old > /mnt/d/changed\nsync\n\
        seq 5000 | dd of=/mnt/d/new conv=fsync 2>/dev/null\necho new | dd of=/mnt/d/changed \
        conv=fsync,notrunc 2>/dev/null\n\
        echo lost > /mnt/d/lost\necho now\nsleep 100\n";
    let _ = Vm::new().disk(image.path()).crash_after(script, "now");
    let image = ImageSpec::whole(image.path());
    let Info::F2fs(info) = cairn::inspect(&image, &[]).unwrap() else { panic!("not F2FS") };
    // Which of the two is the kernel's choice: after some fsyncs it makes a checkpoint.
    assert!(["needs roll-forward", "not unmounted"].contains(&info.state), "{}", info.state);
    let volume = cairn::open(&image, &OpenOptions::read_only()).unwrap();
    let filesystem = volume.filesystem();
    let directory = filesystem.lookup(filesystem.root(), b"d").unwrap();
    let size = |name: &[u8]| filesystem.lookup(directory.ino, name).map(|found| found.size);
    assert_eq!((size(b"new").unwrap(), size(b"changed").unwrap()), (23_893, 4));
    let snapshot = digest_volume(&**filesystem, SnapshotOptions::default()).unwrap();
    let checked = |path: &str, bytes: &[u8]| {
        let line = snapshot.get(path.as_bytes()).unwrap();
        assert!(line.contains(&sha256(bytes)), "{path}: {line}");
    };
    let numbers: String = (1..=5000).map(|number| format!("{number}\n")).collect();
    checked("d/new", numbers.as_bytes());
    checked("d/changed", b"new\n");
}

/// As a snapshot has it.
fn sha256(bytes: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), bytes).unwrap();
    let snapshot =
        cairn_testkit::tree::digest_path(directory.path(), SnapshotOptions::default()).unwrap();
    let line = snapshot.get(b"file").unwrap();
    line.split(' ').find(|word| word.len() >= 64).expect("a hash").to_owned()
}
