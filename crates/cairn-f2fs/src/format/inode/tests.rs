//! An inode is the same after encoding and decoding. Impossible values are refused.

use super::*;
use crate::format::checkpoint::tests::layout;
use crate::format::node::NodeFooter;
use crate::format::path::TreeShape;
use crate::format::units::BLOCK_SIZE;

const ALL: Features = Features::from_bits_retain(0x29e8 & !0x80);

fn file(features: Features, extra: u16) -> Inode {
    let mut inode = Inode::new(FileKind::Regular, 0o4755, features, extra);
    inode.name = InodeName::from_slice(b"name");
    (inode.uid, inode.gid, inode.size, inode.pino) = (1, 2, 3, Nid(3));
    inode.atime = Timestamp { seconds: -5, nanoseconds: 7 };
    inode.flags = FileFlags::NODUMP | FileFlags::from_bits_retain(0x80_0000);
    inode.nids[4] = Nid(77);
    inode
}

#[test]
fn every_size_of_extra_attributes_survives_the_disk() {
    for size in [0, 4, 8, 12, 24, 36] {
        let features = if size > 0 { Features::EXTRA_ATTR } else { Features::empty() };
        let mut inode = file(features, size);
        if let Some(extra) = &mut inode.extra {
            extra.projid = if size >= 8 { 9 } else { 0 };
            extra.crtime.seconds = if extra.has_crtime() { 10 } else { 0 };
            extra.log_cluster_size = if extra.has_compression() { 2 } else { 0 };
        }
        let mut block = vec![0; BLOCK_SIZE];
        let slots = inode.address_slots();
        inode.encode_into(&mut block);
        inode.set_data_pointer(&mut block, 0, BlockAddr(5));
        inode.set_data_pointer(&mut block, slots - 1, BlockAddr::NEW);
        inode.encode_into(&mut block);
        assert_eq!(Inode::decode(&block, Nid(9), features).unwrap(), inode);
        assert_eq!(slots, 923 - u32::from(size) / 4);
        assert_eq!(inode.data_pointer(&block, 0), BlockAddr(5), "encoding leaves pointers alone");
        assert_eq!(block[360 + usize::from(size)], 5);
        assert_eq!(block[4048..4052], [0xff; 4]);
    }
}

#[test]
fn words_are_shared_as_the_flags_say() {
    let mut inode = file(Features::empty(), 0);
    assert_eq!((inode.address_slots(), inode.inline_xattr_range()), (923, 4052..4052));
    inode.inline = InlineFlags::XATTR | InlineFlags::DATA;
    assert_eq!((inode.address_slots(), inode.max_inline_data()), (873, 3488));
    assert_eq!(inode.inline_data_range(), 364..364 + 3488);
    assert_eq!(inode.inline_xattr_range(), 3852..4052);
    inode.inline = InlineFlags::DENTRY;
    assert_eq!((inode.address_slots(), inode.inline_xattr_range().len()), (873, 0));
    let mut flexible = file(ALL, 36);
    assert_eq!(flexible.address_slots(), 914);
    flexible.extra.as_mut().unwrap().inline_xattr_size = 10;
    assert_eq!(flexible.address_slots(), 904);
    flexible.extra.as_mut().unwrap().log_cluster_size = 3;
    flexible.flags.insert(FileFlags::COMPR);
    assert_eq!(flexible.shape(), TreeShape { inode_slots: 904, node_slots: 1016 });
    flexible.extra.as_mut().unwrap().log_cluster_size = 4;
    assert_eq!(flexible.shape(), TreeShape { inode_slots: 896, node_slots: 1008 });
}

#[test]
fn the_checksum_covers_the_footer() {
    let mut layout = layout();
    layout.features = ALL;
    let mut block = vec![0; BLOCK_SIZE];
    file(ALL, 36).encode_into(&mut block);
    let footer = NodeFooter { nid: Nid(9), ino: Nid(9), cp_ver: 4, ..NodeFooter::default() };
    footer.write(&mut block);
    assert!(verify(&block, Nid(9), &layout).is_err());
    seal(&mut block, &layout);
    assert!(verify(&block, Nid(9), &layout).is_ok());
    for at in [0, 367, 372, 4090] {
        let mut changed = block.clone();
        changed[at] ^= 4;
        assert!(
            matches!(verify(&changed, Nid(9), &layout), Err(Corrupt::Checksum { place: 9, .. })),
            "{at}"
        );
    }
    layout.features.remove(Features::INODE_CHECKSUM);
    block[0] ^= 4;
    assert!(verify(&block, Nid(9), &layout).is_ok());
}

#[test]
fn devices_have_two_encodings() {
    let mut block = vec![0; BLOCK_SIZE];
    let inode = Inode::new(FileKind::CharDevice, 0o600, Features::empty(), 0);
    inode.set_device(&mut block, 0x103);
    assert_eq!((inode.device(&block), block[360]), (0x103, 3));
    inode.set_device(&mut block, 0x12_3456);
    assert_eq!((inode.device(&block), block[360], block[364]), (0x12_3456, 0, 0x56));
}

#[test]
fn impossible_inodes_are_named() {
    type Change = fn(&mut Inode);
    let changes: [(&str, Change); 10] = [
        ("i_blocks", |inode| inode.blocks = 0),
        ("i_size", |inode| inode.size = u64::MAX),
        ("i_extra_isize", |inode| inode.extra.as_mut().unwrap().size = 40),
        ("i_extra_isize", |inode| inode.extra.as_mut().unwrap().size = 0),
        // It would cut the creation time.
        ("i_extra_isize", |inode| inode.extra.as_mut().unwrap().size = 20),
        ("i_inline_xattr_size", |inode| inode.extra.as_mut().unwrap().inline_xattr_size = 904),
        ("i_inline_xattr_size", |inode| inode.inline.insert(InlineFlags::XATTR)),
        ("i_inline", |inode| inode.inline.insert(InlineFlags::DENTRY)),
        ("i_inline", |inode| inode.inline.remove(InlineFlags::EXTRA_ATTR)),
        ("i_log_cluster_size", |inode| inode.flags.insert(FileFlags::COMPR)),
    ];
    for (name, change) in changes {
        let mut inode = file(ALL, 36);
        change(&mut inode);
        let mut block = vec![0; BLOCK_SIZE];
        inode.encode_into(&mut block);
        if name == "i_extra_isize" {
            block[360..362].copy_from_slice(&inode.extra.unwrap().size.to_le_bytes());
        }
        match Inode::decode(&block, Nid(9), ALL) {
            Err(Corrupt::Inode { field, ino: Nid(9), .. }) => assert_eq!(field, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    let mut block = vec![0; BLOCK_SIZE];
    assert!(Inode::decode(&block, Nid(9), ALL).is_err(), "mode 0");
    file(Features::empty(), 0).encode_into(&mut block);
    block[89] = 1;
    assert!(Inode::decode(&block, Nid(9), Features::empty()).is_err(), "name of 260 bytes");
}
