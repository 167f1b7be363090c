//! Finds every block of metadata.

use std::collections::BTreeMap;

use cairn_block::memory::MemoryDevice;

use super::read::{Geometry, number, word};
use super::role::Role;

/// Blocks by what they hold.
type Roles = BTreeMap<u64, Role>;

const EXTENTS: u32 = 0x8_0000;
const INLINE: u32 = 0x1000_0000;

/// The blocks of an inode.
#[derive(Default)]
struct Map {
    data: Vec<u64>,
    /// Blocks of the map, and whether they hold extents.
    inner: Vec<(u64, bool)>,
}

/// The metadata of a volume, and the blocks of its log in order.
pub(super) fn walk(device: &MemoryDevice, geometry: &Geometry) -> (Roles, Vec<u64>) {
    let mut roles = Roles::new();
    let size = geometry.block_size as u64;
    roles.insert(1024 / size, Role::Superblock);
    let descriptors = u64::from(geometry.groups) * geometry.descriptor_size as u64;
    for block in 0..descriptors.div_ceil(size) {
        roles.insert(geometry.descriptors_at() / size + block, Role::Groups);
    }
    let per_block = (geometry.block_size / geometry.inode_size) as u32;
    for group in 0..geometry.groups {
        let [blocks, inodes, table] = geometry.group(device, group);
        roles.insert(blocks, Role::BlockBitmap(group));
        roles.insert(inodes, Role::InodeBitmap(group));
        for number in 0..geometry.table_blocks() {
            let bytes = geometry.block(device, table + number);
            // Inodes that nobody has used differ in nothing.
            if group == 0 && number == 0 || bytes.iter().any(|byte| *byte != 0) {
                let first = group * geometry.inodes_per_group + number as u32 * per_block + 1;
                roles.insert(table + number, Role::Inodes(first));
            }
        }
    }
    let mut journal = Vec::new();
    for ino in 1..=geometry.groups * geometry.inodes_per_group {
        let inode = geometry.inode(device, ino);
        if number(&inode, 0, 2) == 0 {
            continue;
        }
        let attributes = number(&inode, 0x68, 4);
        if attributes != 0 {
            roles.insert(attributes, Role::Attributes);
        }
        let map = map(device, geometry, &inode);
        for (block, has_extents) in &map.inner {
            let role = if *has_extents { Role::Extents(ino) } else { Role::Pointers };
            roles.insert(*block, role);
        }
        let is_directory = number(&inode, 0, 2) & 0xf000 == 0x4000;
        for (index, block) in map.data.iter().enumerate() {
            if ino == geometry.journal_inode {
                journal.push(*block);
                roles.insert(*block, Role::Journal(index as u32));
            } else if ino == geometry.orphan_inode {
                roles.insert(*block, Role::Orphans(ino));
            } else if is_directory {
                roles.insert(*block, Role::Directory(ino));
            }
        }
    }
    (roles, journal)
}

fn map(device: &MemoryDevice, geometry: &Geometry, inode: &[u8]) -> Map {
    let mut map = Map::default();
    let (kind, flags) = (number(inode, 0, 2) & 0xf000, word(inode, 0x20));
    // Device numbers and short links are where the map would be.
    let is_short = kind == 0xa000 && number(inode, 4, 4) < 60;
    if flags & INLINE != 0 || is_short || !matches!(kind, 0x4000 | 0x8000 | 0xa000) {
        return map;
    }
    let root = &inode[0x28..0x64];
    if flags & EXTENTS != 0 {
        extents(device, geometry, root, &mut map);
    } else {
        let direct = (0..12).map(|index| number(root, index * 4, 4)).filter(|block| *block != 0);
        map.data.extend(direct);
        for (depth, index) in [(0, 12), (1, 13), (2, 14)] {
            pointers(device, geometry, number(root, index * 4, 4), depth, &mut map);
        }
    }
    map
}

fn extents(device: &MemoryDevice, geometry: &Geometry, node: &[u8], map: &mut Map) {
    let (entries, depth) = (number(node, 2, 2) as usize, number(node, 6, 2));
    for entry in node[12..].chunks_exact(12).take(entries) {
        if depth == 0 {
            let start = number(entry, 8, 4) | number(entry, 6, 2) << 32;
            let len = number(entry, 4, 2);
            map.data.extend(start..start + if len > 0x8000 { len - 0x8000 } else { len });
        } else {
            let block = number(entry, 4, 4) | number(entry, 8, 2) << 32;
            map.inner.push((block, true));
            extents(device, geometry, &geometry.block(device, block), map);
        }
    }
}

fn pointers(device: &MemoryDevice, geometry: &Geometry, block: u64, depth: u32, map: &mut Map) {
    if block == 0 {
        return;
    }
    map.inner.push((block, false));
    let bytes = geometry.block(device, block);
    for entry in bytes.chunks_exact(4).map(|entry| number(entry, 0, 4)).filter(|entry| *entry != 0)
    {
        if depth == 0 {
            map.data.push(entry);
        } else {
            pointers(device, geometry, entry, depth - 1, map);
        }
    }
}
