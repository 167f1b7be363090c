//! The records of nodes in the inode tables.

use cairn_vfs::new_tree::{Kind, Node};

use super::attributes::place;
use super::error::PopulateResult;
use super::places::{Places, has_attribute_block};
use super::regular::{extents, tree};
use super::stream::Stream;
use super::survey::{FAST_SYMLINK_MAX, Survey};
use super::values::{charge, number};
use crate::format::inode::{Inode, InodeFlags};
use crate::format::layout::Layout;
use crate::format::xattr::encode_inode;
use crate::xattr::inline_data;

/// What records depend on.
pub(super) struct Records<'a> {
    pub(super) survey: &'a Survey,
    pub(super) places: &'a Places,
    pub(super) stream: &'a Stream,
    pub(super) layout: &'a Layout,
    /// Inode number of the first value.
    pub(super) first_value: u32,
}

impl Records<'_> {
    /// The inode of a node.
    pub(super) fn inode(&self, id: u32) -> PopulateResult<Inode> {
        let survey = self.survey;
        let source = &*survey.source;
        let (node, need) = (source.node(id), survey.nodes[id as usize]);
        let mut inode = Inode::new(0, self.layout);
        let kind = node.kind.file_kind();
        inode.mode = (kind.mode_bits() | node.permissions & 0o7777) as u16;
        (inode.uid, inode.gid, inode.links) = (node.uid, node.gid, need.links);
        (inode.atime, inode.mtime, inode.ctime) = (node.atime, node.mtime, node.ctime);
        inode.crtime = node.crtime;
        let mut attributes = place(source, id, &node, &survey.settings, &survey.values)?;
        let charged = charge(&attributes.inode, self.layout.block_size)
            + charge(&attributes.block, self.layout.block_size);
        number(&mut attributes.inode, self.first_value);
        encode_inode(&mut inode.extra, &attributes.inode);
        let mut blocks = self.contents(id, &node, &mut inode)?;
        if has_attribute_block(survey, id) {
            inode.file_acl = self.stream.run(need.xattrs.into(), 1).0;
            blocks += 1;
        }
        inode.blocks_512 = (blocks + charged) << (self.layout.block_bits - 9);
        Ok(inode)
    }

    /// The inode of a value.
    pub(super) fn value(&self, value: u32) -> Inode {
        let values = &self.survey.values;
        let of = &values.list[value as usize];
        let blocks = u64::from(of.len.div_ceil(self.layout.block_size));
        let mut inode = values.inode(of, self.layout);
        let all = extents(std::iter::once(0..blocks), self.places.value(value), self.stream);
        // More than four runs would need groups of less than 64 KiB.
        let (root, _) = tree(all, 0, self.stream, self.layout.block_size);
        root.encode_root(&mut inode.block);
        inode.blocks_512 = blocks << (self.layout.block_bits - 9);
        inode
    }

    /// Sets size and map. Returns the number of blocks.
    fn contents(&self, id: u32, node: &Node<'_>, inode: &mut Inode) -> PopulateResult<u64> {
        let blocks = u64::from(self.survey.nodes[id as usize].blocks);
        match node.kind {
            Kind::Directory { .. } => {
                inode.size = blocks * u64::from(self.layout.block_size);
                let names = self.survey.names(id).expect("a directory");
                inode.flags.set(InodeFlags::INDEX, names.have_index(&self.survey.settings));
            }
            Kind::Regular { size, data } => {
                inode.size = size;
                if blocks == 0 && !data.is_empty() {
                    return self.inline(id, inode).map(|()| 0);
                }
            }
            Kind::Symlink(target) => {
                inode.size = target.len() as u64;
                if target.len() <= FAST_SYMLINK_MAX {
                    inode.block[..target.len()].copy_from_slice(target);
                    return Ok(0);
                }
            }
            Kind::CharDevice(major, minor) | Kind::BlockDevice(major, minor) => {
                inode.set_device(major, minor);
                return Ok(0);
            }
            Kind::Fifo | Kind::Socket => return Ok(0),
        }
        inode.flags |= InodeFlags::EXTENTS;
        let all = self.places.extents(self.survey, self.stream, id);
        let behind = self.places.tree_at(self.survey, id);
        let (root, below) = tree(all, behind, self.stream, self.layout.block_size);
        root.encode_root(&mut inode.block);
        Ok(blocks + below.len() as u64)
    }

    fn inline(&self, id: u32, inode: &mut Inode) -> PopulateResult<()> {
        let mut data = vec![0; inode.size as usize];
        self.survey.read(id, 0, &mut data)?;
        let mut area = std::mem::take(&mut inode.extra);
        let fits = inline_data::write(&mut inode.block, &mut area, cairn_base::Ino(0), &data)?;
        assert!(fits, "the length was checked");
        inode.extra = area;
        inode.flags |= InodeFlags::INLINE_DATA;
        Ok(())
    }
}
