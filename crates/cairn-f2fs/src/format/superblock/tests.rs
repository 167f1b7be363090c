use super::*;

fn block(superblock: &Superblock) -> Vec<u8> {
    let mut block = vec![0; OFFSET];
    block.extend(superblock.encode());
    block
}

#[test]
fn survives_the_disk() {
    let mut superblock = Superblock::blank();
    assert!(superblock.set_label("κάιρν"));
    superblock.devs[7].total_segments = 5;
    superblock.qf_ino = [Nid(4), Nid(5), Nid(6)];
    superblock.extension_count = 1;
    superblock.hot_ext_count = 1;
    superblock.extension_list[0][..3].copy_from_slice(b"jpg");
    superblock.extension_list[1][..2].copy_from_slice(b"db");
    let back = Superblock::decode(&block(&superblock)).unwrap();
    assert_eq!(back, superblock);
    assert_eq!(back.label(), "κάιρν");
    assert_eq!(back.extensions(), (vec![&b"jpg"[..]], vec![&b"db"[..]]));
    assert!(!superblock.set_label(&"x".repeat(512)));
}

#[test]
fn the_checksum_is_verified() {
    let mut superblock = Superblock::blank();
    superblock.features = Features::SB_CHECKSUM;
    superblock.checksum_offset = 3068;
    let mut bytes = block(&superblock);
    superblock.crc = Superblock::decode(&bytes).unwrap().crc;
    assert_ne!(superblock.crc, 0);
    bytes[OFFSET + 200] ^= 1;
    assert!(matches!(
        Superblock::decode(&bytes),
        Err(Corrupt::Checksum { what: "superblock", .. })
    ));
}

#[test]
fn short_and_foreign_blocks_are_refused() {
    assert!(Superblock::decode(&[]).is_err());
    assert!(Superblock::decode(&[0; 4096]).is_err());
    assert_eq!((magic_of(&[0; 1026]), magic_of(&[0; 4096])), (None, Some(0)));
}
