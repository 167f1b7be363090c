//! Fields of the superblock.

use cairn_check::{Finding, Value};

use super::mender::Mender;
use crate::error::Result;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::superblock::{REVISION, RawSuperblock};

/// Gives fields the values that the rest of the volume implies.
pub(super) fn mend(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    for finding in findings {
        let Some(field) = finding.place.field else { continue };
        let number = finding.computed.as_ref().and_then(Value::number).unwrap_or(0);
        let mut is_done = true;
        mender.edit_superblock(|superblock| match field {
            "s_r_blocks_count" => superblock.set_reserved_blocks(number),
            "s_feature_compat" | "s_feature_incompat" | "s_feature_ro_compat" => {
                superblock.make_dynamic();
                let mut features = superblock.features();
                let bits = u32::try_from(number).unwrap_or(0);
                match field {
                    "s_feature_compat" => features.compat = Compat::from_bits_retain(bits),
                    "s_feature_incompat" => features.incompat = Incompat::from_bits_retain(bits),
                    _ => features.ro_compat = RoCompat::from_bits_retain(bits),
                }
                superblock.set_features(features);
            }
            "s_journal_uuid" => superblock.raw.s_journal_uuid = [0; 16],
            "s_orphan_file_inum" => {
                superblock.raw.s_orphan_file_inum = 0.into();
                let mut features = superblock.features();
                features.compat.remove(Compat::ORPHAN_FILE);
                features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
                superblock.set_features(features);
            }
            _ => is_done = set(&mut superblock.raw, field, number),
        })?;
        if is_done {
            mender.step(finding);
        }
    }
    Ok(())
}

/// Sets a field by its name. False if it is not known, or the number does not fit.
fn set(raw: &mut RawSuperblock, field: &str, number: u64) -> bool {
    match (field, u8::try_from(number)) {
        ("s_def_hash_version", Ok(byte)) => {
            raw.s_def_hash_version = byte;
            return true;
        }
        ("s_log_groups_per_flex", Ok(byte)) => {
            raw.s_log_groups_per_flex = byte;
            return true;
        }
        _ => {}
    }
    let (Ok(word), half) = (u32::try_from(number), u16::try_from(number)) else { return false };
    match (field, half) {
        (REVISION, _) => raw.s_rev_level = word.into(),
        ("s_desc_size", Ok(half)) => raw.s_desc_size = half.into(),
        ("s_reserved_gdt_blocks", Ok(half)) => raw.s_reserved_gdt_blocks = half.into(),
        ("s_min_extra_isize", Ok(half)) => raw.s_min_extra_isize = half.into(),
        ("s_want_extra_isize", Ok(half)) => raw.s_want_extra_isize = half.into(),
        ("s_log_cluster_size", _) => raw.s_log_cluster_size = word.into(),
        ("s_clusters_per_group", _) => raw.s_clusters_per_group = word.into(),
        ("s_usr_quota_inum", _) => raw.s_usr_quota_inum = word.into(),
        ("s_grp_quota_inum", _) => raw.s_grp_quota_inum = word.into(),
        ("s_prj_quota_inum", _) => raw.s_prj_quota_inum = word.into(),
        ("s_creator_os", _) => raw.s_creator_os = word.into(),
        ("s_journal_dev", _) => raw.s_journal_dev = word.into(),
        ("s_journal_inum", _) => raw.s_journal_inum = word.into(),
        _ => return false,
    }
    true
}
