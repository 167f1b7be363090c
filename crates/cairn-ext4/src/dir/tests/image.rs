//! Images of mke2fs and the kernel, opened as far as needed to reach one inode.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cairn_base::{Ino, Pba};
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_testkit::judge;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::ListedDir;
use crate::dir::DirSettings;
use crate::dir::hash::HashSettings;
use crate::format::dir_entry::DirFormat;
use crate::format::features::{Compat, Incompat};
use crate::format::group_desc::GroupDesc;
use crate::format::inode::{Inode, InodeFlags};
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;

/// `EXT2_FLAGS_UNSIGNED_HASH`.
const UNSIGNED_HASH: u32 = 2;

/// An image in its own directory.
pub(crate) struct TestImage {
    _directory: TempDir,
    pub(crate) path: PathBuf,
}

impl TestImage {
    pub(crate) fn new(size: u64, args: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        judge::mke2fs(&path, size, args);
        Self { _directory: directory, path }
    }

    /// Runs `change` on the kernel's mount.
    pub(crate) fn mounted<T>(&self, change: impl FnOnce(&Path) -> T) -> T {
        let mount = judge::KernelMount::new(&self.path, "");
        let result = change(mount.path());
        mount.unmount();
        result
    }

    pub(crate) fn open(&self) -> OpenImage {
        let device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(&self.path, OpenOptions::write()).unwrap());
        let bytes = device.read_at(1024, 1024).unwrap();
        let superblock = Superblock::decode(&bytes).unwrap();
        let layout = Layout::new(&superblock, device.geometry().size).unwrap();
        let cache = BufferCache::new(device, layout.block_size, Budget::new(1 << 30));
        OpenImage { path: self.path.clone(), superblock, layout, cache }
    }
}

/// An image whose structures are open.
pub(crate) struct OpenImage {
    path: PathBuf,
    pub(crate) superblock: Superblock,
    pub(crate) layout: Layout,
    pub(crate) cache: Arc<BufferCache>,
}

impl OpenImage {
    /// Inode number of a path.
    pub(crate) fn ino(&self, path: &str) -> Ino {
        let stat = judge::debugfs(&self.path, &format!("stat {path}"));
        let number = stat.split_whitespace().skip_while(|word| *word != "Inode:").nth(1).unwrap();
        Ino(number.parse().unwrap())
    }

    fn inode_place(&self, ino: Ino) -> (Pba, usize) {
        let (group, index) = self.layout.inode_group(ino).unwrap();
        let block = self.cache.get(self.layout.descriptor_block(group)).unwrap().image();
        let at = self.layout.descriptor_offset(group);
        let bytes = &block[at..at + self.layout.desc_size as usize];
        let table = GroupDesc::decode(bytes, group, &self.layout).unwrap().inode_table;
        let place = self.layout.inode_location(index, table);
        (place.pba, place.offset)
    }

    pub(crate) fn inode(&self, ino: Ino) -> Inode {
        let (pba, at) = self.inode_place(ino);
        let image = self.cache.get(pba).unwrap().image();
        Inode::decode(&image[at..at + self.layout.inode_size as usize], ino, &self.layout).unwrap()
    }

    pub(crate) fn write_inode(&self, ino: Ino, inode: &Inode) {
        let (pba, at) = self.inode_place(ino);
        let buffer = self.cache.get(pba).unwrap();
        let mut bytes = buffer.modify_direct();
        inode.encode(ino, &self.layout, &mut bytes[at..at + self.layout.inode_size as usize]);
    }

    /// Addresses of a file's blocks, in order.
    fn blocks(&self, ino: Ino) -> Vec<Pba> {
        let extents = judge::debugfs(&self.path, &format!("dump_extents -l <{ino}>"));
        let mut blocks = Vec::new();
        for line in extents.lines().filter(|line| line.contains(" - ") && line.contains('/')) {
            let numbers: Vec<u64> = line
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|word| word.parse().ok())
                .collect();
            assert_eq!(numbers[4], blocks.len() as u64, "a hole: {line}");
            blocks.extend((numbers[6]..=numbers[7]).map(Pba));
        }
        blocks
    }

    pub(crate) fn settings(&self, ino: Ino, inode: &Inode) -> DirSettings {
        let (raw, features) = (&self.superblock.raw, self.layout.features);
        DirSettings {
            ino,
            format: DirFormat {
                block_size: self.layout.block_size as usize,
                filetype: features.incompat(Incompat::FILETYPE),
                seed: inode.seed(ino, &self.layout),
                inodes_count: self.layout.inodes_count,
            },
            hash: HashSettings {
                default_version: raw.s_def_hash_version,
                unsigned: raw.s_flags.get() & UNSIGNED_HASH != 0,
                seed: raw.s_hash_seed.map(|word| word.get()),
            },
            dir_index: features.compat(Compat::DIR_INDEX),
            large_dir: features.incompat(Incompat::LARGE_DIR),
        }
    }

    /// A directory that uses all its blocks.
    pub(in crate::dir) fn directory(&self, path: &str) -> ListedDir {
        let ino = self.ino(path);
        let inode = self.inode(ino);
        ListedDir {
            cache: self.cache.clone(),
            settings: self.settings(ino, &inode),
            used: Mutex::new(self.blocks(ino)),
            spare: Mutex::default(),
            indexed: AtomicBool::new(inode.flags.contains(InodeFlags::INDEX)),
            folded: inode.flags.contains(InodeFlags::CASEFOLD),
        }
    }
}
