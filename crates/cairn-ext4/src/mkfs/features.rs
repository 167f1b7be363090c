//! The features of a new volume: mke2fs's present defaults with the user's changes.

use cairn_base::nearest::did_you_mean;

use crate::error::{Error, Result};
use crate::format::features::{Access, Compat, Features, Incompat, RoCompat};

const DEFAULTS: &[&str] = &[
    "has_journal",
    "ext_attr",
    "resize_inode",
    "dir_index",
    "orphan_file",
    "filetype",
    "extent",
    "64bit",
    "flex_bg",
    "metadata_csum_seed",
    "sparse_super",
    "large_file",
    "huge_file",
    "dir_nlink",
    "extra_isize",
    "metadata_csum",
];

/// Features that only a mounted filesystem sets.
const STATES: &[&str] = &["needs_recovery", "orphan_present", "journal_dev"];

/// Names that no mke2fs makes a volume with.
const OBSOLETE: &[&str] = &[
    "dir_prealloc",
    "imagic_inodes",
    "lazy_bg",
    "snapshot_inode",
    "snapshot",
    "btree_dir",
    "has_snapshot",
    "replica",
];

/// Pairs of a feature and one that it needs.
const NEEDS: &[(&str, &str)] = &[
    ("64bit", "extent"),
    ("metadata_csum_seed", "metadata_csum"),
    ("orphan_file", "has_journal"),
    ("fast_commit", "has_journal"),
    ("inline_data", "ext_attr"),
    ("resize_inode", "sparse_super"),
    ("large_dir", "dir_index"),
];

/// Pairs that exclude each other. The first one is dropped unless the user asked for it.
const EXCLUDES: &[(&str, &str)] = &[
    ("resize_inode", "meta_bg"),
    ("uninit_bg", "metadata_csum"),
    ("sparse_super", "sparse_super2"),
];

/// Chooses the set. The user's choices override defaults; choices that contradict each other are
/// refused, and so are those that mounts do not maintain, except `beside`.
pub(super) fn choose(wishes: &[String], beside: Features) -> Result<Features> {
    let mut features = Features::default();
    for name in DEFAULTS {
        assert!(features.set_by_name(name, true), "default features are known");
    }
    let mut wanted = Features::default();
    for wish in wishes
        .iter()
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .filter(|wish| !wish.is_empty())
    {
        if wish == "none" {
            features = wanted;
            continue;
        }
        let (name, on) = wish.strip_prefix('^').map_or((wish, true), |name| (name, false));
        if STATES.contains(&name) || !features.set_by_name(name, on) {
            return Err(unknown(name));
        }
        wanted.set_by_name(name, on);
    }
    resolve(&mut features, &wanted)?;
    let mut maintained = features;
    maintained.incompat -= beside.incompat;
    maintained.ro_compat -= beside.ro_compat;
    match maintained.access() {
        Access::ReadWrite => Ok(features),
        Access::ReadOnly(why) | Access::Refuse(why) => Err(Error::Option(format!(
            "Cairn could not write such a volume: {why}: leave the feature out"
        ))),
    }
}

/// What can be asked for.
fn possible() -> Vec<&'static str> {
    let alone = |name: &&str| {
        let mut features = Features::default();
        let is_choice = !STATES.contains(name) && !OBSOLETE.contains(name);
        is_choice
            && features.set_by_name(name, true)
            && matches!(features.access(), Access::ReadWrite)
    };
    Features::all_names().filter(alone).collect()
}

fn unknown(name: &str) -> Error {
    let what =
        if STATES.contains(&name) { "is set by a mount, not by mkfs" } else { "is not known" };
    let possible = possible();
    let meant = did_you_mean(name, possible.iter().copied());
    Error::Option(format!(
        "feature `{name}` {what}{meant}: there are {}; ^ before a name leaves it out",
        possible.join(", ")
    ))
}

fn resolve(features: &mut Features, wanted: &Features) -> Result<()> {
    for (loser, winner) in EXCLUDES {
        if !(has(features, loser) && has(features, winner)) {
            continue;
        }
        let gives_way = if has(wanted, loser) { winner } else { loser };
        if has(wanted, gives_way) {
            return Err(Error::Option(format!("features {loser} and {winner} exclude each other")));
        }
        features.set_by_name(gives_way, false);
    }
    // Twice: dropping a feature can leave another without one that it needs.
    for _ in 0..2 {
        for (name, need) in NEEDS {
            let met =
                has(features, need) || (*need == "sparse_super" && has(features, "sparse_super2"));
            if has(features, name) && !met {
                if has(wanted, name) {
                    return Err(Error::Option(format!("feature {name} needs {need}")));
                }
                features.set_by_name(name, false);
            }
        }
    }
    Ok(())
}

fn has(features: &Features, name: &str) -> bool {
    let mut flag = Features::default();
    assert!(flag.set_by_name(name, true), "names in the tables are known");
    features.compat(flag.compat)
        && features.incompat(flag.incompat)
        && features.ro_compat(flag.ro_compat)
}

/// Drops the journal of a volume that is too small for one.
pub(super) fn drop_journal(features: &mut Features) {
    features.compat -= Compat::HAS_JOURNAL | Compat::ORPHAN_FILE | Compat::FAST_COMMIT;
}

/// Drops `extra_isize` if inode records have 128 bytes.
pub(super) fn check_inode_size(features: &mut Features, inode_size: u32) {
    if inode_size == 128 {
        features.ro_compat -= RoCompat::EXTRA_ISIZE;
        features.incompat -= Incompat::INLINE_DATA;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wishes: &[&str]) -> Result<Vec<String>> {
        let wishes: Vec<String> = wishes.iter().map(|wish| (*wish).to_owned()).collect();
        choose(&wishes, Features::default()).map(|features| features.names())
    }

    #[test]
    fn defaults_give_way_and_wishes_do_not() {
        assert_eq!(names(&[]).expect("defaults are consistent").len(), DEFAULTS.len());
        let without = names(&["^metadata_csum,^extent"]).expect("possible");
        for gone in ["metadata_csum", "metadata_csum_seed", "extent", "64bit"] {
            assert!(!without.contains(&gone.to_owned()), "{gone}");
        }
        assert!(names(&["^extent", "64bit"]).is_err());
        assert!(names(&["meta_bg"]).is_ok_and(|names| !names.contains(&"resize_inode".to_owned())));
        assert!(names(&["meta_bg,resize_inode"]).is_err());
        assert!(names(&["casefold"]).is_err());
        assert!(names(&["needs_recovery"]).is_err());
        let said = names(&["nonsense"]).unwrap_err().to_string();
        assert!(
            said.contains("there are has_journal, ") && said.contains("metadata_csum"),
            "{said}"
        );
        for unmaintained in ["casefold", "journal_dev", "bigalloc"] {
            assert!(!possible().contains(&unmaintained), "{unmaintained}");
        }
        let said = names(&["metadata_cksum"]).unwrap_err().to_string();
        assert!(said.contains("did you mean `metadata_csum`?"), "{said}");
    }
}
