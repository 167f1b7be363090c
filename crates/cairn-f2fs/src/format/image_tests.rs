//! Decodes each structure of images that mkfs.f2fs and sload.f2fs make, compares the structures
//! with each other, and encodes them again.

use std::path::Path;
use std::process::Command;

use super::checkpoint::{self, Checkpoint, CheckpointFlags};
use super::compact::CompactSummaries;
use super::layout::{Layout, Side};
use super::log::{AllocType, Log};
use super::node::{Marks, NodeFooter};
use super::pack::PackMap;
use super::summary::{NatJournal, SitJournal, SummaryBlock};
use super::superblock::{self, Superblock};
use super::units::{BLOCK_SIZE, BlockAddr, Nid, SegNo};
use super::{Features, Inode, NatEntry, dentry, hash, inode, nat, sit};
use cairn_base::Pba;
use cairn_vfs::FileKind;

struct Image(Vec<u8>);

fn run(program: &str, arguments: &[&str], path: &Path) {
    let out = Command::new(program).args(arguments).arg(path).output();
    let out =
        out.unwrap_or_else(|error| panic!("{program} (of f2fs-tools) cannot be started: {error}"));
    // sload runs fsck at its end and passes on its status.
    let fine = out.status.success() || program == "sload.f2fs";
    assert!(fine, "{program} {arguments:?}: {}", String::from_utf8_lossy(&out.stdout));
}

impl Image {
    fn make(mebibytes: u64, arguments: &[&str], tree: Option<&Path>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        std::fs::File::create(&path).unwrap().set_len(mebibytes << 20).unwrap();
        run("mkfs.f2fs", &[&["-q", "-f", "-l", "lábel", "-U", UUID], arguments].concat(), &path);
        if let Some(tree) = tree {
            run("sload.f2fs", &["-P", "-f", tree.to_str().unwrap()], &path);
        }
        Self(std::fs::read(&path).unwrap())
    }

    fn blocks(&self, first: Pba, count: usize) -> &[u8] {
        let at = first.get() as usize * BLOCK_SIZE;
        &self.0[at..at + count * BLOCK_SIZE]
    }

    fn block(&self, pba: Pba) -> &[u8] {
        self.blocks(pba, 1)
    }
}

const UUID: &str = "11111111-2222-3333-4444-555555555555";

/// The parts of an image that a mount reads first.
struct Opened {
    image: Image,
    layout: Layout,
    checkpoint: Checkpoint,
    nat: NatJournal,
    sit: SitJournal,
}

fn open(image: Image) -> Opened {
    let superblock = Superblock::decode(image.block(Pba(0))).unwrap();
    assert_eq!(Superblock::decode(image.block(Pba(1))).unwrap(), superblock);
    assert_eq!(superblock.encode(), image.block(Pba(0))[superblock::OFFSET..]);
    assert_eq!((superblock.label().as_str(), superblock.uuid[15]), ("lábel", 0x55));
    let layout = Layout::new(&superblock, image.0.len() as u64).unwrap();
    let (checkpoint, start) = latest(&image, &layout);
    let pack = PackMap::of(&checkpoint, &layout).unwrap();
    assert_eq!(image.block(start), image.block(Pba(start.get() + u64::from(pack.last()))));
    let at = |offset: u32| Pba(start.get() + u64::from(offset));
    let (nat, sit) = journals(&image, &checkpoint, &pack, &at);
    for log in Log::NODE {
        let Some(offset) = pack.summary(log) else { continue };
        let block = image.block(at(offset));
        let summary = SummaryBlock::decode(block).unwrap();
        assert!(summary.is_node);
        assert_eq!(summary.encode(), block);
    }
    let nat = NatJournal::decode(&nat, &layout).unwrap();
    let sit = SitJournal::decode(&sit, &layout).unwrap();
    Opened { image, layout, checkpoint, nat, sit }
}

fn journals(
    image: &Image,
    checkpoint: &Checkpoint,
    pack: &PackMap,
    at: &dyn Fn(u32) -> Pba,
) -> ([u8; 507], [u8; 507]) {
    let data = pack.data_summaries();
    let blocks = image.blocks(at(data.start), data.len());
    if checkpoint.flags.contains(CheckpointFlags::COMPACT_SUM) {
        let counts = Log::DATA.map(|log| match checkpoint.log(log) {
            position if position.alloc == AllocType::Ssr => 512,
            position => position.blkoff,
        });
        let compact = CompactSummaries::decode(blocks, counts).unwrap();
        assert_eq!(compact.encode(), blocks);
        return (compact.nat_journal, compact.sit_journal);
    }
    let full: Vec<SummaryBlock> =
        blocks.chunks(BLOCK_SIZE).map(|block| SummaryBlock::decode(block).unwrap()).collect();
    assert!(
        full.iter()
            .zip(blocks.chunks(BLOCK_SIZE))
            .all(|(summary, block)| summary.encode() == block)
    );
    (full[0].journal, full[2].journal)
}

fn latest(image: &Image, layout: &Layout) -> (Checkpoint, Pba) {
    let packs = [Side::First, Side::Second].map(|side| {
        let start = layout.pack_start(side);
        let blocks = image.blocks(start, 1 + layout.cp_payload as usize);
        let read = Checkpoint::decode(blocks, start.get(), layout).unwrap();
        assert_eq!(read.clone().encode(layout), blocks, "a checkpoint survives decoding");
        let stamp = checkpoint::verify(image.block(start), start.get()).unwrap();
        assert_eq!((stamp.version, stamp.crc), (read.version, read.crc));
        (read, start)
    });
    let [first, second] = packs;
    if second.0.is_after(&first.0) { second } else { first }
}

impl Opened {
    fn nat_entry(&self, nid: Nid) -> NatEntry {
        if let Some((_, entry)) = self.nat.0.iter().find(|(known, _)| *known == nid) {
            return *entry;
        }
        let (block, index) = Layout::nat_place(nid);
        nat::entry(
            self.image.block(self.layout.nat_address(block, self.checkpoint.nat_side(block))),
            index,
        )
    }

    fn node(&self, nid: Nid) -> &[u8] {
        let entry = self.nat_entry(nid).validate(nid, &self.layout).unwrap();
        assert!(!entry.is_free(), "nid {nid}");
        let block = self.image.block(entry.block_addr.pba());
        NodeFooter::read(block).check(nid, entry.ino, entry.block_addr).unwrap();
        block
    }

    fn inode(&self, nid: Nid) -> (Inode, &[u8]) {
        let block = self.node(nid);
        inode::verify(block, nid, &self.layout).unwrap();
        let read = Inode::decode(block, nid, self.layout.features).unwrap();
        let mut again = block.to_vec();
        read.encode_into(&mut again);
        inode::seal(&mut again, &self.layout);
        assert_eq!(again, block, "an inode survives decoding");
        (read, block)
    }

    /// The valid maps agree with the counters of the checkpoint.
    fn check_sit(&self) {
        let (mut blocks, mut nodes, mut free) = (0, 0, 0);
        for segno in (0..self.layout.main_segments).map(SegNo) {
            let (block, index) = Layout::sit_place(segno);
            let side = self.checkpoint.sit_side(block);
            let stored =
                sit::entry(self.image.block(self.layout.sit_address(block, side)), index, segno)
                    .unwrap();
            let entry = self
                .sit
                .0
                .iter()
                .find(|(known, _)| *known == segno)
                .map_or(stored, |(_, entry)| entry.clone());
            blocks += entry.valid_blocks();
            nodes += if entry.log.is_node() { entry.valid_blocks() } else { 0 };
            let in_use = self.checkpoint.logs.iter().any(|position| position.segno == segno);
            free += u32::from(entry.valid_blocks() == 0 && !in_use);
        }
        assert_eq!(nodes, self.checkpoint.valid_node_count);
        assert_eq!(u64::from(blocks), self.checkpoint.valid_block_count);
        // mkfs.f2fs 1.15 counts the segments that a zone's alignment takes away, and on a volume
        // made read-only all.
        if !self.layout.features.contains(Features::RO) && self.layout.secs_per_zone == 1 {
            assert_eq!(free, self.checkpoint.free_segment_count);
        }
    }

    /// Entries of a directory, each with its hash checked.
    fn list(&self, nid: Nid) -> Vec<(Vec<u8>, Nid, Option<FileKind>)> {
        let (directory, block) = self.inode(nid);
        assert_eq!(directory.kind, FileKind::Directory);
        let mut areas = Vec::new();
        if directory.inline.contains(inode::InlineFlags::DENTRY) {
            areas.push(&block[directory.inline_data_range()]);
        } else {
            for index in 0..directory.size.div_ceil(BLOCK_SIZE as u64) {
                let addr = self.data_address(&directory, block, index);
                areas.extend((addr != BlockAddr::NULL).then(|| self.image.block(addr.pba())));
            }
        }
        let mut found = Vec::new();
        for area in areas {
            for entry in dentry::Dentries::new(area).iter() {
                let entry = entry.unwrap();
                assert_eq!(
                    entry.hash,
                    hash::name_hash(entry.name),
                    "{}",
                    String::from_utf8_lossy(entry.name)
                );
                found.push((entry.name.to_vec(), entry.ino, entry.kind));
            }
        }
        found
    }

    fn data_address(&self, inode: &Inode, block: &[u8], index: u64) -> BlockAddr {
        let path = inode.shape().locate(index).unwrap();
        if path.depth == 0 {
            return inode.data_pointer(block, path.slots[0].into());
        }
        let mut nid = inode.nids[usize::from(path.slots[0])];
        for depth in 1..=path.depth {
            if nid.is_none() {
                return BlockAddr::NULL;
            }
            let node = self.node(nid);
            assert_eq!(NodeFooter::read(node).offset, path.offsets[depth]);
            if depth == path.depth {
                return super::node::data_pointer(node, path.slots[depth].into());
            }
            nid = super::node::child(node, path.slots[depth].into());
        }
        unreachable!("the loop ends at the direct node")
    }
}

#[test]
fn images_of_every_shape_and_feature() {
    let cases: [(u64, &[&str]); 10] = [
        (64, &[]),
        (
            512,
            &[
                "-O",
                "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,lost_found,\
                 sb_checksum",
            ],
        ),
        (128, &["-O", "extra_attr,inode_checksum,sb_checksum,compression,quota,project_quota"]),
        (256, &["-g", "android"]),
        (256, &["-O", "ro"]),
        (512, &["-s", "4"]),
        (512, &["-s", "2", "-z", "3"]),
        (512, &["-i"]),
        (256, &["-O", "casefold", "-C", "utf8"]),
        (256, &["-w", "4096", "-o", "10"]),
    ];
    for (size, arguments) in cases {
        let opened = open(Image::make(size, arguments, None));
        opened.check_sit();
        let names: Vec<Vec<u8>> =
            opened.list(Nid::ROOT).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names[..2], [b".".to_vec(), b"..".to_vec()], "{arguments:?}");
        let quota = opened.layout.quota_inodes.iter().filter(|nid| !nid.is_none());
        for nid in quota {
            assert_eq!(opened.inode(*nid).0.kind, FileKind::Regular);
        }
        let footer = NodeFooter::read(opened.node(Nid::ROOT));
        assert_eq!((footer.marks, footer.is_inode()), (Marks::empty(), true));
    }
}

#[test]
fn a_loaded_tree_is_found_again() {
    let tree = tempfile::tempdir().unwrap();
    let big = tree.path().join("sub/big");
    std::fs::create_dir(tree.path().join("sub")).unwrap();
    let contents: Vec<u8> = (0..3000_u32 * 4096 / 4).flat_map(|n| n.to_le_bytes()).collect();
    std::fs::write(&big, &contents).unwrap();
    std::os::unix::fs::symlink("sub/big", tree.path().join("link")).unwrap();
    for n in 0..1000 {
        std::fs::write(tree.path().join("sub").join(format!("file_with_a_name_{n}")), b"x")
            .unwrap();
    }
    for arguments in [&[][..], &["-O", "extra_attr,inode_checksum,inode_crtime"]] {
        let opened = open(Image::make(128, arguments, Some(tree.path())));
        opened.check_sit();
        let root = opened.list(Nid::ROOT);
        let (_, sub, kind) = root.iter().find(|(name, ..)| name == b"sub").unwrap().clone();
        assert_eq!(kind, Some(FileKind::Directory));
        let entries = opened.list(sub);
        assert_eq!(entries.len(), 1003);
        assert!(opened.inode(sub).0.current_depth > 1);
        let (_, nid, _) = entries.iter().find(|(name, ..)| name == b"big").unwrap().clone();
        let (inode, block) = opened.inode(nid);
        assert_eq!(
            (inode.size, inode.name.as_slice(), inode.pino),
            (contents.len() as u64, &b"big"[..], sub)
        );
        for (index, right) in contents.chunks(BLOCK_SIZE).enumerate() {
            let addr = opened.data_address(&inode, block, index as u64);
            assert_eq!(opened.image.block(addr.pba()), right, "block {index}");
        }
    }
}
