//! Linear blocks: layout, gaps, damage.

use proptest::prelude::*;

use super::*;

const PLAIN: DirFormat =
    DirFormat { block_size: 1024, filetype: true, seed: InodeSeed(None), inodes_count: 1000 };
const SUMMED: DirFormat = DirFormat { seed: InodeSeed(Some(0x1234_5678)), ..PLAIN };

fn names(block: &[u8], format: &DirFormat) -> Vec<Vec<u8>> {
    entries(block, format)
        .map(Result::unwrap)
        .filter(|e| e.ino != 0)
        .map(|e| e.name.to_vec())
        .collect()
}

#[test]
fn lengths_of_64k_blocks_survive_16_bits() {
    assert_eq!(encode_rec_len(65_536), 65_535);
    assert_eq!(encode_rec_len(65_524), 65_524);
    assert_eq!(decode_rec_len(65_535, 65_536), 65_536);
    assert_eq!(decode_rec_len(0, 65_536), 65_536);
    assert_eq!(decode_rec_len(0, 4096), 0);
    let format = DirFormat { block_size: 65_536, ..PLAIN };
    let mut block = vec![0_u8; 65_536];
    pack_leaf(&mut block, &format, []);
    let all: Vec<_> = entries(&block, &format).map(Result::unwrap).collect();
    assert_eq!((all.len(), all[0].rec_len, all[0].ino), (1, 65_536, 0));
}

#[test]
fn inserting_and_removing_keeps_the_chain_whole() {
    for format in [PLAIN, SUMMED] {
        let mut block = vec![0_u8; 1024];
        pack_leaf(&mut block, &format, [(2, 2, &b"."[..]), (2, 2, b"..")]);
        let mut n = 0_u32;
        loop {
            let name = format!("name{n}");
            let Room::At(at) = room(entries(&block, &format), name.as_bytes()).unwrap() else {
                break;
            };
            insert_at(&mut block, at, &format, 11 + n, 1, name.as_bytes());
            n += 1;
        }
        assert!(n > 50, "only {n} fitted");
        assert_eq!(room(entries(&block, &format), b"name3").unwrap(), Room::Taken);
        assert_eq!(room(entries(&block, &format), b"another name").unwrap(), Room::Full);
        for victim in ["name3", "name4"] {
            let at = find(entries(&block, &format), victim.as_bytes()).unwrap().unwrap().offset;
            remove_at(&mut block, 0..format.leaf_len(), &format, at).unwrap();
            assert_eq!(find(entries(&block, &format), victim.as_bytes()).unwrap(), None);
        }
        // Two freed neighbours make one gap that a longer name fits.
        let Room::At(at) = room(entries(&block, &format), b"another name").unwrap() else {
            panic!("no gap")
        };
        insert_at(&mut block, at, &format, 7, 1, b"another name");
        assert_eq!(names(&block, &format).len(), 2 + n as usize - 1);
        let total: usize = entries(&block, &format).map(|e| e.unwrap().rec_len).sum();
        assert_eq!(total, format.leaf_len());
    }
}

#[test]
fn the_first_entry_of_a_block_is_removed_in_place() {
    let mut block = vec![0_u8; 1024];
    pack_leaf(&mut block, &SUMMED, [(5, 1, &b"only"[..])]);
    remove_at(&mut block, 0..SUMMED.leaf_len(), &SUMMED, 0).unwrap();
    let all: Vec<_> = entries(&block, &SUMMED).map(Result::unwrap).collect();
    assert_eq!((all.len(), all[0].ino, all[0].rec_len), (1, 0, 1012));
    assert!(remove_at(&mut block, 0..SUMMED.leaf_len(), &SUMMED, 4).is_err());
}

#[test]
fn a_changed_byte_breaks_the_checksum() {
    let mut block = vec![0_u8; 1024];
    pack_leaf(&mut block, &SUMMED, [(5, 1, &b"x"[..])]);
    verify_leaf(&block, &SUMMED, Ino(2), FileBlock(0)).unwrap();
    for at in [0, 500, 1011, 1016, 1020] {
        let mut damaged = block.clone();
        damaged[at] ^= 1;
        assert!(verify_leaf(&damaged, &SUMMED, Ino(2), FileBlock(0)).is_err(), "byte {at}");
    }
    assert!(verify_leaf(&block[..1000], &SUMMED, Ino(2), FileBlock(0)).is_err());
}

#[test]
fn impossible_entries_are_named() {
    let mut good = vec![0_u8; 1024];
    pack_leaf(&mut good, &PLAIN, [(2, 2, &b"."[..]), (2, 2, b".."), (12, 1, b"file")]);
    let with = |at: usize, bytes: &[u8]| {
        let mut block = good.clone();
        block[at..at + bytes.len()].copy_from_slice(bytes);
        entries(&block, &PLAIN).find_map(Result::err)
    };
    assert_eq!(with(4, &[0, 0]).unwrap().what, "impossible rec_len");
    assert_eq!(with(4, &[13, 0]).unwrap().what, "impossible rec_len");
    assert_eq!(with(4, &[4, 4]).unwrap().what, "rec_len crosses the end of the block");
    assert_eq!(with(4, &[0xf8, 3]).unwrap().what, "entry ends too close to the end of the block");
    assert_eq!(with(6, &[9]).unwrap().what, "name_len exceeds the entry");
    assert_eq!(with(30, &[0]).unwrap().what, "entry without a name");
    assert_eq!(with(24, &[0xff, 0xff]).unwrap().what, "inode number is beyond the last");
    assert_eq!(dots(&good, &PLAIN).unwrap(), Dots { this: 2, parent: 2 });
    good[8] = b'x';
    assert!(dots(&good, &PLAIN).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_walked_without_panic(mut block in proptest::collection::vec(any::<u8>(),
        1024), at in 0..1100_usize) {
        for format in [PLAIN, SUMMED] {
            prop_assert!(entries(&block, &format).count() <= 1024 / MIN_REC_LEN + 1);
            let _ = (verify_leaf(&block, &format, Ino(2), FileBlock(0)), dots(&block, &format));
            let _ = remove_at(&mut block, 0..format.leaf_len(), &format, at);
        }
    }

    #[test]
    fn packed_names_come_back(names in proptest::collection::vec("[a-z]{1,40}", 0..18)) {
        let mut block = vec![0xff_u8; 1024];
        pack_leaf(&mut block, &SUMMED, names.iter().map(|n| (9, 1, n.as_bytes())));
        verify_leaf(&block, &SUMMED, Ino(2), FileBlock(0)).unwrap();
        let found: Vec<String> =
            super::tests::names(&block,
                &SUMMED).into_iter().map(|n| String::from_utf8(n).unwrap()).collect();
        prop_assert_eq!(found, names);
    }
}
