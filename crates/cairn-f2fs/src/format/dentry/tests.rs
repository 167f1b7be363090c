use super::*;
use crate::format::hash::name_hash;

#[test]
fn inline_shape_of_the_default_inode() {
    let shape = DentryShape::of(3488);
    assert_eq!((shape.slots, shape.bitmap_bytes), (182, 23));
    assert_eq!(shape.entries_at - shape.bitmap_bytes, 7);
    for tiny in [0, 4, 19, 20] {
        assert!(Dentries::new(&vec![0xff; tiny]).iter().all(|entry| entry.is_err()));
    }
}

#[test]
fn entries_come_and_go() {
    let mut bytes = vec![0; BLOCK_SIZE];
    let mut block = DentriesMut::new(&mut bytes);
    let long = vec![b'n'; 255];
    let names: [&[u8]; 4] = [b".", b"..", b"a name of 20 bytes..", &long];
    for (ino, name) in (3..).zip(names) {
        let slot = block.view().find_room(slots_for(name.len())).unwrap();
        block.insert(slot, name, name_hash(name), Nid(ino), FileKind::Directory);
    }
    let found: Vec<(usize, u32)> =
        block.view().iter().map(|entry| entry.unwrap()).map(|e| (e.slot, e.ino.get())).collect();
    assert_eq!(found, [(0, 3), (1, 4), (2, 5), (5, 6)]);
    assert!(!block.view().is_empty());
    let entry = block.view().find(name_hash(names[2]), |name| name == names[2]).unwrap().unwrap();
    assert_eq!((entry.slot, entry.kind), (2, Some(FileKind::Directory)));
    assert_eq!(block.view().find(1, |name| name == names[2]).unwrap(), None);
    assert_eq!(block.view().find(name_hash(names[2]), |name| name == b"another").unwrap(), None);
    assert_eq!(block.view().find(name_hash(&long), |name| name == long).unwrap().unwrap().slot, 5);
    block.set_target(2, Nid(99), FileKind::Fifo);
    let entry = block.view().next(2).unwrap().unwrap();
    assert_eq!((entry.ino, entry.kind, entry.name), (Nid(99), Some(FileKind::Fifo), names[2]));
    block.remove(2);
    assert_eq!(block.view().find_room(3), Some(2));
    assert_eq!(block.view().find_room(4), Some(37));
    block.remove(5);
    assert!(block.view().is_empty() && !block.view().is_blank());
    assert_eq!(block.view().find_room(212), Some(2));
    assert_eq!(block.view().find_room(213), None);
}

#[test]
fn bad_entries_end_the_walk() {
    let mut bytes = vec![0; BLOCK_SIZE];
    DentriesMut::new(&mut bytes).insert(213, b"x", 1, Nid(3), FileKind::Regular);
    let length = 30 + 213 * 11 + 8;
    bytes[length] = 9;
    assert_eq!(
        Dentries::new(&bytes).iter().collect::<Vec<_>>(),
        [Err(BadName { slot: 213, name_len: 9 })]
    );
    bytes[length] = 0;
    assert_eq!(Dentries::new(&bytes).iter().count(), 0, "an empty name is passed over");
    assert!(Dentries::new(&[0xff; BLOCK_SIZE]).find(1, |name| name == b"x").is_err());
}

#[test]
fn buckets_of_levels() {
    assert_eq!((buckets(0, 0), buckets(3, 0), buckets(3, 2), buckets(31, 0)), (1, 8, 32, 1 << 30));
    assert_eq!((bucket_blocks(30), bucket_blocks(31)), (2, 4));
    assert_eq!(bucket_start(0, 0, 77), 0);
    assert_eq!(bucket_start(1, 0, 77), 2 + 2);
    assert_eq!(bucket_start(2, 0, 77), 2 + 4 + 2);
    assert_eq!(bucket_start(2, 1, 77), 4 + 8 + 2 * (77 % 8));
    let last = bucket_start(62, 63, u32::MAX);
    assert!(last < 1 << 40);
}

#[test]
fn file_types_go_both_ways() {
    assert_eq!((FileKind::of_entry_code(0), FileKind::of_entry_code(8)), (None, None));
    assert!((1..8).all(|number| FileKind::of_entry_code(number).unwrap().entry_code() == number));
}
