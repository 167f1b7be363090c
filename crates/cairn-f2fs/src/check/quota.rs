//! Quota files: what they count, against what users, groups and projects have.
//!
//! Linux counts inodes, and all blocks of an inode but its own node. A mount of Cairn does not
//! count, and sets `CP_QUOTA_NEED_FSCK` instead.

use cairn_base::Pba;
use cairn_base::units::{as_index, as_u64};
use cairn_check::quota::{OwnerKind, QUOTA_BLOCK, QuotaFile, differences};
use cairn_check::{Finding, Place, Value};

use super::context::Context;
use super::kinds;
use crate::blocks;
use crate::format::units::{BLOCK_SIZE, BlockAddr, Nid};

/// The quota files that the superblock names.
pub(super) fn files(context: &Context) -> impl Iterator<Item = (OwnerKind, Nid)> {
    let named = OwnerKind::ALL.into_iter().zip(context.layout.quota_inodes);
    named.filter(|(_, ino)| !ino.is_none())
}

/// Compares all quota files with what was counted. One that is no file was found before.
pub(super) fn check(context: &Context) {
    let Some(quota) = &context.quota else { return };
    for (kind, ino) in files(context) {
        let Some(file) = read(context, kind, ino) else { continue };
        let place = Place::inode(ino.get());
        if let Some(why) = &file.damage {
            context.add(Finding::new(&kinds::QUOTA_FILE, place).stored(Value::text(why)));
            continue;
        }
        for one in differences(&file, &quota.counted.usage(kind)) {
            let stored = one.stored.map_or("no entry".into(), |usage| usage.to_string());
            let finding = Finding::new(&kinds::QUOTA_COUNTS, place.clone().of_owner(one.id));
            let finding = finding.stored(Value::text(stored));
            context.add(finding.computed(Value::text(one.counted.to_string())));
        }
    }
}

/// Reads a quota file, as far as it can be read. `None` if the walk has seen no such file.
pub(super) fn read(context: &Context, kind: OwnerKind, ino: Nid) -> Option<QuotaFile> {
    let contents = context.quota.as_ref()?.file(ino)?;
    let per_block = BLOCK_SIZE.checked_div(QUOTA_BLOCK)?;
    let count = contents.size.checked_div(as_u64(QUOTA_BLOCK))?;
    let mut last: Option<(BlockAddr, Vec<u8>)> = None;
    let mut block = |number: u32| {
        let number = as_index(number);
        let at = as_u64(number.checked_div(per_block)?);
        let addr = *contents.blocks.get(&at)?;
        if last.as_ref().is_none_or(|(known, _)| *known != addr) {
            let bytes = blocks::read(&*context.volume.device, Pba(addr.get().into()), 1).ok()?;
            last = Some((addr, bytes.to_vec()));
        }
        let (_, bytes) = last.as_ref()?;
        let start = number.checked_rem(per_block)?.checked_mul(QUOTA_BLOCK)?;
        bytes.get(start..start.checked_add(QUOTA_BLOCK)?).map(<[u8]>::to_vec)
    };
    Some(QuotaFile::read(kind, u32::try_from(count).unwrap_or(u32::MAX), &mut block))
}
