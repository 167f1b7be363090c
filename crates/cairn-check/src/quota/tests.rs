//! What is written is read again; damage of any kind ends the walk.

use proptest::prelude::*;

use super::*;

fn read(kind: OwnerKind, bytes: &[u8]) -> QuotaFile {
    let blocks = u32::try_from(bytes.len() / QUOTA_BLOCK).unwrap();
    QuotaFile::read(kind, blocks, &mut |number| {
        let at = number as usize * QUOTA_BLOCK;
        bytes.get(at..at + QUOTA_BLOCK).map(<[u8]>::to_vec)
    })
}

fn usage(inodes: u64) -> Usage {
    Usage { inodes, space: inodes * 4096 }
}

#[test]
fn what_is_written_is_read() {
    let ids = [0, 1, 13, 14, 15, 255, 256, 1000, 65_535, 65_536, 1 << 24, u32::MAX - 1, u32::MAX];
    for count in 0..=ids.len() {
        let counted: BTreeMap<u32, Usage> =
            ids[..count].iter().map(|id| (*id, usage(u64::from(*id) + 1))).collect();
        for kind in OwnerKind::ALL {
            let file = QuotaFile::default().with_usage(&counted);
            let bytes = file.encode(kind);
            assert_eq!(read(kind, &bytes), file);
            assert!(differences(&read(kind, &bytes), &counted).is_empty());
        }
    }
    // Many owners: several blocks of entries, and of each level.
    let counted: BTreeMap<u32, Usage> =
        (0..5000_u32).map(|id| (id.wrapping_mul(0x0101_0003), usage(u64::from(id) + 1))).collect();
    let file = QuotaFile::default().with_usage(&counted);
    assert_eq!(read(OwnerKind::User, &file.encode(OwnerKind::User)), file);
}

#[test]
fn limits_are_kept_and_usage_is_replaced() {
    let mut file = QuotaFile::default().with_usage(&BTreeMap::from([(7, usage(3)), (8, usage(1))]));
    // A hard limit of inodes of 7, in the bytes of its entry.
    let mut bytes = file.encode(OwnerKind::Group);
    let at = bytes.windows(8).position(|bytes| bytes == [7, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    bytes[at + 8] = 99;
    file = read(OwnerKind::Group, &bytes);
    let counted = BTreeMap::from([(9, usage(2))]);
    let found = differences(&file, &counted);
    assert_eq!(found.iter().map(|one| one.id).collect::<Vec<_>>(), [7, 8, 9]);
    assert_eq!((found[0].stored, found[2].stored), (Some(usage(3)), None));
    let new = file.with_usage(&counted);
    assert!(new.entries[&7].has_limits() && !new.entries.contains_key(&8));
    assert!(differences(&new, &counted).is_empty());
    assert_eq!(read(OwnerKind::Group, &new.encode(OwnerKind::Group)), new);
}

#[test]
fn an_entry_without_anything_is_one() {
    let file = QuotaFile::default().with_usage(&BTreeMap::from([(0, Usage::default())]));
    let again = read(OwnerKind::User, &file.encode(OwnerKind::User));
    assert!(again.damage.is_none() && again.entries.contains_key(&0));
}

#[test]
fn damage_is_said_and_the_rest_is_read() {
    let counted: BTreeMap<u32, Usage> = (0..40_u32).map(|id| (id, usage(1))).collect();
    let sound = QuotaFile::default().with_usage(&counted).encode(OwnerKind::User);
    let with = |at: usize, byte: u8| {
        let mut bytes = sound.clone();
        bytes[at] = byte;
        read(OwnerKind::User, &bytes)
    };
    for (at, byte, word) in [
        (0, 0, "dqh_magic"),
        (4, 0, "dqh_version"),
        (21, 9, "dqi_blocks"),
        (24, 200, "dqi_free_blk"),
        (28, 200, "dqi_free_entry"),
        (1024, 200, "refers to block 200"),
        (1024, 1, "refers to block 1"),
        // Behind three further blocks of the tree.
        (5 * 1024 + 16, 77, "has no entry of 0"),
    ] {
        let file = with(at, byte);
        let why = file.damage.clone().unwrap_or_default();
        assert!(why.contains(word), "byte {at}: {why:?}");
        assert!(file.entries.len() == if at == 1024 { 0 } else { 40 - usize::from(at > 1024) });
    }
    // A limit in a slot without an entry: the last one of the first block of entries is in use.
    let entry = (0..sound.len()).rfind(|at| sound[*at..].starts_with(&[39, 0, 0, 0, 0, 0, 0, 0]));
    let file = with(entry.unwrap() + 72 + 8, 9);
    assert!(file.damage.unwrap_or_default().contains("references lead to"));
    assert_eq!(file.entries.len(), 40);
    assert!(read(OwnerKind::User, &[]).damage.is_some());
    assert!(read(OwnerKind::User, &sound[..1024]).damage.is_some());
    assert!(read(OwnerKind::Project, &sound).damage.is_some());
}

proptest! {
    /// Whatever the bytes are, the walk ends, and what it finds can be written.
    #[test]
    fn any_bytes_are_read(
        changes in proptest::collection::vec((0..16_384_usize, any::<u8>()), 0..40),
    ) {
        let counted: BTreeMap<u32, Usage> = (0..90_u32).map(|id| (id << 18, usage(1))).collect();
        let mut bytes = QuotaFile::default().with_usage(&counted).encode(OwnerKind::User);
        let len = bytes.len();
        for (at, byte) in changes {
            // Numbers of blocks that are there lead further than others.
            bytes[at % len] = byte % 24;
        }
        let file = read(OwnerKind::User, &bytes);
        let again = file.with_usage(&counted);
        prop_assert_eq!(read(OwnerKind::User, &again.encode(OwnerKind::User)), again);
    }
}
