//! Features of which a check knows what they mean for the structures of a volume.

use crate::error::{Error, Result};
use crate::format::features::{Access, Compat, Features, Incompat, RoCompat};
use crate::format::superblock::{DYNAMIC_REVISION, OFFSET, Superblock};

/// `s_encoding` of names in the only known one.
const UTF8_12_1: u16 = 1;

/// The words of the revision and of the incompatible features.
const REVISION_AT: u64 = 76;
const INCOMPAT_AT: u64 = 96;

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
        let why = format!("the superblock says revision {revision}, and there are 0 and 1");
        let set = set_word(REVISION_AT, DYNAMIC_REVISION);
        return Err(Error::Feature(format!(
            "{why}: use the program that made the volume, if it is newer; else the number is \
             damaged: {set}"
        )));
    }
    let features = superblock.features();
    let encoding = superblock.raw.s_encoding.get();
    if features.incompat(Incompat::CASEFOLD) && encoding == 0 {
        return Err(Error::Feature(
            "the superblock has the feature casefold, and no encoding of names: one of both is \
             damaged; if no directory ignores case, clear the feature (`debugfs -w -R 'feature \
             -casefold' IMAGE`)"
                .into(),
        ));
    }
    if features.incompat(Incompat::CASEFOLD) && encoding != UTF8_12_1 {
        let why = format!("names have the encoding {encoding}, which Cairn does not know");
        return Err(Error::Feature(format!("{why}; use the programs that made the volume")));
    }
    if let Access::Refuse(reason) = features.access() {
        return Err(Error::Feature(refused(superblock, reason)));
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

/// Why a volume is refused that has features which cannot be read, and what to do.
fn refused(superblock: &Superblock, reason: String) -> String {
    let features = superblock.features();
    let is_journal = features.incompat(Incompat::JOURNAL_DEV);
    let has_inodes = superblock.raw.s_inodes_count.get() > 0;
    // A checksum says that the flags are what was written, and a journal has no inodes.
    if features.ro_compat(RoCompat::METADATA_CSUM) || (is_journal && !has_inodes) {
        return reason;
    }
    let known = features.incompat.difference(features.unreadable() | Incompat::JOURNAL_DEV);
    let set = set_word(INCOMPAT_AT, known.bits());
    match is_journal {
        true => format!(
            "the superblock is marked as that of an external journal, but has inodes: the mark is \
             damaged: {set}"
        ),
        false => format!("{reason}, if a newer program has set them; else they are damaged: {set}"),
    }
}

/// What to do with a damaged word of the superblock.
fn set_word(at: u64, word: u32) -> String {
    let at = OFFSET.saturating_add(at);
    let bytes = word.to_le_bytes().map(|byte| format!("{byte:02x}")).join(" ");
    format!("set the 4 bytes at offset {at} of a copy of the volume to {bytes}, and check that")
}
