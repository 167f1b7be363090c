//! The seeded tree that programs in C and Python write, too, by calls that take a path.

use std::ops::ControlFlow;
use std::path::Path;

use cairn::fs::{File, Metadata, OpenOptions};
use cairn::{FileKind, ImageSpec, NewInode, Volume};
use cairn_testkit::tree::{Change, Entry, Step, judge_library, listing};

fn apply(volume: &Volume, change: &Change) -> std::io::Result<()> {
    match change {
        Change::Directory(path) => volume.create_dir(path),
        Change::File(path, size) => File::create(volume, path)?.set_len(*size),
        Change::Write(path, offset, bytes) => {
            OpenOptions::new().write(true).open(volume, path)?.write_all_at(bytes, *offset)
        }
        Change::Symlink(target, path) => volume.symlink(target, path),
        Change::Link(original, path) => volume.hard_link(original, path),
        Change::Node(path, mode, major, minor) => {
            let number = (minor & 0xff) | major << 8 | (minor & !0xff) << 12;
            let node = match FileKind::from_mode(*mode).unwrap() {
                FileKind::BlockDevice => NewInode::BlockDevice(number),
                FileKind::CharDevice => NewInode::CharDevice(number),
                _ => NewInode::Fifo,
            };
            volume.create_node(path, node, mode & 0o7777)
        }
        Change::Xattr(path, name, value) => volume.set_xattr(path, name, Some(value)),
        Change::Owner(path, uid, gid) => volume.set_owner(path, *uid, *gid),
        Change::Mode(path, mode) => volume.set_permissions(path, *mode),
        Change::Times(path, accessed, modified) => {
            volume.set_times_nofollow(path, *accessed, *modified)
        }
    }
}

fn entry(volume: &Volume, path: &[u8], found: &Metadata) -> Entry {
    let contents = match found.kind() {
        FileKind::Regular => volume.read(path).unwrap(),
        FileKind::Symlink => volume.read_link(path).unwrap(),
        _ => Vec::new(),
    };
    let names = volume.list_xattrs(path).unwrap();
    let value = |name: Vec<u8>| {
        let value = volume.xattr(path, &name).unwrap().unwrap();
        (name, value)
    };
    let attributes = found.attributes();
    Entry {
        path: path.to_vec(),
        mode: found.kind().mode_bits() | found.permissions(),
        links: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        size: found.len(),
        mtime: attributes.mtime,
        device: attributes.device,
        contents,
        xattrs: names.into_iter().map(value).collect(),
    }
}

fn listed(volume: &Volume) -> String {
    let mut lines = Vec::new();
    volume
        .walk("/", &mut |path, found| {
            if !path.is_empty() && path != b"lost+found" {
                lines.push(entry(volume, path, found).line());
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    lines.sort();
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn rust_writes_walks_reads_and_checks_a_seeded_tree() {
    let write = |image: &Path, steps: &[Step]| {
        let volume = Volume::open_writable(image).unwrap();
        for change in steps.iter().flat_map(Change::of) {
            apply(&volume, &change).unwrap_or_else(|error| panic!("{change:?}: {error}"));
        }
        volume.close().unwrap();
        let checked = cairn::check(&ImageSpec::whole(image), &[], std::sync::Arc::new(()));
        assert_eq!(checked.unwrap().report.count(), 0);
    };
    judge_library(&write, &|image| listed(&Volume::open(image).unwrap()), &|image| {
        listing(&**Volume::open(image).unwrap().filesystem())
    });
}
