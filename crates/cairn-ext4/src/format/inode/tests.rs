//! Inode records: round trips, limits, checksums.

use super::*;
use crate::checksum::MetadataChecksum;
use crate::format::layout::tests::sample;

fn layout_of(inode_size: u32, extra: &[&str]) -> Layout {
    let mut layout = sample();
    layout.inode_size = inode_size;
    layout.want_extra_isize = if inode_size == 128 { 0 } else { 32 };
    for name in extra {
        assert!(layout.features.set_by_name(name, true));
    }
    layout
}

fn encode(inode: &Inode, ino: Ino, layout: &Layout) -> Vec<u8> {
    let mut out = vec![0xff; layout.inode_size as usize];
    inode.encode(ino, layout, &mut out);
    out
}

fn full(layout: &Layout) -> Inode {
    let mut inode = Inode::new(77, layout);
    inode.mode = mode::REGULAR | 0o4755;
    inode.uid = 0x1_2345;
    inode.gid = 0xffff_fffe;
    inode.size = 0x12_3456_789a;
    inode.links = 3;
    inode.blocks_512 = 0x12_3456_7890;
    inode.flags = InodeFlags::EXTENTS | InodeFlags::NOATIME;
    inode.atime = Timestamp { seconds: -5, nanoseconds: 7 };
    inode.mtime = Timestamp { seconds: 1 << 33, nanoseconds: 999_999_999 };
    inode.ctime = Timestamp { seconds: 1, nanoseconds: 0 };
    inode.crtime = Timestamp { seconds: i64::from(i32::MAX) + 1, nanoseconds: 1 };
    inode.file_acl = Pba(1234);
    inode.version = 0x1_0000_0002;
    inode.block[59] = 9;
    inode.extra[0] = 1;
    inode
}

#[test]
fn every_field_survives() {
    let layout = layout_of(256, &["huge_file"]);
    let inode = full(&layout);
    let bytes = encode(&inode, Ino(12), &layout);
    let back = Inode::decode(&bytes, Ino(12), &layout).expect("valid");
    assert_eq!(Inode { raw: inode.raw.clone(), ..back.clone() }, inode);
    assert_eq!(encode(&back, Ino(12), &layout), bytes);
    assert!(Inode::decode(&bytes, Ino(13), &layout).is_err(), "the checksum covers the number");
}

#[test]
fn any_flipped_bit_is_noticed() {
    let layout = layout_of(256, &["huge_file"]);
    let mut bytes = encode(&full(&layout), Ino(12), &layout);
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Inode::decode(&bytes, Ino(12), &layout).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn unknown_bytes_round_trip() {
    let mut layout = layout_of(256, &[]);
    layout.checksum = MetadataChecksum::NONE;
    let mut bytes: Vec<u8> = (0..=255).collect();
    // A valid record: size below 2^63, attributes inside the volume, extra fields inside the
    // record.
    bytes[0x6c..0x70].copy_from_slice(&[1, 0, 0, 0]);
    bytes[0x68..0x6c].copy_from_slice(&[9, 0, 0, 0]);
    bytes[0x76..0x78].copy_from_slice(&[0, 0]);
    for extra_isize in [0_u8, 4, 8, 12, 16, 24, 28, 32, 36, 128] {
        bytes[0x80..0x82].copy_from_slice(&[extra_isize, 0]);
        let inode = Inode::decode(&bytes, Ino(12), &layout).expect("valid");
        assert_eq!(inode.extra.len(), 128 - usize::from(extra_isize));
        assert_eq!(encode(&inode, Ino(12), &layout), bytes, "extra size {extra_isize}");
    }
    bytes[0x80] = 129;
    assert!(Inode::decode(&bytes, Ino(12), &layout).is_err());
}

#[test]
fn small_records_have_no_nanoseconds_and_16_checksum_bits() {
    let layout = layout_of(128, &[]);
    let mut inode = Inode::new(5, &layout);
    inode.mode = mode::REGULAR;
    inode.links = 1;
    inode.mtime = Timestamp { seconds: -1, nanoseconds: 5 };
    let back = Inode::decode(&encode(&inode, Ino(20), &layout), Ino(20), &layout).expect("valid");
    assert_eq!(back.mtime, Timestamp { seconds: -1, nanoseconds: 0 });
    assert!(back.extra.is_empty());
}

#[test]
fn blocks_switch_to_whole_blocks_beyond_48_bits() {
    let layout = layout_of(256, &["huge_file"]);
    let mut inode = Inode::new(5, &layout);
    inode.mode = mode::REGULAR;
    for blocks in [8, u64::from(u32::MAX) + 9, (1 << 48) - 8, 1 << 48, 1 << 50] {
        inode.blocks_512 = blocks;
        let back =
            Inode::decode(&encode(&inode, Ino(20), &layout), Ino(20), &layout).expect("valid");
        assert_eq!(back.blocks_512, blocks);
        assert_eq!(back.flags.contains(InodeFlags::HUGE_FILE), blocks >= 1 << 48);
    }
}

#[test]
fn never_used_records_decode() {
    let layout = layout_of(256, &[]);
    let inode = Inode::decode(&[0; 256], Ino(12), &layout).expect("zeros are not corruption");
    assert_eq!((inode.mode, inode.links), (0, 0));
}

#[test]
fn device_numbers_in_both_forms() {
    let mut inode = Inode::new(0, &layout_of(256, &[]));
    for (major, minor, word) in
        [(8, 1, 0), (255, 255, 0), (256, 0, 4), (0, 256, 4), (4095, 0xf_ffff, 4), (259, 70_000, 4)]
    {
        inode.set_device(major, minor);
        assert_eq!(inode.device(), (major, minor));
        assert!(inode.block[word..word + 4].iter().any(|b| *b != 0));
    }
}

#[test]
fn directories_stop_counting_at_65000() {
    let layout = layout_of(256, &["dir_nlink"]);
    let mut dir = Inode::new(0, &layout);
    dir.mode = mode::DIRECTORY;
    dir.links = LINK_MAX - 2;
    dir.add_link();
    assert_eq!(dir.links, LINK_MAX - 1);
    assert!(dir.may_link(&layout));
    dir.add_link();
    assert_eq!(dir.links, 1);
    dir.add_link();
    dir.drop_link();
    assert_eq!(dir.links, 1);
    let mut file = Inode::new(0, &layout);
    file.mode = mode::REGULAR;
    file.links = LINK_MAX;
    assert!(!file.may_link(&layout));
}
