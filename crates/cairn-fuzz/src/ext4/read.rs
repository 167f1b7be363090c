//! Numbers of a superblock, descriptors and inodes.

use cairn_base::checksum::crc32c;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;

/// A little-endian number of `len` bytes.
pub(super) fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// A 32-bit number.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    number(bytes, at, 4) as u32
}

/// The magic number that blocks of the log begin with.
pub(super) fn is_journal(bytes: &[u8]) -> bool {
    word(bytes, 0) == u32::from_be(0xc03b_3998)
}

/// The shape of a volume.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    pub(super) block_size: usize,
    pub(super) first_data_block: u64,
    pub(super) groups: u32,
    pub(super) descriptor_size: usize,
    pub(super) inodes_per_group: u32,
    pub(super) clusters_per_group: u32,
    pub(super) inode_size: usize,
    pub(super) journal_inode: u32,
    pub(super) orphan_inode: u32,
    pub(super) uuid: [u8; 16],
    /// Seed of all checksums with `metadata_csum`.
    pub(super) seed: Option<u32>,
    /// Group descriptors have a checksum of 16 bits (`uninit_bg`).
    pub(super) has_group_sums: bool,
    /// Block numbers have 64 bits.
    wide: bool,
}

impl Geometry {
    pub(super) fn read(device: &MemoryDevice) -> Self {
        let bytes = device.read_at(1024, 1024).expect("a superblock");
        assert_eq!(number(&bytes, 0x38, 2), 0xef53, "not an ext4 image");
        let (incompat, ro_compat) = (word(&bytes, 0x60), word(&bytes, 0x64));
        let wide = incompat & 0x80 != 0;
        let blocks = number(&bytes, 4, 4) | if wide { number(&bytes, 0x150, 4) << 32 } else { 0 };
        let first_data_block = number(&bytes, 0x14, 4);
        let uuid: [u8; 16] = bytes[0x68..0x78].try_into().expect("sixteen bytes");
        let seed = match incompat & 0x2000 {
            0 => crc32c(!0, &uuid),
            _ => word(&bytes, 0x270),
        };
        let dynamic = word(&bytes, 0x4c) > 0;
        Self {
            block_size: 1024 << word(&bytes, 0x18),
            first_data_block,
            groups: (blocks - first_data_block).div_ceil(number(&bytes, 0x20, 4)) as u32,
            descriptor_size: if wide { number(&bytes, 0xfe, 2) as usize } else { 32 },
            inodes_per_group: word(&bytes, 0x28),
            clusters_per_group: word(&bytes, 0x24),
            inode_size: if dynamic { number(&bytes, 0x58, 2) as usize } else { 128 },
            journal_inode: if word(&bytes, 0x5c) & 4 != 0 { word(&bytes, 0xe0) } else { 0 },
            orphan_inode: if word(&bytes, 0x5c) & 0x1000 != 0 { word(&bytes, 0x280) } else { 0 },
            uuid,
            seed: (ro_compat & 0x400 != 0).then_some(seed),
            has_group_sums: ro_compat & 0x10 != 0,
            wide,
        }
    }

    pub(super) fn block(&self, device: &MemoryDevice, block: u64) -> Vec<u8> {
        let at = block * self.block_size as u64;
        device.read_at(at, self.block_size).expect("a block of the volume").to_vec()
    }

    /// Where the descriptors begin, in bytes.
    pub(super) fn descriptors_at(&self) -> u64 {
        (self.first_data_block + 1) * self.block_size as u64
    }

    /// A descriptor's bytes.
    pub(super) fn descriptor(&self, device: &MemoryDevice, group: u32) -> Vec<u8> {
        let at = self.descriptors_at() + u64::from(group) * self.descriptor_size as u64;
        device.read_at(at, self.descriptor_size).expect("a descriptor").to_vec()
    }

    /// Block and inode bitmap and inode table of a group.
    pub(super) fn group(&self, device: &MemoryDevice, group: u32) -> [u64; 3] {
        let bytes = self.descriptor(device, group);
        [0, 4, 8].map(|at| {
            let high = if self.wide { number(&bytes, at + 0x20, 4) << 32 } else { 0 };
            number(&bytes, at, 4) | high
        })
    }

    /// Blocks of a group's inode table.
    pub(super) fn table_blocks(&self) -> u64 {
        (self.inodes_per_group as usize * self.inode_size).div_ceil(self.block_size) as u64
    }

    /// An inode's bytes, if descriptors lead to it: those of an input may lead anywhere.
    fn find_inode(&self, device: &MemoryDevice, ino: u32) -> Option<Vec<u8>> {
        let (group, index) = ((ino - 1) / self.inodes_per_group, (ino - 1) % self.inodes_per_group);
        let [_, _, table] = self.group(device, group);
        let start = table.checked_mul(self.block_size as u64)?;
        let at = start.checked_add(u64::from(index) * self.inode_size as u64)?;
        Some(device.read_at(at, self.inode_size).ok()?.to_vec())
    }

    pub(super) fn inode(&self, device: &MemoryDevice, ino: u32) -> Vec<u8> {
        self.find_inode(device, ino).expect("an inode of a sound volume")
    }

    /// The seed for what belongs to an inode.
    pub(super) fn inode_seed(&self, device: &MemoryDevice, ino: u32) -> Option<u32> {
        let generation = word(&self.find_inode(device, ino)?, 0x64);
        Some(crc32c(crc32c(self.seed?, &ino.to_le_bytes()), &generation.to_le_bytes()))
    }
}
