//! Valid volumes to be damaged: a tree, later changes, and a chain of fsynced nodes after the last
//! checkpoint unless the volume was unmounted.

use std::path::Path;
use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_block::zoned::ZoneLayout;
use cairn_f2fs::F2fs;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{mkfs_f2fs, sload_f2fs};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, XattrMode};

use crate::opened::open;
use crate::zoned::{in_zones, layout};
use crate::zones::{SPARE, widened};

const MIB: u64 = 1 << 20;

/// The device of a volume, and the features of its inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// With extra attributes.
    Extra,
    /// On zones.
    Zoned,
    /// On zones with less capacity than size: their second segment ends in the middle.
    Short,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Plain, Self::Extra, Self::Zoned, Self::Short];

    /// The zones of the device: those of the volume, and further ones.
    pub fn zones(self) -> Option<ZoneLayout> {
        // Two conventional ones are sections.
        let zones = ZoneLayout { conventional: 7, ..layout(4, 36 + SPARE) };
        match self {
            Self::Plain | Self::Extra => None,
            Self::Zoned => Some(zones),
            Self::Short => Some(ZoneLayout { capacity: 643 << 12, conventional: 5, ..zones }),
        }
    }
}

/// How the last mount of a volume ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By a power cut.
    Cut,
    Closed,
}

/// A valid volume of this kind.
pub fn sound(kind: Kind, end: End) -> Arc<MemoryDevice> {
    let tree = tempfile::tempdir().unwrap();
    plant(tree.path());
    let device = match kind.zones() {
        None => Arc::new(loaded(kind, tree.path())),
        Some(zones) => {
            Arc::new(widened(&in_zones(ZoneLayout { zones: zones.zones - SPARE, ..zones }), &zones))
        }
    };
    let fs = open(device.clone(), "");
    if kind.zones().is_some() {
        bring_in(&fs, tree.path(), fs.root());
        fs.sync().unwrap();
    }
    change(&fs);
    match end {
        End::Cut => fs.shutdown(false).unwrap(),
        End::Closed => fs.unmount().unwrap(),
    }
    drop(fs);
    Arc::new(device.fork())
}

fn plant(root: &Path) {
    for name in ["d", "e", "e/below", "e/below/it"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    for index in 0..400 {
        std::fs::write(
            root.join(format!("d/a rather long name of a file {index}")),
            [index as u8; 10],
        )
        .unwrap();
    }
    std::fs::write(root.join("e/large"), vec![7; 12 << 20]).unwrap();
    std::fs::write(root.join("e/small"), vec![7; 3000]).unwrap();
    std::os::unix::fs::symlink("e/large", root.join("link")).unwrap();
}

/// A tree that sload.f2fs has copied in.
fn loaded(kind: Kind, tree: &Path) -> MemoryDevice {
    let arguments: &[&str] = match kind {
        Kind::Extra => &["-O", "extra_attr,inode_crtime,inode_checksum,compression"],
        _ => &[],
    };
    let image = tempfile::NamedTempFile::new().unwrap();
    mkfs_f2fs(image.path(), 128 * MIB, arguments);
    sload_f2fs(image.path(), tree);
    read_image(image.path()).unwrap()
}

/// A tree that Cairn writes, because sload.f2fs does not write to zones.
fn bring_in(fs: &F2fs, tree: &Path, directory: Ino) {
    let mut entries: Vec<_> = tree.read_dir().unwrap().map(|entry| entry.unwrap()).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (kind, path) = (entry.file_type().unwrap(), entry.path());
        let target = std::fs::read_link(&path).unwrap_or_default();
        let new = match () {
            () if kind.is_dir() => NewInode::Directory,
            () if kind.is_symlink() => NewInode::Symlink(target.as_os_str().as_encoded_bytes()),
            () => NewInode::Regular,
        };
        let name = entry.file_name();
        let ino =
            fs.create(directory, name.as_encoded_bytes(), new, 0o755, &Caller::ROOT).unwrap().ino;
        if kind.is_file() {
            fs.write(ino, 0, &std::fs::read(&path).unwrap(), IoFlags::empty()).unwrap();
        }
        if kind.is_dir() {
            bring_in(fs, &path, ino);
        }
        fs.forget(ino, 1);
    }
}

/// Some changes are in the checkpoint, with an orphan; some are in the chain, some in neither.
fn change(fs: &F2fs) {
    for index in 0..20_u8 {
        let name = format!("a rather new file {index}");
        let made =
            fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
        fs.write(made.ino, u64::from(index) << 20, &[index; 9000], IoFlags::empty()).unwrap();
        fs.setxattr(made.ino, b"user.name", &[index; 700], XattrMode::Set).unwrap();
        match index {
            0..8 => {}
            8 => {
                fs.unlink(fs.root(), name.as_bytes()).unwrap();
                fs.sync().unwrap();
            }
            _ if index % 2 == 0 => fs.fsync(made.ino, 0, false).unwrap(),
            _ => {}
        }
    }
}
