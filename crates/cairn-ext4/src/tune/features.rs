//! Features that can change without a rewrite of the volume.

use cairn_base::checksum::crc32c;
use cairn_base::nearest::did_you_mean;
use cairn_base::runtime::Runtime;
use zerocopy::little_endian::U32;

use crate::error::{Error, Result};
use crate::format::features::{Compat, Features, Incompat, RoCompat};
use crate::format::superblock::{
    DYNAMIC_REVISION, FLAG_SIGNED_HASH, FLAG_UNSIGNED_HASH, Superblock,
};

/// What can be done with a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Can {
    Add,
    Remove,
    Both,
}

/// Features that can change.
const CHANGEABLE: &[(&str, Can)] = &[
    ("has_journal", Can::Both),
    ("metadata_csum_seed", Can::Both),
    ("read-only", Can::Both),
    (ORPHAN_FILE, Can::Remove),
    ("dir_index", Can::Add),
    ("large_dir", Can::Add),
    ("dir_nlink", Can::Add),
    ("ext_attr", Can::Add),
    ("extent", Can::Add),
    ("huge_file", Can::Add),
    ("large_file", Can::Add),
];
/// Goes with the journal, or alone.
pub(super) const ORPHAN_FILE: &str = "orphan_file";
/// Half MD4, mke2fs's default.
const HASH_VERSION: u8 = 1;

/// Splits a wish into a name and whether it is added.
fn parse(wish: &str) -> (&str, bool) {
    wish.strip_prefix('^').map_or((wish, true), |name| (name, false))
}

/// True if this feature is to be removed.
pub(super) fn removes(wishes: &[String], feature: &str) -> bool {
    let mut found = wishes.iter().map(|wish| parse(wish)).filter(|(name, _)| *name == feature);
    found.next_back().is_some_and(|(_, on)| !on)
}

/// What becomes of the journal.
pub(super) fn journal(wishes: &[String]) -> Option<bool> {
    let mut found =
        wishes.iter().map(|wish| parse(wish)).filter(|(name, _)| *name == "has_journal");
    found.next_back().map(|(_, on)| on)
}

/// Adds features, but for the journal. Refuses what cannot be changed.
pub(super) fn add(
    superblock: &mut Superblock,
    wishes: &[String],
    runtime: &dyn Runtime,
) -> Result<()> {
    for (name, on) in wishes.iter().map(|wish| parse(wish)) {
        check(name, on)?;
        if !on || name == "has_journal" {
            continue;
        }
        if superblock.raw.s_rev_level.get() < DYNAMIC_REVISION {
            superblock.make_dynamic();
        }
        let mut features = superblock.features();
        match name {
            "metadata_csum_seed" if features.incompat(Incompat::CSUM_SEED) => continue,
            "metadata_csum_seed" => {
                if !features.ro_compat(RoCompat::METADATA_CSUM) {
                    let why = "feature metadata_csum_seed needs metadata_csum, which needs a \
                               rewrite: use tune2fs for it";
                    return Err(Error::Option(why.into()));
                }
                superblock.raw.s_checksum_seed = U32::new(crc32c(!0, &superblock.raw.s_uuid));
            }
            "large_dir" if !features.compat(Compat::DIR_INDEX) => {
                return Err(Error::Option("feature large_dir needs dir_index: add it".into()));
            }
            "dir_index" => make_hashable(superblock, runtime),
            _ => {}
        }
        features.set_by_name(name, true);
        superblock.set_features(features);
    }
    Ok(())
}

/// Removes features, but for the journal.
pub(super) fn remove(superblock: &mut Superblock, wishes: &[String]) -> Result<()> {
    for (name, on) in wishes.iter().map(|wish| parse(wish)) {
        if on || matches!(name, "has_journal" | ORPHAN_FILE) {
            continue;
        }
        let mut features = superblock.features();
        if name == "metadata_csum_seed"
            && features.incompat(Incompat::CSUM_SEED)
            && superblock.raw.s_checksum_seed.get() != crc32c(!0, &superblock.raw.s_uuid)
        {
            let why = "metadata_csum_seed cannot be removed: the UUID has changed since the \
                       checksums were made";
            return Err(Error::Option(why.into()));
        }
        features.set_by_name(name, false);
        superblock.set_features(features);
    }
    Ok(())
}

fn check(name: &str, on: bool) -> Result<()> {
    let known = CHANGEABLE.iter().find(|(known, _)| *known == name);
    let why = match known {
        Some((_, Can::Both)) => return Ok(()),
        Some((_, can)) if on == (*can == Can::Add) => return Ok(()),
        Some(_) if on => format!("feature {name} can only be removed: add it with tune2fs"),
        Some(_) => format!("feature {name} cannot be removed: files may use it"),
        None if !Features::default().set_by_name(name, true) => {
            let meant = did_you_mean(name, CHANGEABLE.iter().map(|(name, _)| *name));
            format!("feature `{name}` is not known{meant}")
        }
        None => format!(
            "feature {name} cannot be changed without a rewrite: make a new volume with the features \
             wanted"
        ),
    };
    let names: Vec<&str> = CHANGEABLE.iter().map(|(name, _)| *name).collect();
    Err(Error::Option(format!("{why}; these can be changed: {}", names.join(", "))))
}

/// Gives a volume what the hashes of names need.
fn make_hashable(superblock: &mut Superblock, runtime: &dyn Runtime) {
    let raw = &mut superblock.raw;
    if raw.s_def_hash_version == 0 {
        raw.s_def_hash_version = HASH_VERSION;
    }
    if raw.s_flags.get() & (FLAG_SIGNED_HASH | FLAG_UNSIGNED_HASH) == 0 {
        raw.s_flags = U32::new(raw.s_flags.get() | FLAG_SIGNED_HASH);
    }
    if raw.s_hash_seed.iter().all(|word| word.get() == 0) {
        for word in &mut raw.s_hash_seed {
            let [a, b, c, d, ..] = runtime.random().to_le_bytes();
            *word = U32::from_bytes([a, b, c, d]);
        }
    }
}
