//! The first directories: the root, and `lost+found` where the feature asks for it.

use cairn_vfs::FileKind;

use super::features::extra_size;
use super::geometry::Geometry;
use super::identity::Identity;
use super::packs::Contents;
use crate::format::checkpoint::LogPosition;
use crate::format::dentry::DentriesMut;
use crate::format::hash::name_hash;
use crate::format::nat::{self, NatEntry};
use crate::format::node::{Marks, NodeFooter};
use crate::format::summary::{NatJournal, SitJournal, Summary};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{BlockAddr, Features, Inode, Layout, Log, Nid, SitEntry, inode};

const LOST_FOUND: &[u8] = b"lost+found";
/// Version in the footers: older than every checkpoint's, so that roll-forward never takes the
/// blocks for new ones.
pub(super) const FOOTER_VERSION: u64 = 1;

/// One directory to make.
struct Directory {
    nid: Nid,
    parent: Nid,
    name: &'static [u8],
    permissions: u16,
    owner: (u32, u32),
    links: u32,
    /// Name and inode of its only subdirectory.
    child: Option<(&'static [u8], Nid)>,
}

/// Blocks of the first directories: inodes in the hot node log, entries in the hot data log, one
/// each.
pub(super) struct Tree {
    /// Inode numbers, in the order of their blocks in both logs.
    nids: Vec<Nid>,
    /// Address and contents.
    pub(crate) blocks: Vec<(BlockAddr, Vec<u8>)>,
    first_node: BlockAddr,
}

impl Tree {
    pub(super) fn new(geometry: &Geometry, layout: &Layout, identity: &Identity) -> Self {
        let first = |log: Log| layout.address(geometry.logs[log.index()], 0);
        let (first_node, first_data) = (first(Log::HotNode), first(Log::HotData));
        let mut tree = Self { nids: Vec::new(), blocks: Vec::new(), first_node };
        for (index, directory) in (0..).zip(directories(layout.features, identity.owner)) {
            let node = BlockAddr(first_node.get() + index);
            let data = BlockAddr(first_data.get() + index);
            tree.nids.push(directory.nid);
            tree.blocks.push((
                node,
                directory.inode_block(data, BlockAddr(node.get() + 1), layout, identity),
            ));
            tree.blocks.push((data, directory.entries()));
        }
        tree
    }

    /// What the first checkpoint says. NAT and SIT are in its journals.
    pub(super) fn contents(&self, geometry: &Geometry) -> Contents {
        let count = self.nids.len();
        let mut logs = geometry.logs.map(|segno| LogPosition { segno, ..LogPosition::default() });
        // In both hot logs block `n` belongs to directory `n`: its inode, and its only block of
        // entries.
        let mut owners: [Vec<Summary>; Log::COUNT] = Default::default();
        for log in [Log::HotNode, Log::HotData] {
            logs[log.index()].blkoff = count as u16;
            let all = self.nids.iter().map(|nid| Summary { nid: *nid, ..Summary::default() });
            owners[log.index()] = all.collect();
        }
        let sit = [Log::NODE, Log::DATA].concat().into_iter().map(|log| {
            let LogPosition { segno, blkoff, .. } = logs[log.index()];
            (segno, SitEntry::filled(log, blkoff.into()))
        });
        Contents {
            sit_journal: SitJournal(sit.collect()),
            nat_journal: NatJournal(self.nat_entries().collect()),
            logs,
            owners,
            blocks: 2 * count as u64,
            nodes: count as u32,
            inodes: count as u32,
            free_segments: geometry.usable_segments - Log::COUNT as u32,
            next_free_nid: self.next_free_nid(),
        }
    }

    /// Where each directory's inode is, for NAT and journal.
    fn nat_entries(&self) -> impl Iterator<Item = (Nid, NatEntry)> + '_ {
        let addresses = (self.first_node.get()..).map(BlockAddr);
        self.nids
            .iter()
            .zip(addresses)
            .map(|(nid, block_addr)| (*nid, NatEntry { version: 0, ino: *nid, block_addr }))
    }

    /// The first NAT block; the journal has what is missing here. Nodes 1 and 2 do not exist. All
    /// tools give them an address so that they never look free.
    pub(super) fn first_nat_block(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_SIZE];
        let reserved = [Nid::NODE_INO, Nid::META_INO].into_iter();
        let reserved = reserved.filter_map(|nid| Some((nid, NatEntry::reserved(nid)?)));
        for (nid, entry) in reserved.chain(self.nat_entries().take(1)) {
            nat::set_entry(&mut block, nid.index(), entry);
        }
        block
    }

    /// The first unused nid.
    fn next_free_nid(&self) -> Nid {
        Nid(Nid::ROOT.get() + self.nids.len() as u32)
    }
}

fn directories(features: Features, owner: (u32, u32)) -> Vec<Directory> {
    let lost_found = Nid(Nid::ROOT.get() + 1);
    let with = features.contains(Features::LOST_FOUND);
    let mut all = vec![Directory {
        nid: Nid::ROOT,
        parent: Nid::ROOT,
        name: b"",
        permissions: 0o755,
        owner,
        links: if with { 3 } else { 2 },
        child: with.then_some((LOST_FOUND, lost_found)),
    }];
    if with {
        all.push(Directory {
            nid: lost_found,
            parent: Nid::ROOT,
            name: LOST_FOUND,
            permissions: 0o700,
            owner: (0, 0),
            links: 2,
            child: None,
        });
    }
    all
}

impl Directory {
    fn inode_block(
        &self,
        data: BlockAddr,
        next: BlockAddr,
        layout: &Layout,
        identity: &Identity,
    ) -> Vec<u8> {
        let extra = extra_size(layout.features);
        let mut inode = Inode::new(FileKind::Directory, self.permissions, layout.features, extra);
        (inode.uid, inode.gid) = self.owner;
        inode.links = self.links;
        inode.size = BLOCK_BYTES;
        inode.blocks = 2;
        (inode.atime, inode.ctime, inode.mtime) = (identity.now, identity.now, identity.now);
        inode.current_depth = 1;
        // The root has no parent for roll-forward.
        inode.pino = if self.name.is_empty() { Nid::NONE } else { self.parent };
        inode.name = self.name.into();
        if let Some(extra) = inode.extra.as_mut().filter(|extra| extra.has_crtime()) {
            extra.crtime = identity.now;
        }
        let mut block = vec![0; BLOCK_SIZE];
        inode.encode_into(&mut block);
        inode.set_data_pointer(&mut block, 0, data);
        let footer = NodeFooter {
            nid: self.nid,
            ino: self.nid,
            marks: Marks::empty(),
            offset: 0,
            cp_ver: FOOTER_VERSION,
            next_blkaddr: next,
        };
        footer.write(&mut block);
        inode::seal(&mut block, layout);
        block
    }

    fn entries(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_SIZE];
        let mut entries = DentriesMut::new(&mut block);
        let dots: [(&[u8], Nid); 2] = [(b".", self.nid), (b"..", self.parent)];
        for (slot, (name, ino)) in dots.into_iter().chain(self.child).enumerate() {
            entries.insert(slot, name, name_hash(name), ino, FileKind::Directory);
        }
        block
    }
}
