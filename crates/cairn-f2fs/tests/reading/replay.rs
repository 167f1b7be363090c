//! Roll-forward in memory: a chain of fsynced nodes behind the checkpoint, written here block by
//! block.

use std::sync::Arc;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::format::NodeFooter;
use cairn_f2fs::format::inode::Inode;
use cairn_f2fs::format::node::{self, Marks};
use cairn_f2fs::format::units::{BLOCK_SIZE, BlockAddr, Nid};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{FileKind, FileSystem, IoFlags};

use crate::chain::Chain;
use crate::support::{MIB, image, open};

fn inode(name: &[u8], size: u64) -> Inode {
    let mut inode = Inode::new(FileKind::Regular, 0o640, cairn_f2fs::format::Features::empty(), 0);
    inode.name = name.into();
    inode.pino = Nid::ROOT;
    inode.size = size;
    inode
}

fn block_of(inode: &Inode, pointers: &[(u32, BlockAddr)]) -> Vec<u8> {
    let mut block = vec![0; BLOCK_SIZE];
    inode.encode_into(&mut block);
    pointers.iter().for_each(|(slot, addr)| inode.set_data_pointer(&mut block, *slot, *addr));
    block
}

fn base() -> Arc<MemoryDevice> {
    let tree = tempfile::tempdir().unwrap();
    std::fs::write(tree.path().join("old"), vec![b'o'; 9000]).unwrap();
    std::fs::write(tree.path().join("other"), b"other").unwrap();
    image(64 * MIB, &[], Some(tree.path()))
}

fn contents(volume: &F2fs, name: &[u8]) -> Option<Vec<u8>> {
    let file = volume.lookup(volume.root(), name).ok()?;
    let mut bytes = vec![0xff; usize::try_from(file.size).unwrap()];
    assert_eq!(volume.read(file.ino, 0, &mut bytes, IoFlags::empty()).unwrap(), bytes.len());
    Some(bytes)
}

fn names(volume: &F2fs) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    volume
        .readdir(volume.root(), 0, &mut |entry| {
            names.push(entry.name.into_bytes());
            true
        })
        .unwrap();
    names.sort();
    names
}

const FSYNC: Marks = Marks::FSYNC;
const NEW: Marks = Marks::FSYNC.union(Marks::DENT);

#[test]
fn a_new_file_appears_with_its_name() {
    let mut chain = Chain::new(base());
    let data = chain.data(b'n');
    let block = block_of(&inode(b"new", 4000), &[(0, data)]);
    chain.node(block, 900, 900, 0, NEW);
    let volume = chain.open();
    assert_eq!(contents(&volume, b"new").unwrap(), vec![b'n'; 4000]);
    assert_eq!(volume.lookup(volume.root(), b"new").unwrap().permissions, 0o640);
    assert_eq!(names(&volume), [&b"."[..], b"..", b"new", b"old", b"other"]);
    // A listing continues after any entry.
    let mut position = 0;
    let mut count = 0;
    while let Some(next) = {
        let mut next = None;
        volume
            .readdir(volume.root(), position, &mut |entry| {
                next = Some(entry.next);
                false
            })
            .unwrap();
        next
    } {
        position = next;
        count += 1;
    }
    assert_eq!(count, 5);
    let options = MountOptions { read_only: true, no_recovery: true, ..MountOptions::default() };
    let runtime = cairn_base::runtime::threads::Threads::new();
    let without = F2fs::open(chain.device.clone(), runtime, &options).unwrap();
    assert_eq!(contents(&without, b"new"), None);
}

#[test]
fn nodes_without_the_mark_count_only_before_one_with_it() {
    let mut chain = Chain::new(base());
    let [first, second, third] = [b'1', b'2', b'3'].map(|byte| chain.data(byte));
    chain.node(block_of(&inode(b"new", 4096), &[(0, first)]), 900, 900, 0, NEW);
    chain.node(
        block_of(&inode(b"new", 8192), &[(0, first), (1, second)]),
        900,
        900,
        0,
        Marks::empty(),
    );
    let volume = chain.open();
    assert_eq!(
        contents(&volume, b"new").unwrap().len(),
        4096,
        "an unmarked node behind the last fsync"
    );
    chain.node(
        block_of(&inode(b"new", 12_288), &[(0, first), (1, second), (2, third)]),
        900,
        900,
        0,
        FSYNC,
    );
    let volume = chain.open();
    let right: Vec<u8> = [b'1', b'2', b'3'].into_iter().flat_map(|byte| [byte; 4096]).collect();
    assert_eq!(contents(&volume, b"new").unwrap(), right);
}

#[test]
fn an_inode_without_a_known_parent_is_left_out() {
    let mut chain = Chain::new(base());
    chain.node(block_of(&inode(b"ghost", 0), &[]), 901, 901, 0, FSYNC);
    let volume = chain.open();
    assert_eq!(names(&volume).len(), 4);
    assert!(volume.getattr(Nid(901).ino()).is_err());
}

#[test]
fn an_old_file_grows_through_every_level() {
    let mut chain = Chain::new(base());
    let volume = chain.open();
    let old = volume.lookup(volume.root(), b"old").unwrap().ino;
    let record = volume.inodes().inode(old).unwrap().record();
    let shape = record.shape();
    let nid = u32::try_from(old.get()).unwrap();
    // One direct node of each kind of place: below the inode, an indirect node, the double indirect
    // node.
    for (index, offset) in [(0, 2_u32), (1, 3 + 1 + 5), (2, 2041 + 1 + 1019 + 1 + 7)] {
        let data = chain.data(b'A' + index);
        let mut block = vec![0; BLOCK_SIZE];
        node::set_data_pointer(&mut block, 3, data);
        chain.node(block, 910 + u32::from(index), nid, offset, FSYNC);
    }
    let volume = chain.open();
    let file = volume.lookup(volume.root(), b"old").unwrap();
    let last = shape.first_block(2041 + 1 + 1019 + 1 + 7).unwrap() + 3;
    assert_eq!(file.size, (last + 1) * 4096, "data behind the end makes the file longer");
    for (index, offset) in [(0, 2_u32), (1, 9), (2, 2041 + 1 + 1019 + 1 + 7)] {
        let at = (shape.first_block(offset).unwrap() + 3) * 4096;
        let mut bytes = [0; 4100];
        volume.read(file.ino, at - 2, &mut bytes, IoFlags::empty()).unwrap();
        assert_eq!(
            (bytes[1], bytes[2], bytes[4097]),
            (0, b'A' + index, b'A' + index),
            "offset {offset}"
        );
    }
    let mut head = [0; 9000];
    volume.read(file.ino, 0, &mut head, IoFlags::empty()).unwrap();
    assert_eq!(head, [b'o'; 9000], "what the file had before");
}

#[test]
fn a_chain_of_another_checkpoint_and_one_that_is_a_loop() {
    let mut chain = Chain::new(base());
    chain.checkpoint.version += 1;
    chain.node(block_of(&inode(b"stale", 0), &[]), 902, 902, 0, NEW);
    assert_eq!(names(&chain.open()).len(), 4);
    let mut chain = Chain::new(base());
    let start = chain.next;
    chain.node(block_of(&inode(b"first", 0), &[]), 902, 902, 0, NEW);
    chain.next = BlockAddr(start.get() - 1);
    let mut block = block_of(&inode(b"second", 0), &[]);
    NodeFooter { nid: Nid(903), ino: Nid(903), ..NodeFooter::default() }.write(&mut block);
    let footer = NodeFooter {
        nid: Nid(903),
        ino: Nid(903),
        marks: NEW,
        offset: 0,
        cp_ver: chain.checkpoint.node_version(),
        next_blkaddr: start,
    };
    footer.write(&mut block);
    chain.device.write_at(BlockAddr(start.get() + 1).bytes(), block).unwrap();
    let error = open(chain.device.clone()).map(drop).unwrap_err().to_string();
    assert!(error.contains("loop"), "{error}");
    assert!(chain.layout.in_main(start));
}
