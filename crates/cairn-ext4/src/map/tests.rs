//! Block maps against judges that are not ours: what we write is read by e2fsck, debugfs and the
//! kernel, and what the kernel writes is read by us.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::Result;
use crate::format::extent::SystemBlocks;
use crate::format::inode::{Inode, InodeFlags};
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::map::{BlockMap, MapContext, Progress};
use crate::space::{BlockSource, Freed};
use crate::txn::{Handle, Txn};
use cairn_base::{FileBlock, Ino, Pba};
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_cache::mapper::Run;
use cairn_cache::status::State;
use cairn_testkit::judge::{self, KernelMount};

const BLOCK: u64 = 1024;
const INO: Ino = Ino(12);

/// File block to address and "unwritten".
type Blocks = BTreeMap<u64, (u64, bool)>;

/// Free blocks of a real volume, handed out from the lowest; what is freed is not reused.
struct FreeBlocks(Mutex<Vec<u64>>);

impl FreeBlocks {
    /// From the "Free blocks" of each group, as dumpe2fs lists them.
    fn of(image: &Path) -> Self {
        let listing = judge::dumpe2fs(image);
        let lists = listing.lines().filter_map(|line| line.strip_prefix("  Free blocks: "));
        let mut free: Vec<u64> = lists
            .flat_map(|list| list.split(", "))
            .filter(|range| !range.is_empty())
            .flat_map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                first.parse::<u64>().unwrap()..=last.parse::<u64>().unwrap()
            })
            .collect();
        free.reverse();
        Self(Mutex::new(free))
    }

    fn take(&self) -> u64 {
        self.0.lock().unwrap().pop().expect("the image has room")
    }

    /// The next `len` free blocks that lie in one piece; every run is preceded by a gap unless
    /// `adjacent`.
    fn take_run(&self, len: u64, adjacent: bool) -> u64 {
        if !adjacent {
            self.take();
        }
        let mut start = self.take();
        let mut count = 1;
        while count < len {
            let next = self.take();
            (start, count) = if next == start + count { (start, count + 1) } else { (next, 1) };
        }
        start
    }
}

impl BlockSource for FreeBlocks {
    fn allocate_block(&self, _: &Handle, _: Pba) -> Result<Pba> {
        Ok(Pba(self.take()))
    }

    fn free(&self, handle: &Handle, start: Pba, _: u64, kind: Freed) -> Result<()> {
        if kind == Freed::Metadata { handle.forget(start) } else { Ok(()) }
    }
}

/// An open image and its file number 12.
struct Opened {
    file: File,
    layout: Layout,
    buffers: Arc<BufferCache>,
    source: FreeBlocks,
    at: u64,
    inode: Inode,
}

impl Opened {
    fn new(image: &Path) -> Self {
        let file = File::options().read(true).write(true).open(image).unwrap();
        let mut superblock = [0; 1024];
        file.read_exact_at(&mut superblock, 1024).unwrap();
        let layout =
            Layout::new(&Superblock::decode(&superblock).unwrap(), file.metadata().unwrap().len())
                .unwrap();
        let device =
            FileDevice::open(image, OpenOptions { write: true, ..OpenOptions::default() }).unwrap();
        let buffers = BufferCache::new(Arc::new(device), layout.block_size, Budget::new(1 << 28));
        let place = judge::debugfs(image, "imap <12>");
        let at = inode_offset(&place).expect("imap says where the inode is");
        let mut record = vec![0; layout.inode_size as usize];
        file.read_exact_at(&mut record, at).unwrap();
        let inode = Inode::decode(&record, INO, &layout).unwrap();
        Self { file, layout, buffers, source: FreeBlocks::of(image), at, inode }
    }

    fn map(&self) -> BlockMap<'_> {
        let context = MapContext {
            ino: INO,
            seed: self.inode.seed(INO, &self.layout),
            layout: &self.layout,
            system: SystemBlocks::NONE,
            buffers: &self.buffers,
            source: &self.source,
        };
        BlockMap::new(context, self.inode.flags.contains(InodeFlags::EXTENTS))
    }

    fn change(
        &mut self,
        change: impl FnOnce(&BlockMap<'_>, &Handle, &mut [u8; 60]) -> Result<i64>,
    ) {
        let mut i_block = self.inode.block;
        let handle = Txn::Direct(self.buffers.clone()).begin(1000).unwrap();
        let blocks = change(&self.map(), &handle, &mut i_block).unwrap();
        self.inode.block = i_block;
        self.inode.blocks_512 = self.inode.blocks_512.saturating_add_signed(blocks * 2);
    }

    /// Maps a hole to fresh blocks, and writes each block's number of the file into it.
    fn insert(
        &mut self,
        model: &mut Blocks,
        start: u64,
        len: u64,
        unwritten: bool,
        adjacent: bool,
    ) {
        let pba = self.source.take_run(len, adjacent);
        let run = Run { start: FileBlock(start), len };
        self.change(|map, handle, i_block| map.insert(handle, i_block, run, Pba(pba), unwritten));
        for n in 0..len {
            self.file.write_all_at(&content(start + n), (pba + n) * BLOCK).unwrap();
            model.insert(start + n, (pba + n, unwritten));
        }
    }

    fn remove(&mut self, model: &mut Blocks, start: u64, len: u64) {
        let run = Run { start: FileBlock(start), len };
        loop {
            let mut progress = Progress::Done;
            self.change(|map, handle, i_block| {
                let (step, blocks) = map.remove(handle, i_block, run, 20)?;
                progress = step;
                Ok(blocks)
            });
            if progress == Progress::Done {
                break;
            }
        }
        model.retain(|block, _| !(start..start + len).contains(block));
    }

    /// The map as we read it.
    fn walk(&self) -> Blocks {
        let mut found = Blocks::new();
        let end = self.inode.size.div_ceil(BLOCK);
        let mut at = 0;
        while at < end {
            let known = self.map().lookup(&self.inode.block, FileBlock(at)).unwrap();
            let to = known.end().min(end);
            if let State::Mapped(pba) | State::Unwritten(pba) = known.state {
                let unwritten = matches!(known.state, State::Unwritten(_));
                found.extend(
                    (at..to)
                        .map(|block| (block, (pba.get() + block - known.start.get(), unwritten))),
                );
            }
            at = to;
        }
        found
    }

    /// Stores the inode and everything in memory.
    fn store(mut self, size: u64) {
        self.inode.size = size;
        let mut record = vec![0; self.layout.inode_size as usize];
        self.inode.encode(INO, &self.layout, &mut record);
        self.file.write_all_at(&record, self.at).unwrap();
        self.buffers.write_back().unwrap();
    }
}

/// Byte offset on the volume from "located at block 164, offset 0x0b00".
fn inode_offset(imap: &str) -> Option<u64> {
    let (block, rest) = imap.split_once("located at block ")?.1.split_once(", offset 0x")?;
    let offset = u64::from_str_radix(rest.split_whitespace().next()?, 16).ok()?;
    Some(block.parse::<u64>().ok()? * BLOCK + offset)
}

fn content(block: u64) -> Vec<u8> {
    block.to_le_bytes().repeat(BLOCK as usize / 8)
}

/// What the file must read as.
fn expected(model: &Blocks, size: u64) -> Vec<u8> {
    let mut data = vec![0; size as usize];
    for (block, (_, unwritten)) in model {
        if !unwritten {
            let at = (block * BLOCK) as usize;
            data[at..at + BLOCK as usize].copy_from_slice(&content(*block));
        }
    }
    data
}

/// An image with one empty file, number 12.
fn image_with_file(directory: &Path, args: &[&str]) -> std::path::PathBuf {
    let image = directory.join("image");
    let args: Vec<&str> =
        ["-b", "1024", "-E", "lazy_itable_init=0"].iter().chain(args).copied().collect();
    judge::mke2fs(&image, 64 << 20, &args);
    judge::run(
        "debugfs",
        [Path::new("-w"), Path::new("-R"), Path::new("write /dev/null f"), &image],
    );
    image
}

/// The map as `filefrag -v` prints what FIEMAP says.
fn fiemap(file: &Path) -> Blocks {
    let listing = judge::run("filefrag", [Path::new("-v"), file]);
    let mut blocks = Blocks::new();
    for line in listing.lines() {
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        let [number, logical, physical, ..] = fields.as_slice() else { continue };
        let (Ok(_), Some((first, last)), Some((start, _))) =
            (number.parse::<u64>(), logical.split_once(".."), physical.split_once(".."))
        else {
            continue;
        };
        let [first, last, start] =
            [first, last, start].map(|text| text.trim().parse::<u64>().unwrap());
        let unwritten = line.contains("unwritten");
        blocks.extend((first..=last).map(|block| (block, (start + block - first, unwritten))));
    }
    blocks
}

/// e2fsck may find the blocks we took still marked free, and nothing else (that a tree could be
/// packed more densely is no defect); the kernel and debugfs read what we wrote; and once the
/// bitmaps are right e2fsck finds nothing.
fn judge_file(image: &Path, model: &Blocks, size: u64) {
    let before = judge::e2fsck_check(image).output;
    let mut complaints =
        before.lines().filter(|line| line.contains("Inode") || line.contains("orrupt"));
    assert!(complaints.all(|line| line.contains("could be narrower")), "{before}");
    assert!(before.contains("Block bitmap differences"), "{before}");
    assert_reads(image, model, size);
    judge::command("e2fsck")
        .args(["-fy", "-E", "no_optimize_extents"])
        .arg(image)
        .output()
        .unwrap();
    judge::assert_clean(image);
    assert_reads(image, model, size);
    assert_eq!(&Opened::new(image).walk(), model);
}

fn assert_reads(image: &Path, model: &Blocks, size: u64) {
    let dump = image.with_extension("dump");
    drop(judge::debugfs(image, &format!("dump /f {}", dump.display())));
    assert!(std::fs::read(&dump).unwrap() == expected(model, size), "debugfs dumps other bytes");
    let mount = KernelMount::new(image, "ro");
    assert!(
        std::fs::read(mount.path().join("f")).unwrap() == expected(model, size),
        "the kernel reads other bytes"
    );
    assert_eq!(&fiemap(&mount.path().join("f")), model);
    mount.unmount();
}

#[test]
fn extent_trees_we_write_are_right_for_e2fsck_debugfs_and_the_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let image = image_with_file(directory.path(), &["-t", "ext4", "-O", "^has_journal"]);
    let (mut opened, mut model) = (Opened::new(&image), Blocks::new());
    // 1500 fragments in an order that inserts everywhere, then cuts, conversions and moves: two
    // levels of index nodes.
    for n in 0..1511_u64 {
        opened.insert(&mut model, n * 700 % 1511 * 4, 1 + n % 2, n % 3 == 0, false);
    }
    let run = Run { start: FileBlock(1000), len: 700 };
    opened
        .change(|map, handle, i_block| Ok(map.convert_written(handle, i_block, run, u32::MAX)?.1));
    model.range_mut(1000..1700).for_each(|(_, block)| block.1 = false);
    opened.remove(&mut model, 3000, 1500);
    opened.insert(&mut model, 3001, 1200, false, true);
    opened.remove(&mut model, 3500, 3);
    let hole = Run { start: FileBlock(0), len: 2 };
    opened.remove(&mut model, hole.start.get(), hole.len);
    let size = 1511 * 4 * BLOCK + 100;
    let depth = judge_depth(&opened);
    assert!(depth >= 2, "depth {depth}");
    assert_eq!(
        opened.inode.blocks_512 / 2,
        model.len() as u64 + tree_blocks(&opened),
        "the block count follows the changes"
    );
    opened.store(size);
    judge_file(&image, &model, size);
}

fn judge_depth(opened: &Opened) -> u16 {
    u16::from_le_bytes([opened.inode.block[6], opened.inode.block[7]])
}

/// Nodes below the root, counted from the raw bytes.
fn tree_blocks(opened: &Opened) -> u64 {
    fn below(opened: &Opened, node: &[u8]) -> u64 {
        let word = |at: usize| u64::from(u16::from_le_bytes([node[at], node[at + 1]]));
        if word(6) == 0 {
            return 0;
        }
        let children = node[12..].chunks_exact(12).take(word(2) as usize);
        children
            .map(|entry| {
                let pba =
                    Pba(u64::from(u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]])));
                1 + below(opened, &opened.buffers.get(pba).unwrap().image())
            })
            .sum()
    }
    below(opened, &opened.inode.block)
}

#[test]
fn moved_extents_are_right_for_e2fsck_debugfs_and_the_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let image = image_with_file(directory.path(), &["-t", "ext4", "-O", "^has_journal"]);
    let (mut opened, mut model) = (Opened::new(&image), Blocks::new());
    (0..600).for_each(|n| opened.insert(&mut model, n * 2, 1, false, false));
    opened.remove(&mut model, 100, 200);
    for (from, by) in [(300_u64, -200_i64), (51, 1000)] {
        opened.change(|map, handle, i_block| {
            let mut shift = map.begin_shift(i_block, FileBlock(from), by)?;
            Ok(map.shift(handle, i_block, &mut shift, u32::MAX)?.1)
        });
        let moved = model.split_off(&from);
        model.extend(
            moved.into_iter().map(|(block, to)| (block.checked_add_signed(by).unwrap(), to)),
        );
    }
    // The blocks keep their contents when they move: write what their new places say.
    for (block, (pba, _)) in &model {
        opened.file.write_all_at(&content(*block), pba * BLOCK).unwrap();
    }
    opened.store(2000 * BLOCK);
    judge_file(&image, &model, 2000 * BLOCK);
}

#[test]
fn block_pointers_we_write_are_right_for_e2fsck_debugfs_and_the_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let image = image_with_file(directory.path(), &["-t", "ext2"]);
    let (mut opened, mut model) = (Opened::new(&image), Blocks::new());
    assert!(!opened.inode.flags.contains(InodeFlags::EXTENTS));
    for (start, len) in [(3, 5), (10, 400), (600, 1), (1000, 3000), (65_700, 300), (66_500, 10)] {
        opened.insert(&mut model, start, len, false, start > 600);
    }
    opened.remove(&mut model, 1500, 1000);
    opened.remove(&mut model, 66_400, 1000);
    let size = 66_000 * BLOCK;
    opened.store(size);
    judge_file(&image, &model, size);
}

/// A file that the kernel wrote, with every second block punched out and a part preallocated.
fn kernel_file(image: &Path, preallocate: bool) -> Blocks {
    use rustix::fs::{FallocateFlags, fallocate};
    let mount = KernelMount::new(image, "");
    let path = mount.path().join("f");
    let file = File::options().write(true).open(&path).unwrap();
    for block in 0..3000 {
        file.write_all_at(&content(block), block * BLOCK).unwrap();
    }
    file.sync_all().unwrap();
    for block in (0..2900).step_by(2) {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, block * BLOCK, BLOCK).unwrap();
    }
    if preallocate {
        fallocate(&file, FallocateFlags::empty(), 2990 * BLOCK, 500 * BLOCK).unwrap();
        fallocate(&file, FallocateFlags::ZERO_RANGE, 1000 * BLOCK, 50 * BLOCK).unwrap();
    }
    file.sync_all().unwrap();
    let blocks = fiemap(&path);
    drop(file);
    mount.unmount();
    blocks
}

#[test]
fn extent_trees_of_the_kernel_are_read_as_it_reports_them() {
    let directory = tempfile::tempdir().unwrap();
    let image = image_with_file(directory.path(), &["-t", "ext4"]);
    let blocks = kernel_file(&image, true);
    let opened = Opened::new(&image);
    assert!(judge_depth(&opened) >= 2 && blocks.len() > 1900, "depth {}", judge_depth(&opened));
    assert_eq!(opened.walk(), blocks);
}

#[test]
fn block_pointers_of_the_kernel_are_read_as_it_reports_them() {
    let directory = tempfile::tempdir().unwrap();
    let image = image_with_file(directory.path(), &["-t", "ext3"]);
    let blocks = kernel_file(&image, false);
    assert!(blocks.len() > 1500);
    assert_eq!(Opened::new(&image).walk(), blocks);
}
