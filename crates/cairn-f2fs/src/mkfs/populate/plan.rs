//! [`Plan`]: the tree and its places on the volume.

use std::sync::Arc;

use super::places::{Places, ino};
use super::survey::Survey;
use super::volume::Volume;
use crate::format::nat::NatEntry;
use crate::format::node::{Marks, NodeFooter};
use crate::format::{BlockAddr, Log, Nid};

/// What all threads know.
pub(super) struct Plan {
    pub(super) survey: Arc<Survey>,
    pub(super) places: Arc<Places>,
    pub(super) volume: Volume,
}

/// A node beside the inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Further {
    Xattr,
    Direct(u32),
    Indirect(u32),
}

impl Plan {
    /// The number of a node beside the inode.
    pub(super) fn nid(&self, id: u32, node: Further) -> Nid {
        let (need, first) = (&self.survey.nodes[id as usize], self.places.of(id).nid.get());
        Nid(match node {
            Further::Xattr => first,
            Further::Direct(number) => first + need.own_nodes() - 1 + number,
            Further::Indirect(number) => first + need.span() - 1 + number,
        })
    }

    /// The node that is the `index`th beside the inode.
    fn further(&self, id: u32, index: u32) -> Further {
        let need = &self.survey.nodes[id as usize];
        let (own, span) = (need.own_nodes() - 1, need.span() - 1);
        if index < own {
            Further::Xattr
        } else if index < span {
            Further::Direct(index - own)
        } else {
            Further::Indirect(index - span)
        }
    }

    /// The address of an inode.
    fn inode_address(&self, id: u32) -> BlockAddr {
        let log = self.survey.nodes[id as usize].node_log();
        self.volume.address(log, self.places.of(id).node.into())
    }

    /// The address of a node beside the inode.
    pub(super) fn address(&self, id: u32, node: Further) -> BlockAddr {
        let (need, place) = (&self.survey.nodes[id as usize], self.places.of(id));
        let own = |index: u32| self.volume.address(need.node_log(), (place.node + index).into());
        match node {
            Further::Xattr => own(1),
            Further::Direct(number) => own(need.own_nodes() + number),
            Further::Indirect(number) => {
                self.volume.address(Log::ColdNode, (place.cold + number).into())
            }
        }
    }

    /// The address of a node's `index`th block of contents.
    pub(super) fn data_address(&self, id: u32, index: u32) -> BlockAddr {
        let log = self.survey.nodes[id as usize].data_log;
        self.volume.address(log, u64::from(self.places.of(id).data) + u64::from(index))
    }

    /// The entry of a node number in the NAT.
    pub(super) fn nat_entry(&self, nid: Nid) -> Option<NatEntry> {
        let entry = |ino, block_addr| NatEntry { version: 0, ino, block_addr };
        if nid == Nid::NONE || u64::from(nid.get()) >= self.places.next_nid {
            return None;
        }
        let Some(id) = nid.get().checked_sub(Nid::ROOT.get()) else {
            // Nodes 1 and 2 do not exist. All tools give them an address so that they never look
            // free.
            return Some(entry(nid, BlockAddr(1)));
        };
        if (id as usize) < self.survey.nodes.len() {
            return Some(entry(nid, self.inode_address(id)));
        }
        let (id, index) = self.places.holder(nid);
        Some(entry(ino(id), self.address(id, self.further(id, index))))
    }

    /// Writes the footer of a node at `address`.
    pub(super) fn footer(
        &self,
        block: &mut [u8],
        id: u32,
        (nid, offset): (Nid, u32),
        address: BlockAddr,
    ) {
        let is_directory = self.survey.nodes[id as usize].is_directory;
        let footer = NodeFooter {
            nid,
            ino: ino(id),
            marks: if is_directory { Marks::empty() } else { Marks::COLD },
            offset,
            cp_ver: super::super::tree::FOOTER_VERSION,
            // The next block of the log follows.
            next_blkaddr: BlockAddr(address.get() + 1),
        };
        footer.write(block);
    }

    /// Writes the footer of an inode.
    pub(super) fn inode_footer(&self, block: &mut [u8], id: u32) {
        self.footer(block, id, (ino(id), 0), self.inode_address(id));
    }
}
