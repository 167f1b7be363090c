//! The first inodes: the root directory, and the quota files and `lost+found` of features.

use cairn_check::quota::{Counted, OwnerKind};
use cairn_vfs::FileKind;

use super::features::{Choice, extra_size};
use super::geometry::Geometry;
use super::identity::Identity;
use super::packs::Contents;
use super::quota;
use crate::form;
use crate::format::checkpoint::LogPosition;
use crate::format::dentry::DentriesMut;
use crate::format::hash::name_hash;
use crate::format::inode::FileFlags;
use crate::format::nat::{self, NatEntry};
use crate::format::node::{Marks, NodeFooter};
use crate::format::summary::{NatJournal, SitJournal, Summary};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{BlockAddr, Features, Inode, Layout, Log, Nid, SitEntry, inode};

const LOST_FOUND: &[u8] = b"lost+found";
/// Version in the footers: older than every checkpoint's, so that roll-forward never takes the
/// blocks for new ones.
pub(super) const FOOTER_VERSION: u64 = 1;
/// The number of the first quota file, if there are some.
const FIRST_QUOTA: Nid = Nid(Nid::ROOT.get() + 1);

/// The numbers of the quota files.
pub(super) fn quota_inodes(choice: &Choice) -> [Nid; 3] {
    quota::inodes(&choice.owners, FIRST_QUOTA)
}

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

/// An inode to make, without what its place decides.
struct Member {
    nid: Nid,
    record: Inode,
    contents: Vec<u8>,
}

/// Blocks of the first inodes: their nodes in the hot node log, contents in the hot data log.
pub(super) struct Tree {
    /// Inode numbers and blocks of contents, in the order of both logs.
    members: Vec<(Nid, u16)>,
    /// How many of them the NAT has beside the journal.
    in_nat: usize,
    /// Address and contents.
    pub(crate) blocks: Vec<(BlockAddr, Vec<u8>)>,
    first_node: BlockAddr,
}

impl Tree {
    pub(super) fn new(
        geometry: &Geometry,
        layout: &Layout,
        identity: &Identity,
        owners: &[OwnerKind],
    ) -> Self {
        let first = |log: Log| layout.address(geometry.logs[log.index()], 0);
        let (first_node, mut data) = (first(Log::HotNode), first(Log::HotData));
        let in_nat = 1 + owners.len();
        let mut tree = Self { members: Vec::new(), in_nat, blocks: Vec::new(), first_node };
        for (index, member) in (0..).zip(members(layout.features, identity, owners)) {
            let node = BlockAddr(first_node.get() + index);
            tree.blocks.push((node, member.inode_block(node, data, layout)));
            let before = data.get();
            for block in member.contents.chunks(BLOCK_SIZE) {
                let mut block = block.to_vec();
                block.resize(BLOCK_SIZE, 0);
                tree.blocks.push((data, block));
                data = BlockAddr(data.get() + 1);
            }
            tree.members.push((member.nid, (data.get() - before) as u16));
        }
        tree
    }

    /// What the first checkpoint says. NAT and SIT are in its journals.
    pub(super) fn contents(&self, geometry: &Geometry) -> Contents {
        let count = self.members.len();
        let mut logs = geometry.logs.map(|segno| LogPosition { segno, ..LogPosition::default() });
        let mut owners: [Vec<Summary>; Log::COUNT] = Default::default();
        for (nid, blocks) in &self.members {
            let node = Summary { nid: *nid, ..Summary::default() };
            owners[Log::HotNode.index()].push(node);
            let data = (0..*blocks).map(|ofs_in_node| Summary { ofs_in_node, ..node });
            owners[Log::HotData.index()].extend(data);
        }
        for log in [Log::HotNode, Log::HotData] {
            logs[log.index()].blkoff = owners[log.index()].len() as u16;
        }
        let sit = [Log::NODE, Log::DATA].concat().into_iter().map(|log| {
            let LogPosition { segno, blkoff, .. } = logs[log.index()];
            (segno, SitEntry::filled(log, blkoff.into()))
        });
        Contents {
            sit_journal: SitJournal(sit.collect()),
            nat_journal: NatJournal(self.nat_entries().collect()),
            logs,
            blocks: owners.iter().map(|owners| owners.len() as u64).sum(),
            owners,
            nodes: count as u32,
            inodes: count as u32,
            free_segments: geometry.usable_segments - Log::COUNT as u32,
            next_free_nid: self.next_free_nid(),
        }
    }

    /// Where each inode is, for NAT and journal.
    fn nat_entries(&self) -> impl Iterator<Item = (Nid, NatEntry)> + '_ {
        let addresses = (self.first_node.get()..).map(BlockAddr);
        self.members
            .iter()
            .zip(addresses)
            .map(|((nid, _), block_addr)| (*nid, NatEntry { version: 0, ino: *nid, block_addr }))
    }

    /// The first NAT block; the journal has what is missing here. Nodes 1 and 2 do not exist. All
    /// tools give them an address so that they never look free.
    pub(super) fn first_nat_block(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_SIZE];
        let reserved = [Nid::NODE_INO, Nid::META_INO].into_iter();
        let reserved = reserved.filter_map(|nid| Some((nid, NatEntry::reserved(nid)?)));
        for (nid, entry) in reserved.chain(self.nat_entries().take(self.in_nat)) {
            nat::set_entry(&mut block, nid.index(), entry);
        }
        block
    }

    /// The first unused nid.
    fn next_free_nid(&self) -> Nid {
        Nid(Nid::ROOT.get() + self.members.len() as u32)
    }
}

/// All inodes, in the order of their numbers. The quota files count the directories.
fn members(features: Features, identity: &Identity, owners: &[OwnerKind]) -> Vec<Member> {
    let counted = Counted::default();
    let behind_quota = Nid(FIRST_QUOTA.get() + owners.len() as u32);
    let mut members = Vec::new();
    for directory in directories(features, identity.owner, behind_quota) {
        let record = directory.record(features, identity);
        form::quota::count(&counted, &record, record.blocks);
        let contents = directory.entries();
        members.push(Member { nid: directory.nid, record, contents });
    }
    let files = (FIRST_QUOTA.get()..).map(Nid).zip(quota::contents(owners, &counted));
    let files = files.map(|(nid, contents)| {
        let mut record = new_record(FileKind::Regular, quota::PERMISSIONS, features, identity);
        (record.uid, record.gid) = identity.owner;
        record.flags = FileFlags::IMMUTABLE;
        record.size = contents.len() as u64;
        record.blocks = 1 + record.size.div_ceil(BLOCK_BYTES);
        Member { nid, record, contents }
    });
    members.splice(1..1, files);
    members
}

fn new_record(kind: FileKind, permissions: u16, features: Features, identity: &Identity) -> Inode {
    let mut record = Inode::new(kind, permissions, features, extra_size(features));
    (record.atime, record.ctime, record.mtime) = (identity.now, identity.now, identity.now);
    record
}

fn directories(features: Features, owner: (u32, u32), lost_found: Nid) -> Vec<Directory> {
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
    fn record(&self, features: Features, identity: &Identity) -> Inode {
        let mut record = new_record(FileKind::Directory, self.permissions, features, identity);
        (record.uid, record.gid) = self.owner;
        record.links = self.links;
        record.size = BLOCK_BYTES;
        record.blocks = 2;
        record.current_depth = 1;
        // The root has no parent for roll-forward.
        record.pino = if self.name.is_empty() { Nid::NONE } else { self.parent };
        record.name = self.name.into();
        if let Some(extra) = record.extra.as_mut().filter(|extra| extra.has_crtime()) {
            extra.crtime = identity.now;
        }
        record
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

impl Member {
    /// The inode at `node`, with its contents from `data` on.
    fn inode_block(&self, node: BlockAddr, data: BlockAddr, layout: &Layout) -> Vec<u8> {
        let mut block = vec![0; BLOCK_SIZE];
        self.record.encode_into(&mut block);
        let addresses = (data.get()..).map(BlockAddr);
        for (slot, (_, address)) in self.contents.chunks(BLOCK_SIZE).zip(addresses).enumerate() {
            self.record.set_data_pointer(&mut block, slot as u32, address);
        }
        let footer = NodeFooter {
            nid: self.nid,
            ino: self.nid,
            marks: Marks::empty(),
            offset: 0,
            cp_ver: FOOTER_VERSION,
            next_blkaddr: BlockAddr(node.get() + 1),
        };
        footer.write(&mut block);
        inode::seal(&mut block, layout);
        block
    }
}
