//! The superblock: fields that say something of the rest of the volume, its totals, its backups.

use std::sync::atomic::Ordering::Relaxed;

use cairn_base::Pba;
use cairn_check::{Finding, Place, Value};

use super::kinds;
use super::reserved;
use super::state::State;
use crate::dir::hash::HALF_MD4;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::superblock::{RawSuperblock, SIZE, STATE_VALID, Superblock};
use crate::info;

/// The largest size of descriptors that programs accept, also where nobody uses it.
const MOST_DESC: u16 = 1024;

/// Fields that others depend on.
pub(super) fn check_fields(state: &State) {
    let (raw, layout) = (&state.superblock.raw, &state.layout);
    let features = &layout.features;
    let wrong = |field: &'static str, stored: u64, computed: u64| {
        state.differ(&kinds::SUPERBLOCK_FIELD, Place::field(field), stored, computed);
    };
    let stored = state.superblock.reserved_blocks();
    if stored > layout.blocks_count / 2 {
        wrong("s_r_blocks_count", stored, reserved::right(state, stored));
    }
    if layout.reserved_gdt_blocks > 0 && !features.compat(Compat::RESIZE_INODE) {
        wrong("s_reserved_gdt_blocks", layout.reserved_gdt_blocks.into(), 0);
    }
    let version = raw.s_def_hash_version;
    if state.hash.hash(version, b"").is_none() {
        // Directories keep the one of their index.
        wrong("s_def_hash_version", version.into(), HALF_MD4.into());
    }
    let room = layout.inode_size.saturating_sub(128);
    for (field, stored) in [
        ("s_min_extra_isize", raw.s_min_extra_isize.get()),
        ("s_want_extra_isize", raw.s_want_extra_isize.get()),
    ] {
        let fits = (4..=room).contains(&stored.into()) && stored.is_multiple_of(4);
        if room > 0 && stored != 0 && !fits {
            wrong(field, stored.into(), layout.want_extra_isize.into());
        }
    }
    let size = raw.s_desc_size.get();
    let is_used = features.incompat(Incompat::BITS_64);
    if !is_used && size != 0 && (!size.is_power_of_two() || size > MOST_DESC) {
        wrong("s_desc_size", size.into(), 0);
    }
    let sizes = (raw.s_log_cluster_size.get(), raw.s_log_block_size.get());
    if !features.ro_compat(RoCompat::BIGALLOC) && sizes.0 != sizes.1 {
        wrong("s_log_cluster_size", sizes.0.into(), sizes.1.into());
    }
    let (stored, right) = (raw.s_clusters_per_group.get(), layout.clusters_per_group);
    if stored != right {
        wrong("s_clusters_per_group", stored.into(), right.into());
    }
    if raw.s_journal_uuid != [0; 16] && !info::has_external_journal(&state.superblock) {
        let half = raw.s_journal_uuid.first_chunk().copied().unwrap_or_default();
        let place = Place::field("s_journal_uuid");
        let finding = Finding::new(&kinds::SUPERBLOCK_FIELD, place);
        state.findings.add(finding.hex(u64::from_be_bytes(half), 0_u64));
    }
    check_features(state);
    if layout.has_no_room_of_hurd() {
        wrong("s_creator_os", raw.s_creator_os.get().into(), 0);
    }
    if raw.s_journal_dev.get() != 0 && raw.s_journal_inum.get() != 0 {
        // Linux refuses a volume with two journals.
        wrong("s_journal_dev", raw.s_journal_dev.get().into(), 0);
    }
    if raw.s_journal_inum.get() != 0 && !features.compat(Compat::HAS_JOURNAL) {
        wrong("s_journal_inum", raw.s_journal_inum.get().into(), 0);
    }
}

/// Features that say something of another one which is missing.
fn check_features(state: &State) {
    let features = &state.layout.features;
    let found = |field: &'static str, stored: u32, needless: u32| {
        let finding = Finding::new(&kinds::SUPERBLOCK_FIELD, Place::field(field));
        state.findings.add(finding.hex(stored, stored & !needless));
    };
    let seed = Incompat::CSUM_SEED;
    if features.incompat(seed) && !features.ro_compat(RoCompat::METADATA_CSUM) {
        found("s_feature_incompat", features.incompat.bits(), seed.bits());
    }
    let sums = RoCompat::GDT_CSUM;
    if features.ro_compat(sums) && features.ro_compat(RoCompat::METADATA_CSUM) {
        found("s_feature_ro_compat", features.ro_compat.bits(), sums.bits());
    }
    let clusters = RoCompat::BIGALLOC;
    if features.ro_compat(clusters) && state.layout.first_data_block != 0 {
        // Clusters begin at block 0. Here each has one block, so that nothing lies elsewhere.
        found("s_feature_ro_compat", features.ro_compat.bits(), clusters.bits());
    }
    // e2fsck refuses the volume, and without groups of groups nobody reads it.
    let per_flex = state.superblock.raw.s_log_groups_per_flex;
    if !features.incompat(Incompat::FLEX_BG) && per_flex >= 32 {
        let place = Place::field("s_log_groups_per_flex");
        state.differ(&kinds::SUPERBLOCK_FIELD, place, per_flex.into(), 0);
    }
    let orphans = Compat::ORPHAN_FILE;
    if features.compat(orphans) && state.superblock.raw.s_orphan_file_inum.get() == 0 {
        found("s_feature_compat", features.compat.bits(), orphans.bits());
    }
    let present = RoCompat::ORPHAN_PRESENT;
    if features.ro_compat(present) && !features.compat(Compat::ORPHAN_FILE) {
        found("s_feature_ro_compat", features.ro_compat.bits(), present.bits());
    }
}

/// Totals that the walk has counted.
pub(super) fn check_totals(state: &State) {
    let totals = &state.totals;
    let free = totals.free_clusters.load(Relaxed) << state.layout.cluster_bits;
    let stored = state.superblock.free_blocks();
    if state.is_recovered {
        // Linux brings the totals up to date at unmount.
    } else if stored != free {
        let place = Place::field("s_free_blocks_count");
        state.differ(&kinds::SUPERBLOCK_FREE_BLOCKS, place, stored, free);
    }
    let free = totals.free_inodes.load(Relaxed);
    let stored = u64::from(state.superblock.raw.s_free_inodes_count.get());
    if !state.is_recovered && stored != free {
        let place = Place::field("s_free_inodes_count");
        state.differ(&kinds::SUPERBLOCK_FREE_INODES, place, stored, free);
    }
    check_translators(state);
    let large = totals.large_files.load(Relaxed);
    let many = totals.many_links.load(Relaxed);
    let verified = totals.verified.load(Relaxed);
    for (count, feature, what) in [
        (verified, RoCompat::VERITY, "files with fs-verity without verity"),
        (large, RoCompat::LARGE_FILE, "files of 2 GiB or more without large_file"),
        (many, RoCompat::DIR_NLINK, "directories with more than 65000 links without dir_nlink"),
    ] {
        if count > 0 && !state.layout.features.ro_compat(feature) {
            let place = Place::field("s_feature_ro_compat");
            let finding = Finding::new(&kinds::SUPERBLOCK_FIELD, place);
            let why = Value::text(format!("{count} {what}"));
            let bits = u64::from((state.layout.features.ro_compat | feature).bits());
            state.findings.add(finding.stored(why).computed(Value::Hex(bits)));
        }
    }
}

/// Only the Hurd has translators, in the place of Linux's change counter. Where these are no
/// blocks, Linux has written the inodes.
fn check_translators(state: &State) {
    if state.totals.translators.load(Relaxed) > 0 {
        let (place, stored) = (Place::field("s_creator_os"), state.superblock.raw.s_creator_os);
        state.differ(&kinds::SUPERBLOCK_FIELD, place, stored.get().into(), 0);
    }
}

/// Errors that mounts have recorded.
pub(super) fn check_errors(state: &State) {
    let raw = &state.superblock.raw;
    let count = raw.s_error_count.get();
    let field = if count > 0 { "s_error_count" } else { "s_state" };
    if state.superblock.has_errors() {
        let (ino, block) = (raw.s_last_error_ino.get(), raw.s_last_error_block.get());
        let last = format!("{count} recorded, the last one in inode {ino}, block {block}");
        let finding = Finding::new(&kinds::SUPERBLOCK_ERRORS, Place::field(field));
        state.findings.add(finding.stored(Value::text(last)));
    } else if raw.s_state.get() & STATE_VALID == 0 && !state.is_recovered {
        state.find(&kinds::SUPERBLOCK_UNCLEAN, Place::field(field));
    }
}

/// The backups: each is a superblock of this volume.
pub(super) fn check_backups(state: &State) {
    let layout = &state.layout;
    for group in (1..layout.groups).filter(|group| layout.backups(*group)) {
        let pba = layout.superblock_block(group);
        let place = || Place::group(group).at_block(pba.get());
        match state.source.block(pba) {
            Ok(block) => backup(state, block.get(..SIZE).unwrap_or_default(), place, pba),
            Err(error) => state.unreadable(place(), &error),
        }
    }
}

fn backup(state: &State, bytes: &[u8], place: impl Fn() -> Place, pba: Pba) {
    let copy = match Superblock::decode(bytes) {
        Ok(copy) => copy,
        Err(why) => {
            let kind = &kinds::SUPERBLOCK_BACKUP;
            return state.report(kind, kind, place(), &why);
        }
    };
    let geometry = |raw: &RawSuperblock| {
        [
            ("s_log_block_size", raw.s_log_block_size.get()),
            ("s_first_data_block", raw.s_first_data_block.get()),
            ("s_blocks_per_group", raw.s_blocks_per_group.get()),
            ("s_inodes_per_group", raw.s_inodes_per_group.get()),
        ]
    };
    let pairs = geometry(&copy.raw).into_iter().zip(geometry(&state.superblock.raw));
    for ((field, stored), (_, computed)) in pairs {
        if stored != computed {
            let place = place().in_field(field).at_block(pba.get());
            state.differ(&kinds::SUPERBLOCK_BACKUP, place, stored.into(), computed.into());
        }
    }
}
