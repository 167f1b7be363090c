//! A volume of mkfs.f2fs with a tree in it, opened through the store, and the few things tests
//! do to it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::Result;
use crate::checkpoint::{Loaded, load};
use crate::format::inode::InlineFlags;
use crate::format::path::NodeKind;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{BlockAddr, Inode, Layout, Log, Nid, Superblock, node};
use crate::node::{Node, Owner};
use crate::segment::{self, Mode};
use crate::store::{Store, StoreOptions};
use cairn_base::runtime::threads::Threads;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_testkit::judge;

/// Memory for caches: little, so that nodes are evicted and read again.
const BUDGET: u64 = 1 << 20;

pub(crate) fn layout_of(device: &dyn BlockDevice) -> Layout {
    let block = device.read_at(0, BLOCK_SIZE).expect("block 0 is read");
    let superblock = Superblock::decode(&block).expect("a superblock");
    Layout::new(&superblock, device.geometry().size).expect("a layout")
}

pub(crate) fn open_with(device: Arc<dyn BlockDevice>, mode: Mode, discard: bool) -> Result<Store> {
    let layout = layout_of(&*device);
    Store::open(device, layout, StoreOptions { mode, discard }, Budget::new(BUDGET), Threads::new())
}

pub(crate) fn device(path: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(path, OpenOptions::write()).expect("the image opens"))
}

/// The pack that counts on disk now.
pub(crate) fn pack(store: &Store) -> Loaded {
    let cache = BufferCache::new(store.device.clone(), BLOCK_SIZE as u32, Budget::new(BUDGET));
    load(&cache, &store.layout).expect("a valid pack")
}

/// A tree on the host: many small files, directories, links, and a few files with indirect nodes'
/// worth of blocks.
pub(crate) fn host_tree(dir: &Path, large: &[usize]) {
    for index in 0..150_usize {
        let sub = dir.join(format!("dir{}", index % 7));
        std::fs::create_dir_all(&sub).unwrap();
        let bytes: Vec<u8> = (0..index * 97).map(|at| (at * 31 + index) as u8).collect();
        std::fs::write(sub.join(format!("file-{index:03}")), bytes).unwrap();
    }
    std::os::unix::fs::symlink("dir0/file-000", dir.join("link")).unwrap();
    for (index, blocks) in large.iter().enumerate() {
        let bytes: Vec<u8> =
            (0..blocks * BLOCK_SIZE).map(|at| (at / 7 + at / BLOCK_SIZE + index) as u8).collect();
        std::fs::write(dir.join(format!("large-{index}")), bytes).unwrap();
    }
}

/// An image with a tree.
pub(crate) fn image(dir: &Path, size: u64, args: &[&str], large: &[usize]) -> PathBuf {
    let path = dir.join("image");
    judge::mkfs_f2fs(&path, size, args);
    let tree = dir.join("tree");
    std::fs::create_dir(&tree).unwrap();
    host_tree(&tree, large);
    load_tree(&path, &tree, args);
    judge::assert_f2fs_clean(&path);
    path
}

fn load_tree(path: &Path, tree: &Path, args: &[&str]) {
    if !args.iter().any(|arg| arg.contains("flexible_inline_xattr")) {
        return judge::sload_f2fs(path, tree);
    }
    // Here sload.f2fs makes inodes that its own fsck must repair; what comes out is consistent.
    let run = |command: &mut Command| command.arg(path).output().expect("the tool starts");
    run(judge::command("sload.f2fs").arg("-P").arg("-f").arg(tree));
    run(judge::command("fsck.f2fs").arg("-f"));
}

/// All nids in use, and their nodes. mkfs and sload hand them out from the lowest on.
pub(crate) fn nids(store: &Store) -> Vec<Nid> {
    let in_use = |nid: &Nid| !store.nat.lookup(*nid).expect("an entry").is_free();
    let found: Vec<Nid> = (3..store.layout.max_nid()).map(Nid).take(4000).filter(in_use).collect();
    assert_eq!(found.len(), store.space.counts().valid_nodes as usize, "nids in use");
    found
}

/// The data pointers of a node: index as in summaries, and the value.
pub(crate) fn pointers(store: &Store, node: &Node) -> Vec<(u16, BlockAddr)> {
    let image = node.image();
    match node.kind() {
        NodeKind::Inode => {
            let inode = decode(store, node);
            if inode.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY) {
                return Vec::new();
            }
            (0..inode.address_slots())
                .map(|slot| (slot as u16, inode.data_pointer(&image, slot)))
                .collect()
        }
        NodeKind::Direct => (0..).zip(node::data_pointers(&image)).collect(),
        _ => Vec::new(),
    }
}

pub(crate) fn decode(store: &Store, node: &Node) -> Inode {
    Inode::decode(&node.image(), node.ino(), store.layout.features).expect("an inode")
}

pub(crate) fn data_log(node: &Node) -> Log {
    match node.owner() {
        Owner::Directory => Log::HotData,
        Owner::Other if node.ino().get().is_multiple_of(5) => Log::ColdData,
        Owner::Other => Log::WarmData,
    }
}

pub(crate) fn set_pointer(store: &Store, node: &Arc<Node>, slot: u16, addr: BlockAddr) {
    let inode = (node.kind() == NodeKind::Inode).then(|| decode(store, node));
    let mut image = node.modify();
    match inode {
        Some(inode) => inode.set_data_pointer(&mut image, slot.into(), addr),
        None => node::set_data_pointer(&mut image, slot.into(), addr),
    }
}

/// Moves the data blocks of a node's given slots to the ends of their logs, as an overwrite does.
pub(crate) fn move_data(
    store: &Store,
    node: &Arc<Node>,
    chosen: impl Fn(u16) -> bool,
) -> Result<usize> {
    let _inside = store.operation_lock.lock_op()?;
    let moving: Vec<(u16, BlockAddr)> = pointers(store, node)
        .into_iter()
        .filter(|(slot, addr)| addr.is_address() && chosen(*slot))
        .collect();
    let inode = store.nodes.get(node.ino())?;
    if !moving.is_empty() && decode(store, &inode).ext.len > 0 {
        // A hint that must be right if it is there.
        change_inode(store, &inode, |inode| inode.ext.len = 0);
    }
    let owner =
        |slot| segment::Owner { nid: node.nid(), version: node.version(), ofs_in_node: slot };
    let owners: Vec<_> = moving.iter().map(|(slot, _)| owner(*slot)).collect();
    let mut done = 0;
    while done < moving.len() {
        let placed = store.segments.place(data_log(node), &owners[done..])?;
        for (index, (slot, old)) in moving[done..done + placed.count].iter().enumerate() {
            let addr = BlockAddr(placed.address.get() + index as u32);
            let bytes = store.device.read_at(old.bytes(), BLOCK_SIZE)?;
            store.device.write_at(addr.bytes(), bytes)?;
            set_pointer(store, node, *slot, addr);
            store.segments.invalidate(*old)?;
        }
        done += placed.count;
    }
    Ok(moving.len())
}

/// Changes the inode's own fields through its decoded form.
pub(crate) fn change_inode(store: &Store, node: &Arc<Node>, change: impl FnOnce(&mut Inode)) {
    let mut inode = decode(store, node);
    change(&mut inode);
    inode.encode_into(&mut node.modify());
}

/// Gives a file one more direct node of `count` blocks below its first indirect node (which is
/// made, too). The file must have neither. What it did can be undone by [`shrink`].
pub(crate) fn grow(store: &Store, ino: Nid, count: u16) -> Result<()> {
    let mut reservation = store.space.reserve(2 + u64::from(count))?;
    let _inside = store.operation_lock.lock_op()?;
    let inode_node = store.nodes.get(ino)?;
    let inode = decode(store, &inode_node);
    assert!(inode.nids[2].is_none());
    let (indirect, direct) = (store.nat.allocate()?, store.nat.allocate()?);
    let parent = store.nodes.create(indirect, ino, 3, Owner::Other, &mut reservation)?;
    node::set_child(&mut parent.modify(), 0, direct);
    let child = store.nodes.create(direct, ino, 4, Owner::Other, &mut reservation)?;
    let owners: Vec<_> = (0..count)
        .map(|slot| segment::Owner { nid: direct, version: child.version(), ofs_in_node: slot })
        .collect();
    let mut done = 0;
    while done < owners.len() {
        let placed = store.segments.place(Log::WarmData, &owners[done..])?;
        for index in 0..placed.count {
            let addr = BlockAddr(placed.address.get() + index as u32);
            store.device.write_at(addr.bytes(), vec![0x5a; BLOCK_SIZE])?;
            set_pointer(store, &child, (done + index) as u16, addr);
        }
        done += placed.count;
    }
    reservation.take(count.into());
    let first = inode.shape().first_block(4).unwrap();
    change_inode(store, &inode_node, |inode| {
        inode.nids[2] = indirect;
        inode.blocks += 2 + u64::from(count);
        inode.size = (first + u64::from(count)) * BLOCK_BYTES;
    });
    Ok(())
}

/// Undoes [`grow`]; the file had `size` bytes.
pub(crate) fn shrink(store: &Store, ino: Nid, size: u64) -> Result<()> {
    let _inside = store.operation_lock.lock_op()?;
    let inode_node = store.nodes.get(ino)?;
    let indirect = store.nodes.child(decode(store, &inode_node).nids[2], ino, 3)?;
    let direct = store.nodes.child(node::child(&indirect.image(), 0), ino, 4)?;
    let mut blocks = 2;
    for (_, addr) in pointers(store, &direct).into_iter().filter(|(_, addr)| addr.is_address()) {
        store.segments.invalidate(addr)?;
        store.space.release(1);
        blocks += 1;
    }
    for node in [&direct, &indirect] {
        store.nodes.release(store.nodes.remove(node.nid())?);
    }
    change_inode(store, &inode_node, |inode| {
        inode.nids[2] = Nid::NONE;
        inode.blocks -= blocks;
        inode.size = size;
    });
    Ok(())
}

/// Regular files with data pointers of their own.
pub(crate) fn files(store: &Store) -> Vec<Arc<Node>> {
    use cairn_vfs::FileKind;
    let inodes = nids(store).into_iter().map(|nid| store.nodes.get(nid).expect("a node"));
    let wanted = |node: &Arc<Node>| {
        node.kind() == NodeKind::Inode && {
            let inode = decode(store, node);
            inode.kind == FileKind::Regular
                && inode.links > 0
                && !inode.inline.contains(InlineFlags::DATA)
                && inode.nids[2].is_none()
        }
    };
    inodes.filter(wanted).collect()
}
