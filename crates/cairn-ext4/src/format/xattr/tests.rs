//! Containers of attributes: both containers, their capacity, and damage.

use proptest::prelude::*;

use cairn_base::Pba;

use super::*;
use crate::checksum::MetadataChecksum;

fn attribute(name: &str, value: &[u8]) -> OwnedAttribute {
    OwnedAttribute {
        index: 1,
        name: name.as_bytes().to_vec(),
        value: OwnedValue::Here(value.to_vec()),
    }
}

fn owned(bytes: &[u8], location: XattrLocation) -> Vec<OwnedAttribute> {
    decode(bytes, location, Ino(12)).unwrap().iter().map(OwnedAttribute::from).collect()
}

#[test]
fn an_empty_area_has_no_magic() {
    let mut area = vec![0xff; 96];
    encode_inode(&mut area, &[]);
    assert_eq!(area, vec![0; 96]);
    assert_eq!(decode(&area, XattrLocation::Inode, Ino(12)).unwrap(), []);
    assert_eq!(decode(&[], XattrLocation::Inode, Ino(12)).unwrap(), []);
    assert_eq!(decode(&MAGIC.to_le_bytes(), XattrLocation::Inode, Ino(12)).unwrap(), []);
}

#[test]
fn a_full_area_holds_exactly_what_fits() {
    let one = [attribute("a", &[7; 68])];
    assert_eq!(encoded_len(XattrLocation::Inode, &one), 96);
    assert!(fits(96, XattrLocation::Inode, &one) && !fits(95, XattrLocation::Inode, &one));
    let mut area = vec![0; 96];
    encode_inode(&mut area, &one);
    assert_eq!(owned(&area, XattrLocation::Inode), one);
}

#[test]
fn blocks_are_sorted_hashed_and_sealed() {
    let mut all = vec![attribute("zz", b"1"), attribute("b", b"22222"), attribute("a", b"")];
    all.push(OwnedAttribute {
        index: 1,
        name: b"far".to_vec(),
        value: OwnedValue::Inode { ino: Ino(77), size: 5000, hash: entry_hash_of_inode(b"far", 9) },
    });
    let mut block = vec![0xaa; 1024];
    encode_block(&mut block, &mut all);
    let checksum = MetadataChecksum::with_seed(5);
    seal_block(&mut block, Pba(99), checksum);
    verify_block(&block, Pba(99), checksum, Ino(12)).unwrap();
    assert!(matches!(
        verify_block(&block, Pba(98), checksum, Ino(12)),
        Err(Corrupt::Checksum { .. })
    ));
    assert_eq!(owned(&block, XattrLocation::Block), all);
    assert_eq!(
        all.iter().map(|a| a.name.as_slice()).collect::<Vec<_>>(),
        [&b"a"[..], b"b", b"zz", b"far"]
    );
    assert_eq!(refcount(&block), 1);
    set_refcount(&mut block, 2);
    assert!(verify_block(&block, Pba(99), checksum, Ino(12)).is_err());
    for (at, byte) in [(0, 1), (4, 0), (5, 9), (8, 2)] {
        let mut damaged = block.clone();
        damaged[at] = byte;
        if at == 4 {
            damaged[5] = 0;
        }
        assert!(decode(&damaged, XattrLocation::Block, Ino(12)).is_err(), "byte {at}");
    }
}

#[test]
fn values_beyond_the_end_or_counted_twice_are_refused() {
    let mut area = vec![0; 96];
    encode_inode(&mut area, &[attribute("a", &[1; 20]), attribute("b", &[2; 20])]);
    let mut far = area.clone();
    far[6..8].copy_from_slice(&90_u16.to_le_bytes());
    assert!(decode(&far, XattrLocation::Inode, Ino(12)).is_err());
    let mut big = area.clone();
    big[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(decode(&big, XattrLocation::Inode, Ino(12)).is_err());
    // Each value is inside, but all together exceed the container.
    for entry in [4, 24] {
        area[entry + 2..entry + 4].copy_from_slice(&0_u16.to_le_bytes());
        area[entry + 8..entry + 12].copy_from_slice(&80_u32.to_le_bytes());
    }
    assert!(decode(&area, XattrLocation::Inode, Ino(12)).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_without_panic(mut bytes in proptest::collection::vec(any::<u8>(),
        0..1024), sane: bool) {
        if sane && bytes.len() >= 32 {
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[4..12].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
        }
        for location in [XattrLocation::Inode, XattrLocation::Block] {
            if let Ok(all) = decode(&bytes, location, Ino(12)) {
                let all: Vec<_> = all.iter().map(OwnedAttribute::from).collect();
                prop_assert!(all.is_empty() || fits(bytes.len(), location, &all));
            }
        }
    }

    #[test]
    fn what_is_encoded_is_decoded(
        all in proptest::collection::btree_map("[a-z]{1,20}",
            proptest::collection::vec(any::<u8>(), 0..60), 0..12)
    ) {
        let mut all: Vec<_> = all.iter().map(|(name, value)| attribute(name, value)).collect();
        let mut area = vec![0; encoded_len(XattrLocation::Inode, &all)];
        encode_inode(&mut area, &all);
        prop_assert_eq!(owned(&area, XattrLocation::Inode), all.clone());
        let mut block = vec![0; 4096];
        encode_block(&mut block, &mut all);
        prop_assert_eq!(owned(&block, XattrLocation::Block), all);
    }
}
