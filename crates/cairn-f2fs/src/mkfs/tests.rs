use std::collections::BTreeMap;
use std::path::Path;

use cairn_base::runtime::threads::Threads;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_testkit::judge::{assert_f2fs_clean, dump_f2fs, fsck_f2fs, mkfs_f2fs, sload_f2fs};
use tempfile::NamedTempFile;
use uuid::Uuid;

use super::*;
use crate::format::checkpoint::{Checkpoint, CheckpointFlags};
use crate::format::layout::Side;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{BlockAddr, SegNo, Superblock};

const UUID: &str = "11111111-2222-3333-4444-555555555555";
const TIME: i64 = 1_700_000_000;
const ALL: &str =
    "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,lost_found,sb_checksum";

/// A volume made by Cairn in a new file.
pub(super) fn made(size: u64, options: &MkfsOptions) -> Result<NamedTempFile, Error> {
    let file = NamedTempFile::new().expect("an image file");
    remake(file.path(), size, options)?;
    Ok(file)
}

fn remake(image: &Path, size: u64, options: &MkfsOptions) -> Result<CreatedVolume, Error> {
    let create = OpenOptions::create(size);
    let device = FileDevice::open(image, create).expect("the image opens");
    make(Arc::new(device), options, &*Threads::new())
}

/// Superblock and checkpoint of an image, decoded and checked.
pub(super) struct Opened {
    image: std::fs::File,
    pub superblock: Superblock,
    pub layout: Layout,
    pub checkpoint: Checkpoint,
}

impl Opened {
    pub(super) fn new(image: &Path) -> Self {
        let file = std::fs::File::open(image).unwrap();
        let superblock = Superblock::decode(&read(&file, 0, 1)).unwrap();
        assert_eq!(Superblock::decode(&read(&file, 1, 1)).unwrap(), superblock, "the backup");
        let layout = Layout::new(&superblock, file.metadata().unwrap().len()).unwrap();
        let checkpoint = checkpoint(&file, &layout, Side::First);
        Self { image: file, superblock, layout, checkpoint }
    }

    fn block(&self, at: u64) -> Vec<u8> {
        read(&self.image, at, 1)
    }
}

fn read(file: &std::fs::File, block: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * BLOCK_SIZE];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, block * BLOCK_BYTES).unwrap();
    bytes
}

fn checkpoint(file: &std::fs::File, layout: &Layout, side: Side) -> Checkpoint {
    let start = layout.pack_start(side).get();
    let checkpoint =
        Checkpoint::decode(&read(file, start, 1 + layout.cp_payload as usize), start, layout)
            .unwrap();
    let last = read(file, start + u64::from(checkpoint.pack_total_blocks) - 1, 1);
    assert_eq!(last, read(file, start, 1), "the last block of {side:?} pack");
    checkpoint
}

/// The fields that must be equal in a volume of Cairn and one of mkfs.f2fs.
pub(super) fn fields(opened: &Opened) -> Vec<(&'static str, u64)> {
    let (superblock, checkpoint) = (&opened.superblock, &opened.checkpoint);
    let logs = Log::ALL.map(|log| checkpoint.log(log));
    let mut fields = vec![
        ("block_count", superblock.block_count),
        ("user_block_count", checkpoint.user_block_count),
        ("valid_block_count", checkpoint.valid_block_count),
    ];
    fields.extend(
        [
            ("log_sectorsize", superblock.log_sectorsize),
            ("log_sectors_per_block", superblock.log_sectors_per_block),
            ("segs_per_sec", superblock.segs_per_sec),
            ("secs_per_zone", superblock.secs_per_zone),
            ("checksum_offset", superblock.checksum_offset),
            ("section_count", superblock.section_count),
            ("segment_count", superblock.segment_count),
            ("segment_count_sit", superblock.segment_count_sit),
            ("segment_count_nat", superblock.segment_count_nat),
            ("segment_count_ssa", superblock.segment_count_ssa),
            ("segment_count_main", superblock.segment_count_main),
            ("segment0_blkaddr", superblock.segment0_blkaddr.get()),
            ("cp_blkaddr", superblock.cp_blkaddr.get()),
            ("sit_blkaddr", superblock.sit_blkaddr.get()),
            ("nat_blkaddr", superblock.nat_blkaddr.get()),
            ("ssa_blkaddr", superblock.ssa_blkaddr.get()),
            ("main_blkaddr", superblock.main_blkaddr.get()),
            ("cp_payload", superblock.cp_payload),
            ("feature", superblock.features.bits()),
            ("rsvd_segment_count", checkpoint.rsvd_segment_count),
            ("overprov_segment_count", checkpoint.overprov_segment_count),
            ("free_segment_count", checkpoint.free_segment_count),
            ("ckpt_flags", checkpoint.flags.bits()),
            ("cp_pack_total_block_count", checkpoint.pack_total_blocks),
            ("cp_pack_start_sum", checkpoint.pack_start_sum),
            ("valid_node_count", checkpoint.valid_node_count),
            ("valid_inode_count", checkpoint.valid_inode_count),
            ("next_free_nid", checkpoint.next_free_nid.get()),
            ("cp checksum_offset", checkpoint.checksum_offset),
        ]
        .map(|(name, value)| (name, value.into())),
    );
    fields.extend(logs.map(|log| ("segno", log.segno.get().into())));
    fields.extend(logs.map(|log| ("blkoff", log.blkoff.into())));
    fields
}

fn options(features: &str) -> MkfsOptions {
    MkfsOptions {
        label: Some("lábel".into()),
        uuid: Some(Uuid::parse_str(UUID).unwrap()),
        features: vec![features.into()],
        time: Some(TIME),
        ..MkfsOptions::default()
    }
}

/// What `-g android` of mkfs.f2fs asks for.
const ANDROID: &str = "encrypt,verity,quota,extra_attr,project_quota";

fn theirs(size: u64, features: &str, more: &[&str]) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    let time = TIME.to_string();
    let mut args = vec!["-U", UUID, "-T", &time, "-l", "lábel"];
    if !features.is_empty() && !more.contains(&"-g") {
        args.extend(["-O", features]);
    }
    args.extend(more);
    mkfs_f2fs(file.path(), size, &args);
    file
}

/// All blocks that are not zeros.
fn contents(image: &Path) -> BTreeMap<u64, Vec<u8>> {
    let bytes = std::fs::read(image).unwrap();
    let blocks = (0..).zip(bytes.chunks_exact(BLOCK_SIZE));
    blocks
        .filter(|(_, block)| block.iter().any(|byte| *byte != 0))
        .map(|(at, block)| (at, block.to_vec()))
        .collect()
}

#[test]
fn every_block_is_that_of_mkfs_f2fs() {
    let plain = ["", "lost_found", "sb_checksum", "extra_attr", "extra_attr,inode_checksum", ALL];
    let plain = plain.map(|features| (features, None, &[][..]));
    let all_with_quota = format!("{ALL},quota,project_quota");
    // The quota files of mkfs.f2fs lead to owner 0 whatever the root's is, and with projects alone
    // a footer names another next block.
    let further: [(&str, Option<&str>, &[&str]); 7] = [
        ("quota", None, &[]),
        (&all_with_quota, None, &[]),
        ("encrypt,verity", None, &[]),
        ("casefold", Some("utf8"), &["-C", "utf8"]),
        ("extra_attr,casefold", Some("utf8:strict"), &["-C", "utf8:strict"]),
        (ANDROID, None, &["-g", "android"]),
        (ANDROID, Some("utf8:strict"), &["-g", "android", "-C", "utf8:strict"]),
    ];
    for (features, casefold, more) in plain.into_iter().chain(further) {
        let size = 128 << 20;
        let casefold = casefold.map(str::to_owned);
        let wanted = MkfsOptions { casefold, ..options(features) };
        let (ours, theirs) = (made(size, &wanted).unwrap(), theirs(size, features, more));
        let (opened, other) = (Opened::new(ours.path()), Opened::new(theirs.path()));
        assert_eq!(fields(&opened), fields(&other), "{features}");
        let mut same = other.superblock.clone();
        // The maker's version, and the checksum over it.
        (same.version, same.init_version) =
            (opened.superblock.version, opened.superblock.init_version);
        same.crc = opened.superblock.crc;
        assert_eq!(opened.superblock, same, "{features}");
        let (mut left, mut right) = (contents(ours.path()), contents(theirs.path()));
        let (layout, pack) = (&opened.layout, opened.checkpoint.pack_total_blocks);
        // Compared above.
        let packs = [Side::First, Side::Second].map(|side| layout.pack_start(side).get());
        for at in [
            0,
            1,
            packs[0],
            packs[0] + u64::from(pack) - 1,
            packs[1],
            packs[1] + u64::from(pack) - 1,
        ] {
            assert!(
                left.remove(&at).is_some() && right.remove(&at).is_some(),
                "{features}: block {at}"
            );
        }
        // The stamp of nat_bits is the checkpoint's.
        let nat_bits = packs[0] + 511;
        for blocks in [&mut left, &mut right] {
            blocks.get_mut(&nat_bits).unwrap()[..8].fill(0);
        }
        // Our second pack is whole.
        left.retain(|at, _| !(packs[1]..packs[1] + 512).contains(at));
        assert_eq!(left.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>(), "{features}");
        let different: Vec<_> =
            left.iter().filter(|(at, block)| right[at] != **block).map(|(at, _)| at).collect();
        assert!(different.is_empty(), "{features}: blocks {different:?} differ");
    }
}

#[test]
fn fsck_is_content_and_dump_agrees() {
    let counted = format!("{ALL},{ANDROID},casefold");
    let shapes: [(u64, u32, u32, &str, bool); 7] = [
        (100 << 20, 2, 1, &counted, false),
        (64 << 20, 1, 1, "", false),
        (100 << 20, 1, 1, ALL, false),
        (1 << 30, 4, 2, ALL, false),
        (4 << 30, 16, 1, "", false),
        (256 << 30, 1, 1, "extra_attr,inode_crtime", false),
        (256 << 30, 1, 1, "", true),
    ];
    for (size, segments_per_section, sections_per_zone, features, large_nat_bitmap) in shapes {
        let wanted = options(features);
        let options =
            MkfsOptions { segments_per_section, sections_per_zone, large_nat_bitmap, ..wanted };
        let image = made(size, &options).unwrap();
        assert_f2fs_clean(image.path());
        let dumped = dump_f2fs(image.path());
        let Opened { superblock, checkpoint, .. } = Opened::new(image.path());
        assert_eq!(dumped["segment_count_main"], superblock.segment_count_main.into());
        assert_eq!(dumped["user_block_count"], checkpoint.user_block_count);
        assert_eq!(dumped["cur_data_segno[1]"], checkpoint.log(Log::WarmData).segno.get().into());
        assert_eq!(dumped["secs_per_zone"], sections_per_zone.into());
    }
}

#[test]
fn sload_fills_what_we_make() {
    let tree = tempfile::tempdir().unwrap();
    std::fs::write(tree.path().join("file"), vec![7; 3 << 20]).unwrap();
    std::fs::create_dir_all(tree.path().join("a/b/c")).unwrap();
    for features in ["", "extra_attr,inode_checksum,inode_crtime,lost_found,sb_checksum"] {
        let image = made(128 << 20, &options(features)).unwrap();
        sload_f2fs(image.path(), tree.path());
        assert_f2fs_clean(image.path());
        assert!(dump_f2fs(image.path())["valid_inode_count"] >= 5);
    }
}

#[test]
fn the_second_pack_opens_alone() {
    let image = made(128 << 20, &options(ALL)).unwrap();
    let Opened { layout, .. } = Opened::new(image.path());
    let file = std::fs::OpenOptions::new().write(true).open(image.path()).unwrap();
    let first = layout.pack_start(Side::First).get() * BLOCK_BYTES;
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; BLOCK_SIZE], first).unwrap();
    // fsck reports that the first pack's checksum is wrong, and nothing else.
    let text = fsck_f2fs(image.path()).output;
    assert_eq!(text.matches("Invalid CP").count(), 1, "{text}");
    assert!(
        !["[ASSERT]", "[FIX]", "[Fail]", "Corrupted"].iter().any(|alarm| text.contains(alarm)),
        "{text}"
    );
    assert_eq!(text.matches("[Ok..]").count(), 10, "{text}");
}

#[test]
fn reproducible_or_unique() {
    let size = 64 << 20;
    let again = || std::fs::read(made(size, &options(ALL)).unwrap().path()).unwrap();
    assert!(again() == again(), "uuid and time are given: the same bytes");
    let fresh = || Opened::new(made(size, &MkfsOptions::default()).unwrap().path());
    let (one, other) = (fresh(), fresh());
    assert_ne!(one.superblock.uuid, other.superblock.uuid);
    assert_ne!(one.checkpoint.version, other.checkpoint.version);
    assert!((1..1 << 31).contains(&one.checkpoint.version));
}

/// The chain of an older volume begins where the new one's will, with nodes that could be the new
/// volume's.
#[test]
fn old_nodes_are_gone() {
    let image = NamedTempFile::new().unwrap();
    for wanted in [MkfsOptions::default(), options("")] {
        std::fs::write(image.path(), vec![0xa5; 64 << 20]).unwrap();
        remake(image.path(), 64 << 20, &wanted).unwrap();
        let opened = Opened::new(image.path());
        let position = opened.checkpoint.log(Log::WarmNode);
        let head = opened.layout.address(position.segno, position.blkoff);
        assert_eq!(opened.block(head.pba().get()), vec![0; BLOCK_SIZE]);
        assert_f2fs_clean(image.path());
    }
    let last = BlockAddr(Opened::new(image.path()).layout.main + 512 * 20);
    assert_eq!(
        read(&std::fs::File::open(image.path()).unwrap(), last.pba().get(), 1),
        vec![0; BLOCK_SIZE]
    );
}

#[test]
fn options_that_cannot_be_are_refused() {
    let size = 64 << 20;
    let refused = |options: MkfsOptions| made(size, &options).map(|_| ()).unwrap_err().to_string();
    let default = MkfsOptions::default;
    assert!(
        refused(MkfsOptions { overprovision: Some(100.0), ..default() }).contains("overprovision")
    );
    assert!(refused(MkfsOptions { segments_per_section: 0, ..default() }).contains("section"));
    assert!(refused(MkfsOptions { label: Some("x".repeat(512)), ..default() }).contains("label"));
    assert!(refused(MkfsOptions { size: Some(1 << 30), ..default() }).contains("device"));
    assert!(refused(MkfsOptions { size: Some(16 << 20), ..default() }).contains("at least"));
    let compression = vec!["extra_attr,compression".into()];
    assert!(refused(MkfsOptions { features: compression, ..default() }).contains("compression"));
    assert!(refused(MkfsOptions { casefold: Some("ascii".into()), ..default() }).contains("utf8"));
}

#[test]
fn owner_and_size_are_as_asked() {
    let wanted =
        MkfsOptions { root_owner: Some((1000, 100)), size: Some(100 << 20), ..options(ALL) };
    let image = made(200 << 20, &wanted).unwrap();
    assert_f2fs_clean(image.path());
    let opened = Opened::new(image.path());
    assert_eq!(opened.superblock.block_count, 100 << 8);
    assert_eq!(opened.superblock.label(), "lábel");
    let root = opened.block(opened.layout.address(SegNo(0), 0).pba().get());
    let root =
        crate::format::Inode::decode(&root, crate::format::Nid::ROOT, opened.layout.features)
            .unwrap();
    assert_eq!((root.uid, root.gid, root.mtime.seconds), (1000, 100, TIME));
    assert!(opened.checkpoint.flags.contains(CheckpointFlags::UMOUNT | CheckpointFlags::NAT_BITS));
}
