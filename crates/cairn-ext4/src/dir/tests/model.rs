//! Compares directories with a map from names to inodes.

use std::collections::BTreeMap;

use cairn_base::checksum::crc32c;
use proptest::prelude::*;

use super::*;
use crate::dir::hash::{LEGACY, TEA};

/// A different name for every number, of 1 to 255 bytes.
fn name(number: u32) -> Vec<u8> {
    let digest = crc32c(number, b"name");
    let length =
        if digest.is_multiple_of(50) { digest as usize % 255 } else { digest as usize % 24 };
    let mut name = format!("{number:x}").into_bytes();
    while name.len() < length {
        name.push(b'A' + (name.len() % 26) as u8);
    }
    name
}

fn check(dir: &ListedDir, model: &BTreeMap<Vec<u8>, u64>) {
    dir.audit();
    let mut listed = dir.names(1000);
    listed.sort();
    let expected: Vec<_> = model.iter().map(|(name, ino)| (name.clone(), *ino)).collect();
    assert_eq!(listed, expected);
    for (name, ino) in model {
        assert_eq!(lookup(dir, name).unwrap().map(|found| found.ino), Some(Ino(*ino)));
    }
    assert_eq!(is_empty(dir).unwrap(), model.is_empty());
}

/// Applies changes derived from `seed`; `growth` of eight are additions.
fn run(settings: DirSettings, seed: u32, steps: u32, growth: u32) -> ListedDir {
    let dir = ListedDir::in_memory(settings, 4000);
    let mut model = BTreeMap::new();
    for step in 0..steps {
        let dice = crc32c(seed ^ step, b"dice");
        let candidate = name(dice % (steps * 2));
        let ino = u64::from(step + 11);
        match (model.contains_key(&candidate), dice >> 29 < growth) {
            (false, true) => {
                dir.add(&candidate, ino);
                model.insert(candidate, ino);
            }
            (true, true) => {
                let old = set_target(&dir, &dir.handle(), &candidate, Ino(ino), FileKind::Socket)
                    .unwrap();
                assert_eq!(Some(old.ino.get()), model.insert(candidate.clone(), ino));
                let kind = settings.format.filetype.then_some(FileKind::Socket);
                assert_eq!(lookup(&dir, &candidate).unwrap().unwrap().kind, kind);
            }
            (present, false) => {
                // Removes this name, or the next one that exists.
                let victim = if present {
                    Some(candidate)
                } else {
                    model.range(candidate..).next().map(|e| e.0.clone())
                };
                let Some(victim) = victim else { continue };
                let found = remove(&dir, &dir.handle(), &victim).unwrap();
                assert_eq!(Some(found.ino.get()), model.remove(&victim));
                assert!(lookup(&dir, &victim).unwrap().is_none());
                assert!(remove(&dir, &dir.handle(), &victim).is_err());
            }
        }
    }
    check(&dir, &model);
    dir
}

#[test]
fn twenty_thousand_names_in_small_blocks() {
    let dir = run(small_blocks(), 1, 20_000, 7);
    assert!(dir.indexed());
    assert_eq!(read_root(&dir, &dir.settings).unwrap().1.indirect_levels, 1, "the root overflowed");
}

#[test]
fn every_hash_with_and_without_features() {
    for default_version in [LEGACY, HALF_MD4, TEA] {
        for (filetype, seed) in [(true, None), (false, Some(9)), (false, None)] {
            let mut settings = small_blocks();
            settings.hash.default_version = default_version;
            settings.format = DirFormat { filetype, seed: InodeSeed(seed), ..settings.format };
            run(settings, 7, 3000, 6);
        }
    }
}

#[test]
fn linear_directories_stay_linear_without_dir_index() {
    let dir = run(DirSettings { dir_index: false, ..small_blocks() }, 3, 2000, 6);
    assert!(!dir.indexed() && dir.count() > 10);
}

#[test]
fn an_index_flag_without_an_index_is_cleared() {
    let dir = run(small_blocks(), 4, 300, 7);
    assert!(dir.indexed());
    let mut plain = small_blocks();
    plain.dir_index = false;
    plain.format.seed = InodeSeed(None);
    let dir = ListedDir { settings: plain, ..dir };
    dir.add(b"late", 99);
    assert!(!dir.indexed());
    assert_eq!(lookup(&dir, b"late").unwrap().unwrap().ino, Ino(99));
}

#[test]
fn an_emptied_directory_is_empty_and_can_be_filled_again() {
    let dir = ListedDir::in_memory(small_blocks(), 4000);
    for round in 0..2 {
        for number in 0..2000 {
            dir.add(&name(number), 11);
        }
        assert!(!is_empty(&dir).unwrap());
        for number in 0..2000 {
            remove(&dir, &dir.handle(), &name(number)).unwrap();
        }
        assert!(is_empty(&dir).unwrap(), "round {round}");
        dir.audit();
    }
}

#[test]
fn dots_are_found_and_the_parent_changes() {
    for names in [0, 500] {
        let dir = ListedDir::in_memory(small_blocks(), 100);
        for number in 0..names {
            dir.add(&name(number), 11);
        }
        assert_eq!(lookup(&dir, b".").unwrap().unwrap().ino, Ino(12));
        assert_eq!(
            set_target(&dir, &dir.handle(), b"..", Ino(77), FileKind::Directory).unwrap().ino,
            Ino(2)
        );
        assert_eq!(lookup(&dir, b"..").unwrap().unwrap().ino, Ino(77));
        assert!(remove(&dir, &dir.handle(), b"..").is_err());
        // The checksums are right when the blocks are read again.
        dir.cache.write_back().unwrap();
        let cache = BufferCache::new(dir.cache.device().clone(), 1024, Budget::new(1 << 30));
        let dir = ListedDir { cache, ..dir };
        assert_eq!(lookup(&dir, b"..").unwrap().unwrap().ino, Ino(77));
        assert_eq!(dir.names(100).len(), names as usize);
        assert_eq!(is_empty(&dir).unwrap(), names == 0);
    }
}

#[test]
fn names_of_directories_themselves_and_names_twice_are_refused() {
    let dir = ListedDir::in_memory(small_blocks(), 10);
    for dots in [Name::DOT, Name::DOT_DOT] {
        assert!(add(&dir, &dir.handle(), dots, Ino(11), FileKind::Regular).is_err());
    }
    dir.add(&[b'x'; 255], 11);
    assert!(matches!(
        add(&dir, &dir.handle(), named(&[b'x'; 255]), Ino(11), FileKind::Regular),
        Err(Error::Vfs(cairn_vfs::Error::Exists))
    ));
    assert!(lookup(&dir, &[b'x'; 256]).unwrap().is_none());
}

/// Fills a directory of long names in blocks of 1 KiB until the index is full. Returns the names
/// that fit.
fn fill(settings: DirSettings, blocks: u64, limit: u32) -> (ListedDir, Vec<Vec<u8>>) {
    let dir = ListedDir::in_memory(settings, blocks);
    let mut names = Vec::new();
    for number in 0..limit {
        let mut name = format!("{number:08}").into_bytes();
        name.resize(255, b'.');
        match add(&dir, &dir.handle(), named(&name), Ino(11), FileKind::Regular) {
            Ok(()) => names.push(name),
            Err(error) if is_no_space(&error) => return (dir, names),
            Err(error) => panic!("{error}"),
        }
    }
    (dir, names)
}

#[test]
fn a_full_index_says_no_space_and_large_dir_goes_deeper() {
    let (dir, names) = fill(small_blocks(), 60_000, 100_000);
    dir.audit();
    assert!(names.len() > 20_000 && names.len() < 60_000, "{} names", names.len());
    assert!(names.iter().step_by(97).all(|name| lookup(&dir, name).unwrap().is_some()));
    let large = DirSettings { large_dir: true, ..small_blocks() };
    let (dir, more) = fill(large, 100_000, names.len() as u32 + 15_000);
    dir.audit();
    assert_eq!(more.len(), names.len() + 15_000);
    assert_eq!(read_root(&dir, &dir.settings).unwrap().1.indirect_levels, 2);
    assert_eq!(dir.names(10_000).len(), more.len());
}

#[test]
fn a_full_volume_changes_nothing() {
    for blocks in 1..12 {
        let (dir, names) = fill(small_blocks(), blocks, 1000);
        assert!(names.len() < 100);
        dir.audit();
        let mut listed: Vec<_> = dir.names(7).into_iter().map(|(name, _)| name).collect();
        listed.sort();
        assert_eq!(listed, names);
        assert!(names.iter().all(|name| lookup(&dir, name).unwrap().is_some()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_mix_of_changes(seed: u32, steps in 1..1200_u32, growth in 3..8_u32, version in 0..3_u8,
        dir_index: bool) {
        let mut settings = DirSettings { dir_index, ..small_blocks() };
        settings.hash.default_version = version;
        run(settings, seed, steps, growth);
    }

    /// Damaged bytes give errors, and never panics or endless walks.
    #[test]
    fn damage_is_survived(damage in proptest::collection::vec((0..40_u64, 0..1024_usize,
        any::<u8>()), 1..20)) {
        let mut settings = small_blocks();
        settings.format.seed = InodeSeed(None);
        let dir = ListedDir::in_memory(settings, 60);
        for number in 0..900 {
            dir.add(&name(number), 11);
        }
        for (block, offset, byte) in damage {
            let buffer = dir.get(FileBlock(block % dir.count())).unwrap();
            let handle = dir.handle();
            handle.write(&buffer).unwrap()[if block < 8 { offset % 64 } else { offset }] = byte;
        }
        let mut count = 0_u32;
        let _ = readdir(&dir, 0, &mut |_| { count += 1; true });
        prop_assert!(count < 1_000_000);
        let _ = is_empty(&dir);
        for number in 0..1000 {
            let _ = lookup(&dir, &name(number));
            let _ = add(&dir, &dir.handle(), named(&name(number + 900)), Ino(11),
                FileKind::Regular);
            let _ = remove(&dir, &dir.handle(), &name(number));
        }
    }
}
