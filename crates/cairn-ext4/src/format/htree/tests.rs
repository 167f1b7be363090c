use proptest::prelude::*;

use super::*;
use crate::checksum::InodeSeed;

const SUMMED: DirFormat =
    DirFormat { block_size: 1024, filetype: true, seed: InodeSeed(Some(7)), inodes_count: 100 };

#[test]
fn a_root_grows_and_deepens() {
    let mut block = vec![0xaa; 1024];
    init_root(&mut block, &SUMMED, 12, 2, 1, FileBlock(1));
    for i in 1..NodeKind::Root.limit(&SUMMED) {
        insert_entry(
            &mut block,
            NodeKind::Root,
            &SUMMED,
            i - 1,
            i as u32 * 16,
            FileBlock(i as u64 + 1),
        )
        .unwrap();
    }
    verify_node(&block, NodeKind::Root, &SUMMED, Ino(12), FileBlock(0)).unwrap();
    let node = Node::parse(&block, NodeKind::Root, &SUMMED).unwrap();
    assert!(node.is_full());
    assert_eq!(
        (node.search(15), node.search(16), node.search(17), node.search(u32::MAX)),
        (0, 1, 1, node.count() - 1)
    );
    assert_eq!(node.child(3), Some(FileBlock(4)));
    let pairs = node.pairs();
    let mut inner = vec![0; 1024];
    init_inner(&mut inner, &SUMMED, &pairs);
    verify_node(&inner, NodeKind::Inner, &SUMMED, Ino(12), FileBlock(200)).unwrap();
    assert_eq!(Node::parse(&inner, NodeKind::Inner, &SUMMED).unwrap().pairs(), pairs);
    deepen_root(&mut block, &SUMMED, FileBlock(200));
    let info = root_info(&block, &SUMMED, 1).unwrap();
    assert_eq!(info, RootInfo { hash_version: 1, indirect_levels: 1 });
    assert!(root_info(&block, &SUMMED, 0).is_err());
    assert_eq!(
        Node::parse(&block, NodeKind::Root, &SUMMED).unwrap().pairs(),
        [(0, FileBlock(200))]
    );
}

#[test]
fn damage_is_found() {
    let mut block = vec![0; 1024];
    init_inner(&mut block, &SUMMED, &[(0, FileBlock(1)), (8, FileBlock(2)), (6, FileBlock(3))]);
    assert_eq!(
        Node::parse(&block, NodeKind::Inner, &SUMMED).unwrap_err().what,
        "hashes of the index do not ascend"
    );
    block[20] ^= 1;
    assert!(matches!(
        verify_node(&block, NodeKind::Inner, &SUMMED, Ino(12), FileBlock(9)),
        Err(Corrupt::Checksum { place: 9, .. })
    ));
    block[10] = 0;
    assert!(Node::parse(&block, NodeKind::Inner, &SUMMED).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(mut block in proptest::collection::vec(any::<u8>(), 1024),
        shaped: bool) {
        if shaped {
            init_inner(&mut block.clone(), &SUMMED, &[(0, FileBlock(1))]);
            block[..4].fill(0);
            block[4..6].copy_from_slice(&1024_u16.to_le_bytes());
            block[8..10].copy_from_slice(&126_u16.to_le_bytes());
        }
        for kind in [NodeKind::Root, NodeKind::Inner] {
            let _ = verify_node(&block, kind, &SUMMED, Ino(1), FileBlock(0));
            let _ = root_info(&block, &SUMMED, 2);
            if let Ok(node) = Node::parse(&block, kind, &SUMMED) {
                let _ = (node.search(77), node.child(node.count()), node.pairs());
            }
        }
    }
}
