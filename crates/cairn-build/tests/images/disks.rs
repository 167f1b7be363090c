//! Disks with partitions: sfdisk and sgdisk read the table, fsck and the kernel what is in the
//! partitions; and a machine boots from one of each format, with each kind of table.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cairn::partition::{Flags, PartitionKind, TableKind};
use cairn::{Format, ImageSpec, OpenOptions};
use cairn_build::{
    Contents, DiskOptions, KindWish, Options, PartitionOptions, Shape, Source, build,
};
use cairn_testkit::judge::{self, KernelMount};
use cairn_testkit::place::Place;
use cairn_testkit::tree::{SnapshotOptions, TreeSpec, digest_path};
use cairn_testkit::vm::Vm;

use crate::support::{FORMATS, check, comparable, digest, options, seeded};

const MIB: u64 = 1 << 20;

pub fn partition(kind: &str, contents: Contents) -> PartitionOptions {
    PartitionOptions {
        kind: KindWish::Is(PartitionKind::parse(kind).unwrap()),
        contents,
        size: None,
        name: kind.into(),
        uuid: None,
        flags: Flags::default(),
    }
}

/// An ESP of a file, the root, a volume of F2FS, and a swap area.
fn partitions(esp: &Path, home: &Path) -> Vec<PartitionOptions> {
    let home = Contents::Volume {
        sources: vec![Source { name: home.into(), platform: None }],
        format: Format::F2fs,
        label: Some("data".into()),
    };
    vec![
        PartitionOptions {
            flags: Flags { bootable: true, ..Flags::default() },
            ..partition("esp", Contents::File(esp.into()))
        },
        PartitionOptions { kind: KindWish::Root, ..partition("linux", Contents::Sources) },
        partition("home", home),
        PartitionOptions { size: Some(8 * MIB), ..partition("swap", Contents::Swap) },
    ]
}

pub fn disk(table: TableKind, partitions: Vec<PartitionOptions>) -> Option<DiskOptions> {
    Some(DiskOptions { table, uuid: None, platform: Some("linux/arm64".into()), partitions })
}

/// The bytes of an image of an ESP, which nothing looks into.
fn esp(at: &Path) {
    let bytes: Vec<u8> = (0..3 * MIB / 2).map(|at| (at / 4096 % 251) as u8).collect();
    std::fs::write(at, bytes).unwrap();
}

/// Starts and sizes in sectors, in the order of the table.
fn places(disk: &Path) -> Vec<(u64, u64)> {
    let dump = judge::run("sfdisk", ["--dump", disk.to_str().unwrap()]);
    let number = |line: &str, key: &str| {
        let at = line.find(key)? + key.len();
        line.get(at..)?.split(',').next()?.trim().parse().ok()
    };
    let place = |line: &str| Some((number(line, "start=")?, number(line, "size=")?));
    dump.lines().filter_map(place).collect()
}

/// The bytes of a partition, as a file.
fn extract(disk: &Path, (start, size): (u64, u64), to: &Path) {
    let mut bytes = vec![0; usize::try_from(size * 512).unwrap()];
    std::fs::File::open(disk).unwrap().read_exact_at(&mut bytes, start * 512).unwrap();
    std::fs::write(to, bytes).unwrap();
}

fn source(place: &Place, name: &str, seed: u64) -> PathBuf {
    let path = place.path().join(name);
    seeded(&path, &TreeSpec { size_max: 100_000, ..TreeSpec::small(seed) });
    path.join("")
}

#[test]
fn other_programs_read_the_tables_and_what_is_in_the_partitions() {
    for table in [TableKind::Gpt, TableKind::Mbr] {
        let place = Place::new();
        let at = |name: &str| place.path().join(name);
        let (root, home) = (source(&place, "root", 1), source(&place, "home", 2));
        esp(&at("esp"));
        let image = at("disk");
        let asked = |output: &Path| Options {
            disk: disk(table, partitions(&at("esp"), &home)),
            ..options(Format::Ext4, output, &[root.to_str().unwrap()])
        };
        let built = build(asked(&image)).unwrap();
        assert_eq!(built.size, std::fs::metadata(&image).unwrap().len());
        judge::run("sfdisk", ["--verify", image.to_str().unwrap()]);
        let dump = judge::run("sfdisk", ["--dump", image.to_str().unwrap()]).to_lowercase();
        println!("{dump}");
        if table == TableKind::Gpt {
            let said = judge::run("sgdisk", ["--verify", image.to_str().unwrap()]);
            assert!(said.contains("No problems found"), "{said}");
            // The root of ARM64, which was asked for.
            for part in [
                "type=b921b045-1df0-41c3-af44-4c6f280d3fae",
                "name=\"esp\", attrs=\"legacybiosbootable\"",
                &format!("label-id: {}", built.uuid),
            ] {
                assert!(dump.contains(part), "{part}");
            }
        } else {
            let id = built.uuid.as_fields().0;
            for part in [&format!("label-id: 0x{id:08x}"), "type=ef, bootable", "type=82"] {
                assert!(dump.contains(part), "{part}");
            }
        }
        let places = places(&image);
        assert_eq!(places.len(), 4);
        assert!(places.iter().all(|(start, _)| start * 512 % MIB == 0), "{places:?}");
        for (number, format) in [(1, Format::Ext4), (2, Format::F2fs)] {
            extract(&image, places[number], &at("volume"));
            check(format, &at("volume"));
            let tree = if number == 1 { &root } else { &home };
            let expected = comparable(digest_path(tree, SnapshotOptions::default()).unwrap());
            comparable(digest(&at("volume"))).assert_same(&expected);
            if format == Format::Ext4 {
                let kernel = KernelMount::new(&at("volume"), "ro");
                let seen = digest_path(kernel.path(), SnapshotOptions::default()).unwrap();
                kernel.unmount();
                comparable(seen).assert_same(&expected);
            }
        }
        extract(&image, places[0], &at("volume"));
        assert!(std::fs::read(at("volume")).unwrap() == std::fs::read(at("esp")).unwrap());
        extract(&image, places[3], &at("volume"));
        let said = judge::run("blkid", ["-p", at("volume").to_str().unwrap()]);
        assert!(said.contains("TYPE=\"swap\"") && said.contains("VERSION=\"1\""), "{said}");
        build(asked(&at("again"))).unwrap();
        assert!(std::fs::read(&image).unwrap() == std::fs::read(at("again")).unwrap());
        let shape = Shape::AndroidSparse { crc: true };
        build(Options { shape, ..asked(&at("sparse")) }).unwrap();
        judge::run("simg2img", [at("sparse"), at("unpacked")]);
        assert!(std::fs::read(&image).unwrap() == std::fs::read(at("unpacked")).unwrap());
    }
}

/// The init of a root. Both disks are booted by one machine: the second one by the first one's
/// init.
const INIT: &str = r#"#!/bin/busybox sh
set -e
/bin/busybox --install -s /bin
grep -E '^(PARTNAME|PARTN)=' /sys/block/$1/$1*2/uevent
echo "$(sed -n 's:^/dev/[a-z0-9]* / \([a-z0-9]*\) .*:\1:p' /proc/mounts) has a shell as $$"
touch /written
if [ "$1" = vda ]; then
    mount /dev/vdb2 /mnt
    for at in dev proc sys; do mount --move /$at /mnt/$at; done
    exec chroot /mnt /sbin/init vdb
fi
sync
echo "$DONE"
sleep 60
"#;

#[test]
fn a_disk_boots_from_both_formats() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    for directory in ["bin", "sbin", "dev", "proc", "sys", "mnt"] {
        std::fs::create_dir_all(at("root").join(directory)).unwrap();
    }
    judge::copy_program(&judge::tool("busybox"), &at("root/bin/busybox"));
    let init = at("root/sbin/init");
    std::fs::write(&init, INIT.replace("$DONE", Vm::DONE)).unwrap();
    judge::run("chmod", ["755", init.to_str().unwrap()]);
    esp(&at("esp"));
    let mut vm = Vm::new().first_process();
    for (format, table) in FORMATS.into_iter().zip([TableKind::Gpt, TableKind::Mbr]) {
        let image = at(format.name());
        let partitions = vec![partition("esp", Contents::File(at("esp")))];
        let source = at("root/");
        let built = build(Options {
            free: cairn_build::Free::Bytes(8 * MIB),
            disk: disk(table, partitions),
            ..options(format, &image, &[source.to_str().unwrap()])
        });
        built.unwrap();
        vm = vm.disk(&image);
    }
    let said = vm.check(
        "mkdir /new; mount /dev/vda2 /new; for at in dev proc sys; do mount --move /$at /new/$at; \
         done; exec switch_root /new /sbin/init vda",
    );
    println!("{said}");
    for line in ["PARTNAME=root", "PARTN=2", "ext4 has a shell as 1", "f2fs has a shell as 1"] {
        assert!(said.contains(line), "{line}");
    }
    for format in FORMATS {
        extract(&at(format.name()), places(&at(format.name()))[1], &at("volume"));
        let image = ImageSpec::whole(at("volume"));
        let volume = cairn::open(&image, &OpenOptions::default()).unwrap();
        let found = volume.filesystem().lookup(volume.filesystem().root(), b"written");
        assert!(found.is_ok(), "{format}");
        volume.filesystem().unmount().unwrap();
        check(format, &at("volume"));
    }
}

#[test]
fn what_a_disk_cannot_have_is_refused_before_anything_is_written() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    std::fs::write(at("empty"), "").unwrap();
    std::fs::write(at("large"), vec![1; 1 << 16]).unwrap();
    let refused = |table, partitions| {
        let options =
            Options { disk: disk(table, partitions), ..options(Format::Ext4, &at("image"), &[]) };
        let error = build(options).expect_err("it is refused").to_string();
        assert!(!at("image").exists(), "{error}");
        error
    };
    let swap = || partition("swap", Contents::Swap);
    let sized = |size, one: PartitionOptions| PartitionOptions { size: Some(size), ..one };
    let file = |name: &str| partition("linux", Contents::File(at(name)));
    let rows = [
        (refused(TableKind::Gpt, vec![swap()]), "size="),
        (refused(TableKind::Gpt, vec![sized(8192, swap())]), "40K"),
        (refused(TableKind::Gpt, vec![sized(50_000, swap())]), "4096"),
        (refused(TableKind::Gpt, vec![file("none")]), "no such file"),
        (refused(TableKind::Gpt, vec![file("empty")]), "empty"),
        (refused(TableKind::Gpt, vec![sized(4096, file("large"))]), "65536 bytes"),
        (refused(TableKind::Mbr, vec![sized(MIB, swap()); 5]), "at most 4"),
        (refused(TableKind::Mbr, vec![sized(MIB, partition("bios", Contents::Nothing))]), "MBR"),
        (
            refused(TableKind::Gpt, vec![sized(MIB, partition("83", Contents::Nothing))]),
            "a word or a UUID",
        ),
        (
            refused(
                TableKind::Gpt,
                vec![partition("linux", Contents::Sources), partition("linux", Contents::Sources)],
            ),
            "two partitions",
        ),
    ];
    for (said, wanted) in rows {
        assert!(said.contains(wanted), "{said}");
    }
}

/// The disk of a qcow2 file has the bytes of the image, and its own follow from these.
#[test]
fn a_qcow2_disk_has_the_bytes_of_the_image() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let root = source(&place, "root", 1);
    let root = [root.to_str().unwrap()];
    for (format, table) in
        [(Format::Ext4, None), (Format::F2fs, None), (Format::Ext4, Some(TableKind::Gpt))]
    {
        let asked = |name: &str, shape| Options {
            disk: table.and_then(|table| disk(table, Vec::new())),
            shape,
            ..options(format, Path::new(&at(name)), &root)
        };
        build(asked("raw", Shape::Raw)).unwrap();
        build(asked("disk.qcow2", Shape::Qcow2)).unwrap();
        judge::run("qemu-img", ["check", "-q", "-f", "qcow2", &at("disk.qcow2")]);
        let words = ["compare", "-f", "raw", "-F", "qcow2", &at("raw"), &at("disk.qcow2")];
        judge::run("qemu-img", words);
        build(asked("again.qcow2", Shape::Qcow2)).unwrap();
        judge::run("cmp", [at("disk.qcow2"), at("again.qcow2")]);
        let len = |name: &str| std::fs::metadata(at(name)).unwrap().len();
        assert!(len("disk.qcow2") <= len("raw") + 6 * 65536, "it is no larger than what it holds");
        let name = if table.is_some() { at("disk.qcow2#1") } else { at("disk.qcow2") };
        let image = ImageSpec::parse(name.as_ref()).unwrap();
        let volume = cairn::open(&image, &OpenOptions::read_only()).unwrap();
        volume.filesystem().unmount().unwrap();
    }
}
