//! Seeded damage to the metadata of an ext4 image: superblock, group descriptors, bitmaps, inode
//! tables, directories and extent blocks, and fields of plausible width and place in them.
//!
//! [`Target::of`] finds the metadata once. [`Target::mutate`] damages a copy and describes the
//! damage, which depends only on the seed.

use std::fmt;

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::crash::read_image;
use crate::judge::{KernelMount, mke2fs};
use crate::tree::{PathTarget, TreeSpec, build, plan};

/// A sound image and where its metadata is.
pub struct Target {
    image: MemoryDevice,
    size: u64,
    block_size: u64,
    /// Byte offsets of metadata blocks.
    metadata: Vec<u64>,
    /// Byte offsets of all blocks that are not empty.
    used: Vec<u64>,
}

/// A description of the damage, for the failure message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One bit inverted.
    Flip {
        /// Byte offset.
        at: u64,
        /// Bit of the byte.
        bit: u8,
    },
    /// A field replaced.
    Field {
        /// Byte offset.
        at: u64,
        /// Little-endian bytes.
        value: Vec<u8>,
    },
    /// A block overwritten with another.
    Copy {
        /// Byte offset of the source.
        from: u64,
        /// Byte offset of the target.
        to: u64,
    },
    /// A block filled with one byte.
    Fill {
        /// Byte offset.
        at: u64,
        /// The byte.
        with: u8,
    },
    /// A run of random bytes.
    Noise {
        /// Byte offset.
        at: u64,
        /// Length.
        len: usize,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flip { at, bit } => write!(f, "bit {bit} of byte {at:#x} flipped"),
            Self::Field { at, value } => {
                write!(f, "{} bytes at {at:#x} set to {value:02x?}", value.len())
            }
            Self::Copy { from, to } => write!(f, "block at {from:#x} copied over {to:#x}"),
            Self::Fill { at, with } => write!(f, "block at {at:#x} filled with {with:#04x}"),
            Self::Noise { at, len } => write!(f, "{len} random bytes at {at:#x}"),
        }
    }
}

impl Target {
    /// A small ext4 volume of mke2fs, with files, directories and attributes that the kernel has
    /// made.
    ///
    /// # Panics
    /// The kernel does not mount it.
    #[must_use]
    pub fn ext4(args: &[&str], seed: u64) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        mke2fs(file.path(), 4 << 20, args);
        let mount = KernelMount::new(file.path(), "");
        let spec =
            TreeSpec { directories: 6, files: 30, size_max: 20_000, ..TreeSpec::small(seed) };
        build(&PathTarget::new(mount.path()), &plan(&spec));
        for number in 0..60 {
            let name = format!("a name that fills the block {number}");
            std::fs::write(mount.path().join(name), b"x").unwrap();
        }
        mount.unmount();
        Self::of(read_image(file.path()).unwrap())
    }

    /// Finds the metadata of a sound ext2, ext3 or ext4 image.
    ///
    /// # Panics
    /// It is no such image.
    #[must_use]
    pub fn of(image: MemoryDevice) -> Self {
        let size = image.geometry().size;
        let layout = Layout::read(&image);
        let metadata = layout.metadata(&image);
        let used = used_blocks(&image, size, layout.block_size);
        Self { image, size, block_size: layout.block_size, metadata, used }
    }

    /// Metadata blocks found.
    #[must_use]
    pub fn metadata_blocks(&self) -> usize {
        self.metadata.len()
    }

    /// A copy with one to six damages, and their description.
    ///
    /// # Panics
    /// The memory device fails.
    #[must_use]
    pub fn mutate(&self, seed: u64) -> (MemoryDevice, Vec<Damage>) {
        let device = self.image.fork();
        let mut rng = fastrand::Rng::with_seed(seed);
        let count = [1, 1, 1, 2, 3, 6][rng.usize(0..6)];
        let damage: Vec<_> = (0..count).map(|_| self.wound(&mut rng)).collect();
        for wound in &damage {
            self.apply(&device, wound, &mut rng);
        }
        (device, damage)
    }

    fn wound(&self, rng: &mut fastrand::Rng) -> Damage {
        let block = self.block(rng);
        // Structures begin at multiples of four. One in four damages is in the block's first 64
        // bytes, its header.
        let reach = if rng.u8(0..4) == 0 { 64 } else { self.block_size };
        let at = (block + rng.u64(0..reach / 4) * 4).min(self.size - 8);
        match rng.u32(0..10) {
            0..3 => Damage::Flip { at: (at + rng.u64(0..4)).min(self.size - 1), bit: rng.u8(0..8) },
            3..8 => Damage::Field { at, value: self.field(rng) },
            8 => match rng.u32(0..3) {
                0 => Damage::Fill { at: block, with: if rng.bool() { 0 } else { 0xff } },
                _ => Damage::Copy { from: self.block(rng), to: block },
            },
            _ => Damage::Noise { at, len: rng.usize(1..64) },
        }
    }

    /// A metadata block in three of four cases, otherwise any used block.
    fn block(&self, rng: &mut fastrand::Rng) -> u64 {
        let from = if rng.u8(0..4) > 0 { &self.metadata } else { &self.used };
        *rng.choice(from).expect("an ext4 image has metadata")
    }

    /// A value that code may not expect: extremes, neighbours of limits, the image's own sizes, or
    /// anything.
    fn field(&self, rng: &mut fastrand::Rng) -> Vec<u8> {
        let blocks = self.size / self.block_size;
        let interesting = [
            0,
            1,
            2,
            7,
            0x7f,
            0xff,
            0x7fff,
            0xffff,
            0x7fff_ffff,
            0xffff_ffff,
            u64::MAX,
            blocks - 1,
            blocks,
        ];
        let value =
            if rng.bool() { interesting[rng.usize(0..interesting.len())] } else { rng.u64(..) };
        let width = [1, 2, 4, 4, 8][rng.usize(0..5)];
        value.to_le_bytes()[..width].to_vec()
    }

    fn apply(&self, device: &MemoryDevice, damage: &Damage, rng: &mut fastrand::Rng) {
        let block = usize::try_from(self.block_size).expect("a block size");
        let room = |at: u64| usize::try_from(self.size - at).unwrap_or(usize::MAX);
        let (at, bytes) = match damage {
            Damage::Flip { at, bit } => {
                let old = device.read_at(*at, 1).expect("inside the image")[0];
                (*at, vec![old ^ (1 << bit)])
            }
            Damage::Field { at, value } => (*at, value.clone()),
            Damage::Copy { from, to } => {
                let len = block.min(room(*from)).min(room(*to));
                (*to, device.read_at(*from, len).expect("inside the image").to_vec())
            }
            Damage::Fill { at, with } => (*at, vec![*with; block.min(room(*at))]),
            Damage::Noise { at, len } => {
                (*at, (0..(*len).min(room(*at))).map(|_| rng.u8(..)).collect())
            }
        };
        device.write_at(at, bytes).expect("inside the image");
    }
}

/// The superblock fields that locate the other metadata.
struct Layout {
    block_size: u64,
    first_data_block: u64,
    groups: u64,
    descriptor_size: u64,
    table_blocks: u64,
    wide: bool,
}

impl Layout {
    fn read(image: &MemoryDevice) -> Self {
        let superblock = image.read_at(1024, 1024).expect("an image holds a superblock");
        let field = |at: usize, len: usize| {
            superblock[at..at + len]
                .iter()
                .rev()
                .fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
        };
        assert_eq!(field(0x38, 2), 0xef53, "not an ext4 image");
        let block_size = 1024 << field(0x18, 4);
        let wide = field(0x60, 4) & 0x80 != 0;
        let blocks = field(0x04, 4) | if wide { field(0x150, 4) << 32 } else { 0 };
        let first_data_block = field(0x14, 4);
        Self {
            block_size,
            first_data_block,
            groups: (blocks - first_data_block).div_ceil(field(0x20, 4)),
            descriptor_size: if wide { field(0xfe, 2).max(64) } else { 32 },
            table_blocks: (field(0x28, 4) * field(0x58, 2).max(128)).div_ceil(block_size),
            wide,
        }
    }

    /// Superblock, descriptors, and of each group the bitmaps and the used start of the inode
    /// table; then everything that looks like an extent or directory block.
    fn metadata(&self, image: &MemoryDevice) -> Vec<u64> {
        let size = image.geometry().size;
        let table = (self.first_data_block + 1) * self.block_size;
        let mut offsets = vec![1024 / self.block_size * self.block_size];
        let bytes = usize::try_from(self.groups * self.descriptor_size).expect("a small image");
        let descriptors = image.read_at(table, bytes).expect("descriptors lie inside the image");
        offsets.extend(
            (0..(bytes as u64).div_ceil(self.block_size))
                .map(|block| table + block * self.block_size),
        );
        for group in
            descriptors.chunks(usize::try_from(self.descriptor_size).expect("a small number"))
        {
            let word = |at: usize| {
                u64::from(u32::from_le_bytes(group[at..at + 4].try_into().expect("four bytes")))
            };
            let place = |low: usize| word(low) | if self.wide { word(low + 0x20) << 32 } else { 0 };
            let inodes = place(8);
            let blocks =
                [place(0), place(4)].into_iter().chain(inodes..inodes + self.table_blocks.min(16));
            offsets.extend(blocks.map(|block| block * self.block_size));
        }
        offsets.extend(
            used_blocks(image, size, self.block_size)
                .into_iter()
                .filter(|at| looks_structured(image, *at)),
        );
        offsets.retain(|at| at + self.block_size <= size);
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }
}

/// An extent block begins with its magic number, a directory block with a small record for `.`, or
/// a journal block.
fn looks_structured(image: &MemoryDevice, at: u64) -> bool {
    let head = image.read_at(at, 16).expect("inside the image");
    let extents = head.starts_with(&[0x0a, 0xf3]);
    let directory = head[4..8] == [12, 0, 1, 2] && head[8] == b'.';
    let journal = head.starts_with(&[0xc0, 0x3b, 0x39, 0x98]);
    extents || directory || journal
}

fn used_blocks(image: &MemoryDevice, size: u64, block_size: u64) -> Vec<u64> {
    let len = usize::try_from(block_size).expect("a block size");
    let is_used =
        |at: &u64| image.read_at(*at, len).expect("inside the image").iter().any(|byte| *byte != 0);
    (0..size / block_size).map(|block| block * block_size).filter(is_used).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::{read_image, write_image};
    use crate::judge;

    fn image(args: &[&str]) -> Target {
        let file = tempfile::NamedTempFile::new().unwrap();
        judge::mke2fs(file.path(), 8 << 20, args);
        Target::of(read_image(file.path()).unwrap())
    }

    #[test]
    fn damage_is_seeded_and_real() {
        let target = image(&["-t", "ext4", "-b", "1024"]);
        assert!(target.metadata_blocks() > 10, "{}", target.metadata_blocks());
        let bytes = |device: &MemoryDevice| device.read_at(0, 8 << 20).unwrap().to_vec();
        let sound = bytes(&target.image);
        let mut changed = 0;
        for seed in 0..50 {
            let ((a, first), (b, second)) = (target.mutate(seed), target.mutate(seed));
            assert_eq!(first, second);
            assert_eq!(bytes(&a), bytes(&b), "seed {seed}");
            changed += usize::from(bytes(&a) != sound);
        }
        assert!(changed > 30, "only {changed} of 50 changed anything");
        assert_eq!(bytes(&target.image), sound, "the original was touched");
    }

    #[test]
    fn e2fsck_notices_much_of_it() {
        let target = image(&["-t", "ext4"]);
        let file = tempfile::NamedTempFile::new().unwrap();
        let noticed = (0..20).filter(|seed| {
            write_image(&target.mutate(*seed).0, file.path()).unwrap();
            !judge::e2fsck_check(file.path()).is_clean()
        });
        assert!(noticed.count() > 8);
    }

    #[test]
    fn every_layout_is_understood() {
        for args in [
            &["-t", "ext2", "-b", "1024"][..],
            &["-t", "ext3"],
            &["-t", "ext4", "-b", "2048", "-O", "^64bit"],
        ] {
            let target = image(args);
            assert!(target.metadata_blocks() > 4, "{args:?}");
        }
    }
}
