//! Positions of `readdir`: no entry is lost or repeated, whatever changes between two calls.

use std::collections::BTreeSet;

use super::*;
use crate::dir::hash::LEGACY;

/// Lists `dir` in pieces and runs `between` after each. Every name in `stable` must occur exactly
/// once.
fn list_while(
    dir: &ListedDir,
    stable: &BTreeSet<Vec<u8>>,
    piece: usize,
    mut between: impl FnMut(&ListedDir, usize),
) {
    let mut seen = Vec::new();
    let mut position = 0;
    for call in 0.. {
        let before = position;
        let mut left = piece;
        readdir(dir, position, &mut |entry| {
            position = entry.next;
            seen.push(entry.name.into_bytes());
            left -= 1;
            left > 0
        })
        .unwrap();
        if position == before {
            break;
        }
        between(dir, call);
    }
    assert_eq!(seen[..2], [b".".to_vec(), b"..".to_vec()]);
    let seen: Vec<_> = seen.into_iter().filter(|name| stable.contains(name)).collect();
    let once: BTreeSet<_> = seen.iter().cloned().collect();
    assert_eq!(seen.len(), once.len(), "a name came twice");
    assert_eq!(&once, stable, "a name was lost");
}

#[test]
fn a_directory_may_change_while_it_is_listed() {
    for (dir_index, start) in [(true, 20_u32), (true, 400), (false, 400)] {
        for piece in [1, 3, 7] {
            let settings = DirSettings { dir_index, ..small_blocks() };
            let dir = ListedDir::in_memory(settings, 3000);
            let stable: BTreeSet<_> =
                (0..start).map(|n| format!("stable {n}").into_bytes()).collect();
            for (n, name) in stable.iter().enumerate() {
                dir.add(name, 11);
                dir.add(format!("leaving {n}").as_bytes(), 11);
            }
            let was_indexed = dir.indexed();
            list_while(&dir, &stable, piece, |dir, call| {
                for n in 0..5 {
                    if call < 200 {
                        dir.add(format!("new {call} {n}").as_bytes(), 11);
                    }
                }
                // Later calls have removed it already.
                let _ = remove(dir, &dir.handle(), format!("leaving {call}").as_bytes());
            });
            // The smallest directory became indexed meanwhile.
            assert_eq!((was_indexed, dir.indexed()), (dir_index && start > 20, dir_index));
        }
    }
}

/// One step of the legacy hash: the state is its last two words.
fn step((newer, older): (u32, u32), byte: u8) -> (u32, u32) {
    let next = older
        .wrapping_add(newer ^ i32::from(byte.cast_signed()).cast_unsigned().wrapping_mul(FACTOR));
    (if next >> 31 == 1 { next.wrapping_sub(0x7fff_ffff) } else { next }, newer)
}

const FACTOR: u32 = 7_152_373;

/// The byte of a name that takes a state to a hash, if there is one.
fn last_byte((newer, older): (u32, u32), hash: u32) -> Option<u8> {
    // Newton's iteration gives the inverse modulo 2^32.
    let inverse =
        (0..5).fold(FACTOR, |x, _| x.wrapping_mul(2_u32.wrapping_sub(FACTOR.wrapping_mul(x))));
    [hash, hash + 0x7fff_ffff].into_iter().find_map(|sum| {
        let value = (sum.wrapping_sub(older) ^ newer).wrapping_mul(inverse).cast_signed();
        let byte = i8::try_from(value).ok()?.cast_unsigned();
        (step((newer, older), byte).0 == hash && !matches!(byte, 0 | b'/')).then_some(byte)
    })
}

/// Names of 205 bytes with equal legacy hashes.
fn colliding(count: usize) -> Vec<Vec<u8>> {
    let start =
        [b'p'; 200].iter().fold((0x12a3_fe2d, 0x37ab_e8f9), |state, byte| step(state, *byte));
    let letters = || b'0'..=0xfe;
    let mut names = Vec::new();
    for a in letters() {
        for b in letters() {
            let outer = step(step(start, a), b);
            for (c, d) in letters().flat_map(|c| letters().map(move |d| (c, d))) {
                let state = step(step(outer, c), d);
                if let Some(last) = last_byte(state, 0x1234_5678) {
                    names.push([&[b'p'; 200][..], &[a, b, c, d, last]].concat());
                    if names.len() == count {
                        return names;
                    }
                }
            }
        }
    }
    panic!("only {} names", names.len());
}

#[test]
fn names_of_equal_hash_span_leaves() {
    let mut settings = small_blocks();
    settings.hash.default_version = LEGACY;
    let names = colliding(8);
    assert!(
        names.iter().all(|name| settings.hash(LEGACY, name).unwrap().major == 0x1234_5678 << 1)
    );
    let dir = ListedDir::in_memory(settings, 3000);
    for (n, name) in names.iter().enumerate() {
        dir.add(name, 11);
        for other in 0..20 {
            dir.add(format!("{n} {other}").as_bytes(), 11);
        }
    }
    assert!(dir.indexed());
    dir.audit();
    let root = read_root(&dir, &settings).unwrap().0;
    let pairs = Node::parse(&root.image, NodeKind::Root, &settings.format).unwrap().pairs();
    assert!(
        pairs.iter().any(|(hash, _)| *hash == (0x1234_5678 << 1 | 1)),
        "no leaf continues another"
    );
    assert!(names.iter().all(|name| lookup(&dir, name).unwrap().is_some()));
    assert!(lookup(&dir, &colliding(9)[8]).unwrap().is_none());
    let stable: BTreeSet<_> = names.iter().skip(1).cloned().collect();
    list_while(&dir, &stable, 1, |dir, call| {
        dir.add(format!("more {call}").as_bytes(), 11);
    });
    for name in &names {
        remove(&dir, &dir.handle(), name).unwrap();
        assert!(lookup(&dir, name).unwrap().is_none());
    }
}

/// A directory of 400 names whose index has other hashes than those that a reader computes.
fn with_other_hashes() -> (ListedDir, BTreeSet<Vec<u8>>) {
    let mut dir = ListedDir::in_memory(small_blocks(), 100);
    let names: BTreeSet<_> = (0..400).map(|n| format!("name {n}").into_bytes()).collect();
    for name in &names {
        dir.add(name, 11);
    }
    assert!(dir.indexed());
    dir.settings.hash.seed = [5, 6, 7, 8];
    (dir, names)
}

#[test]
fn every_name_is_listed_and_the_damage_told_where_hashes_contradict_the_index() {
    let (dir, names) = with_other_hashes();
    let mut seen = BTreeSet::new();
    let error = readdir(&dir, 0, &mut |entry| {
        seen.insert(entry.name.into_bytes());
        true
    })
    .unwrap_err();
    assert!(error.to_string().contains("hash of a name is not one of its block's"), "{error}");
    assert!(names.is_subset(&seen), "{} of {} names", seen.len(), names.len());
    // A search sees the damage unless the first name of a leaf happens to have one of its hashes.
    // Then it finds a name wherever it is, and one that is nowhere cannot be told from a lost one.
    let found = names.iter().filter(|name| lookup(&dir, name).is_ok_and(|it| it.is_some())).count();
    assert!(found > names.len() / 2, "{found} of {} names", names.len());
    let is_refused = |n: &u32| lookup(&dir, format!("none {n}").as_bytes()).is_err();
    let refused = (0..100).filter(is_refused).count();
    assert!(refused > 50, "{refused} of 100 searches");
}

#[test]
fn folded_names_are_listed_and_found_in_all_leaves() {
    let (mut dir, names) = with_other_hashes();
    dir.folded = true;
    for piece in [3, 1000] {
        let listed: Vec<_> = dir.names(piece).into_iter().map(|(name, _)| name).collect();
        assert_eq!(listed.len(), names.len());
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
    }
    for name in &names {
        assert_eq!(lookup(&dir, name).unwrap().unwrap().ino, Ino(11));
    }
    assert!(lookup(&dir, b"none").unwrap().is_none());
}
