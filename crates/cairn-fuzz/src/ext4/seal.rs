//! Puts checksums right where blocks were changed: of what is inside of others first.

use std::collections::BTreeSet;

use cairn_base::checksum::{crc16, crc32c};
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;

use super::read::number;
use super::role::Role;
use super::{Volume, journal};

/// Bytes of the tail of a directory's block.
const TAIL: usize = 12;

impl Volume {
    /// Puts the checksums of the changed blocks right. `touched` has byte offsets of blocks.
    pub(crate) fn seal(&self, device: &MemoryDevice, touched: &BTreeSet<u64>) {
        let size = self.geometry.block_size as u64;
        let has_log = |at: &u64| matches!(self.roles.get(&(at / size)), Some(Role::Journal(_)));
        if touched.iter().any(has_log) {
            journal::seal(self, device);
        }
        if self.geometry.seed.is_none() && !self.geometry.has_group_sums {
            return;
        }
        let mut groups = BTreeSet::new();
        let mut superblock = false;
        for at in touched {
            let block = at / size;
            match self.roles.get(&block) {
                Some(Role::Superblock) => superblock = true,
                Some(Role::Groups) => groups.extend(0..self.geometry.groups),
                Some(Role::BlockBitmap(group) | Role::InodeBitmap(group)) => {
                    self.seal_bitmaps(device, *group);
                    groups.insert(*group);
                }
                Some(role) => self.seal_block(device, block, *role),
                None => {}
            }
        }
        for group in groups {
            self.seal_descriptor(device, group);
        }
        if superblock && self.geometry.seed.is_some() {
            let mut bytes = device.read_at(1024, 1024).expect("a superblock").to_vec();
            let sum = crc32c(!0, &bytes[..1020]);
            bytes[1020..].copy_from_slice(&sum.to_le_bytes());
            write(device, 1024, bytes);
        }
    }

    fn seal_block(&self, device: &MemoryDevice, block: u64, role: Role) {
        let mut bytes = self.geometry.block(device, block);
        let sealed = match role {
            Role::Inodes(first) => self.seal_inodes(&mut bytes, first),
            Role::Extents(ino) => self.seal_extents(device, &mut bytes, ino),
            Role::Directory(ino) => self.seal_directory(device, &mut bytes, ino),
            Role::Attributes => self.seal_attributes(&mut bytes, block),
            Role::Orphans(ino) => self.seal_orphans(device, &mut bytes, block, ino),
            _ => None,
        };
        if sealed.is_some() {
            write(device, block * self.geometry.block_size as u64, bytes);
        }
    }

    fn seal_bitmaps(&self, device: &MemoryDevice, group: u32) {
        let Some(seed) = self.geometry.seed else { return };
        let [blocks, inodes, _] = self.geometry.group(device, group);
        let mut bytes = self.geometry.descriptor(device, group);
        let kinds = [
            (blocks, self.geometry.clusters_per_group, 0x18),
            (inodes, self.geometry.inodes_per_group, 0x1a),
        ];
        for (block, bits, at) in kinds {
            // A descriptor that was changed may name any block.
            let at_byte = block.saturating_mul(self.geometry.block_size as u64);
            let Ok(bitmap) = device.read_at(at_byte, bits as usize / 8) else { continue };
            let sum = crc32c(seed, &bitmap).to_le_bytes();
            bytes[at..at + 2].copy_from_slice(&sum[..2]);
            let high = at + 0x20;
            if bytes.len() >= high + 2 {
                bytes[high..high + 2].copy_from_slice(&sum[2..]);
            }
        }
        let at = self.geometry.descriptors_at()
            + u64::from(group) * self.geometry.descriptor_size as u64;
        write(device, at, bytes);
    }

    fn seal_descriptor(&self, device: &MemoryDevice, group: u32) {
        const SUM: usize = 0x1e;
        let mut bytes = self.geometry.descriptor(device, group);
        let (before, after) = (&bytes[..SUM], &bytes[SUM + 2..]);
        let number = group.to_le_bytes();
        let sum = match self.geometry.seed {
            Some(seed) => {
                let head = crc32c(crc32c(seed, &number), before);
                crc32c(crc32c(head, &[0, 0]), after) as u16
            }
            None => {
                let head = crc16(crc16(!0, &self.geometry.uuid), &number);
                crc16(crc16(head, before), after)
            }
        };
        bytes[SUM..SUM + 2].copy_from_slice(&sum.to_le_bytes());
        let at = self.geometry.descriptors_at()
            + u64::from(group) * self.geometry.descriptor_size as u64;
        write(device, at, bytes);
    }

    fn seal_inodes(&self, bytes: &mut [u8], first: u32) -> Option<()> {
        const LOW: usize = 0x7c;
        const HIGH: usize = 0x82;
        let seed = self.geometry.seed?;
        for (ino, inode) in (first..).zip(bytes.chunks_exact_mut(self.geometry.inode_size)) {
            // One that was never used has no checksum.
            if inode.iter().all(|byte| *byte == 0) {
                continue;
            }
            let seed = crc32c(crc32c(seed, &ino.to_le_bytes()), &inode[0x64..0x68]);
            let is_wide = inode.len() > 128 && number(inode, 0x80, 2) >= 4;
            inode[LOW..LOW + 2].fill(0);
            if is_wide {
                inode[HIGH..HIGH + 2].fill(0);
            }
            let sum = crc32c(seed, inode).to_le_bytes();
            inode[LOW..LOW + 2].copy_from_slice(&sum[..2]);
            if is_wide {
                inode[HIGH..HIGH + 2].copy_from_slice(&sum[2..]);
            }
        }
        Some(())
    }

    fn seal_extents(&self, device: &MemoryDevice, bytes: &mut [u8], ino: u32) -> Option<()> {
        let seed = self.geometry.inode_seed(device, ino)?;
        let at = 12 + number(bytes, 4, 2) as usize * 12;
        let sum = crc32c(seed, bytes.get(..at)?);
        bytes.get_mut(at..at + 4)?.copy_from_slice(&sum.to_le_bytes());
        Some(())
    }

    fn seal_directory(&self, device: &MemoryDevice, bytes: &mut [u8], ino: u32) -> Option<()> {
        let seed = self.geometry.inode_seed(device, ino)?;
        let (tail, block) = (bytes.len() - TAIL, bytes.len() as u64);
        // An index hides behind an entry without a name that is as long as the rest of the block.
        let is_root = number(bytes, 4, 2) == 12 && number(bytes, 16, 2) == block - 12;
        let is_node = number(bytes, 0, 4) == 0 && number(bytes, 4, 2) == block;
        if !is_root && !is_node {
            if bytes[tail..tail + 8] == [0, 0, 0, 0, 12, 0, 0, 0xde] {
                let sum = crc32c(seed, &bytes[..tail]);
                bytes[tail + 8..].copy_from_slice(&sum.to_le_bytes());
            }
            return Some(());
        }
        let at = if is_root { 0x20 } else { 8 };
        let (limit, count) = (number(bytes, at, 2) as usize, number(bytes, at + 2, 2) as usize);
        let (used, tail) = (at + count * 8, at + limit * 8);
        let sum = crc32c(crc32c(seed, bytes.get(..used)?), bytes.get(tail..tail + 4)?);
        let sum = crc32c(sum, &[0; 4]);
        bytes.get_mut(tail + 4..tail + 8)?.copy_from_slice(&sum.to_le_bytes());
        Some(())
    }

    fn seal_attributes(&self, bytes: &mut [u8], block: u64) -> Option<()> {
        let seed = self.geometry.seed?;
        bytes[16..20].fill(0);
        let sum = crc32c(crc32c(seed, &block.to_le_bytes()), bytes);
        bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        Some(())
    }

    fn seal_orphans(
        &self,
        device: &MemoryDevice,
        bytes: &mut [u8],
        block: u64,
        ino: u32,
    ) -> Option<()> {
        let seed = self.geometry.inode_seed(device, ino)?;
        let tail = bytes.len() - 8;
        let sum = crc32c(crc32c(seed, &block.to_le_bytes()), &bytes[..tail]);
        bytes[tail + 4..].copy_from_slice(&sum.to_le_bytes());
        Some(())
    }
}

/// Overwrites bytes of the image. Outside of it, where a changed number may lead, nothing is done.
fn write(device: &MemoryDevice, at: u64, bytes: Vec<u8>) {
    let _ = device.write_at(at, bytes);
}
