//! Values of the superblock's fields that another structure has or implies.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cairn_base::Pba;
use cairn_base::units::as_index;
use cairn_block::BlockDevice;

use super::super::state::State;
use super::candidate::{Candidate, Proof};
use super::fields::{FLAGS, NUMBERS, flags};
use crate::backups;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::indirect::{decode, decode_inode};
use crate::format::inode::Inode as Record;
use crate::format::layout::inodes;
use crate::format::superblock::{OLD_FIRST_INODE, RawSuperblock, Superblock};

/// The slot of the double indirect block in `i_block`.
const DOUBLE: usize = 13;

/// Values of a backup, one by one and all together; then those that follow from elsewhere.
pub(super) fn candidates(device: &dyn BlockDevice, state: &State) -> Vec<Candidate> {
    let mut found = Vec::new();
    let raw = &state.superblock.raw;
    let witness = |edit: &dyn Fn(&mut RawSuperblock)| {
        Candidate::superblock(state, device, Proof::Witness, edit)
    };
    if let Some(copy) = backup(device, &state.superblock) {
        for field in NUMBERS {
            let other = (field.get)(&copy.raw);
            if other != (field.get)(raw) {
                found.extend(witness(&|raw| (field.set)(raw, other)));
            }
        }
        for word in FLAGS {
            for other in flags(word, raw, (word.0.get)(&copy.raw)) {
                found.extend(witness(&|raw| (word.0.set)(raw, other)));
            }
        }
        if copy.raw.s_backup_bgs != raw.s_backup_bgs {
            found.extend(witness(&|raw| raw.s_backup_bgs = copy.raw.s_backup_bgs));
        }
        if found.len() != 1 {
            found.extend(witness(&|raw| {
                NUMBERS.iter().for_each(|field| (field.set)(raw, (field.get)(&copy.raw)));
                for (field, telling, _) in FLAGS {
                    let (here, there) = ((field.get)(raw), (field.get)(&copy.raw));
                    let telling = u64::from(*telling);
                    (field.set)(raw, here & !telling | there & telling);
                }
                raw.s_backup_bgs = copy.raw.s_backup_bgs;
            }));
        }
    }
    for blocks in [listed(state), below_structures(state)].into_iter().flatten() {
        found.extend(witness(&|raw| raw.s_reserved_gdt_blocks = blocks.into()));
    }
    let clusters = raw.s_clusters_per_group.get();
    if !state.layout.features.ro_compat(RoCompat::BIGALLOC) && clusters != 0 {
        found.extend(witness(&|raw| raw.s_blocks_per_group = clusters.into()));
    }
    found.extend(
        cluster_size(state).and_then(|log| {
            witness(&|raw: &mut RawSuperblock| raw.s_log_cluster_size = log.into())
        }),
    );
    if u64::from(raw.s_journal_inum.get()) != inodes::JOURNAL.get()
        && state.layout.features.compat(Compat::HAS_JOURNAL)
    {
        found.extend(witness(&|raw| raw.s_journal_inum = 8.into()));
    }
    found.extend(witness(&|raw| raw.s_first_ino = OLD_FIRST_INODE.into()));
    found
}

/// Values of what all checksums depend on, where most descriptors have wrong ones: the UUID of a
/// backup, and the seed with which the root's checksum is right. With a seed of its own the volume
/// can keep the UUID that it has.
pub(super) fn seeds(device: &dyn BlockDevice, state: &State) -> Vec<Candidate> {
    let features = &state.layout.features;
    let strange = copy(device, &state.superblock, |copy| copy.uuid() != state.superblock.uuid());
    let mut found = Vec::new();
    if let Some(copy) = &strange {
        // The first superblock may be that of another volume.
        found.extend(Candidate::superblock(state, device, Proof::Guess, |raw| {
            *raw = copy.raw;
            raw.s_block_group_nr = 0.into();
        }));
    }
    let wrong = state.groups.iter().filter(|group| !group.is_sealed).count();
    if !features.has_group_checksums() || wrong.saturating_mul(2) < state.groups.len() {
        return found;
    }
    let stored = state.superblock.metadata_checksum().seed();
    if let Some(copy) = strange.filter(|_| !features.incompat(Incompat::CSUM_SEED)) {
        let uuid = |raw: &mut RawSuperblock| raw.s_uuid = copy.raw.s_uuid;
        // What only the first superblock knows stays.
        let uuid = Candidate::superblock(state, device, Proof::Witness, uuid);
        found = uuid.into_iter().chain(found).collect();
    }
    let root = state.record_bytes(inodes::ROOT);
    let seed = root.and_then(|bytes| Record::volume_seed(&bytes, inodes::ROOT));
    if let Some(seed) = seed.filter(|seed| stored.is_some_and(|stored| stored != *seed)) {
        let own = features.incompat | Incompat::CSUM_SEED;
        found.extend(Candidate::superblock(state, device, Proof::Guess, |raw| {
            raw.s_feature_incompat = own.bits().into();
            raw.s_checksum_seed = seed.into();
        }));
    }
    found
}

/// Features of which single files say that the volume has them.
pub(super) fn features_of_files(device: &dyn BlockDevice, state: &State) -> Vec<Candidate> {
    let features = state.layout.features.incompat;
    let seen = |count: &AtomicU64| count.load(Relaxed) > 0;
    let flags = [
        (Incompat::EXTENTS, seen(&state.totals.trees)),
        (Incompat::INLINE_DATA, seen(&state.totals.inline)),
        (Incompat::EA_INODE, seen(&state.totals.values)),
    ];
    let flags = flags.into_iter().filter(|(_, is_possible)| *is_possible);
    let with = |flag| {
        Candidate::superblock(state, device, Proof::Witness, |raw| {
            raw.s_feature_incompat = (features | flag).bits().into();
        })
    };
    flags.filter_map(|(flag, _)| with(flag)).collect()
}

/// The size of clusters by their number in a group.
fn cluster_size(state: &State) -> Option<u32> {
    let raw = &state.superblock.raw;
    let (blocks, clusters) = (raw.s_blocks_per_group.get(), raw.s_clusters_per_group.get());
    let ratio = blocks.checked_div(clusters).filter(|ratio| ratio.is_power_of_two())?;
    let is_used = state.layout.features.ro_compat(RoCompat::BIGALLOC);
    is_used.then(|| raw.s_log_block_size.get().saturating_add(ratio.ilog2()))
}

/// The number of reserved blocks that the resize inode lists.
fn listed(state: &State) -> Option<u16> {
    let layout = &state.layout;
    let record = state.record(inodes::RESIZE)?;
    let slots = decode_inode(&record.block);
    let top = Pba(slots.get(DOUBLE).copied()?.into());
    if top == Pba(0) || !layout.contains(top, 1) {
        return None;
    }
    let pointers = decode(&state.source.block(top).ok()?);
    let (descriptors, words) = (layout.contiguous_descriptor_blocks(), layout.block_size / 4);
    let first =
        layout.superblock_block(0).get().saturating_add(1).saturating_add(descriptors.into());
    let is_listed = |index: &u32| {
        let slot = descriptors.saturating_add(*index).checked_rem(words).unwrap_or(0);
        let expected = first.saturating_add((*index).into());
        pointers.get(as_index(slot)).is_some_and(|found| u64::from(*found) == expected)
    };
    let count = (0..words).take_while(is_listed).count();
    u16::try_from(count).ok().filter(|count| *count > 0)
}

/// The number of reserved blocks that have room below the first structure of group 0.
fn below_structures(state: &State) -> Option<u16> {
    let layout = &state.layout;
    let first = layout.superblock_block(0).get().saturating_add(1);
    let first = first.saturating_add(layout.contiguous_descriptor_blocks().into());
    let places = state.groups.iter().flat_map(|group| {
        [group.desc.block_bitmap, group.desc.inode_bitmap, group.desc.inode_table]
    });
    let end = layout.group_first_block(0).get().saturating_add(layout.group_blocks(0).into());
    let least = places.map(Pba::get).filter(|place| (first..end).contains(place)).min()?;
    u16::try_from(least.saturating_sub(first)).ok()
}

/// The superblock of a backup of the same volume.
pub(super) fn backup(device: &dyn BlockDevice, first: &Superblock) -> Option<Superblock> {
    copy(device, first, |copy| copy.uuid() == first.uuid())
}

/// The first backup of this kind that was made last.
fn copy(
    device: &dyn BlockDevice,
    first: &Superblock,
    is_meant: impl Fn(&Superblock) -> bool,
) -> Option<Superblock> {
    let copies = backups::all(device, &first.encode(), device.geometry().size);
    copies.into_iter().map(|copy| copy.superblock).find(|copy| is_meant(copy))
}
