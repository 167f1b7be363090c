//! Features of which a check knows what they mean for the structures of a volume.

use crate::error::{Error, Result};
use crate::format::features::{Access, Compat, Features, Incompat, RoCompat};
use crate::format::superblock::{DYNAMIC_REVISION, Superblock};

/// `s_encoding` of names in the only known one.
const UTF8_12_1: u16 = 1;

/// Compat flags that were in use. The other ones with a name never were.
const COMPAT: Compat = Compat::DIR_PREALLOC
    .union(Compat::IMAGIC_INODES)
    .union(Compat::HAS_JOURNAL)
    .union(Compat::EXT_ATTR)
    .union(Compat::RESIZE_INODE)
    .union(Compat::DIR_INDEX)
    .union(Compat::SPARSE_SUPER2)
    .union(Compat::FAST_COMMIT)
    .union(Compat::STABLE_INODES)
    .union(Compat::ORPHAN_FILE);

/// Ro_compat flags that were in use.
const RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::QUOTA)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::READONLY)
    .union(RoCompat::PROJECT)
    .union(RoCompat::SHARED_BLOCKS)
    .union(RoCompat::VERITY)
    .union(RoCompat::ORPHAN_PRESENT);

/// Refuses a volume with other features: each may mean that there are structures which look like
/// damage. A mount may ignore the compat ones, a check may not.
///
/// # Errors
/// There is one.
pub(super) fn refuse_unknown(superblock: &Superblock) -> Result<()> {
    let revision = superblock.raw.s_rev_level.get();
    if revision > DYNAMIC_REVISION {
        return Err(Error::Feature(format!(
            "the volume is of revision {revision}, and Cairn knows {DYNAMIC_REVISION}: use the \
             programs that made it"
        )));
    }
    let features = superblock.features();
    let encoding = superblock.raw.s_encoding.get();
    if features.incompat(Incompat::CASEFOLD) && encoding != UTF8_12_1 {
        let why = format!("names have the encoding {encoding}, which Cairn does not know");
        return Err(Error::Feature(format!("{why}; use the programs that made the volume")));
    }
    if let Access::Refuse(reason) = features.access() {
        return Err(Error::Feature(reason));
    }
    let unknown = Features {
        compat: features.compat.difference(COMPAT),
        incompat: Incompat::empty(),
        ro_compat: features.ro_compat.difference(RO_COMPAT),
    };
    let names = unknown.names();
    if names.is_empty() {
        return Ok(());
    }
    Err(Error::Feature(format!(
        "Cairn cannot check features that it does not know: {}; use the programs that made the \
         volume, or clear what it never had (`debugfs -w -R 'feature -NAME' IMAGE`)",
        names.join(", ")
    )))
}
