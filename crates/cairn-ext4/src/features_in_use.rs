//! Features that the superblock gets when they are first used, as in Linux: `ext_attr` with the
//! first attribute block, `large_file` with the first file of 2 GiB. Without them e2fsck takes such
//! an inode for damaged.

use std::sync::atomic::Ordering;

use cairn_base::Pba;

use crate::error::Result;
use crate::format::features::{Compat, Features, RoCompat};
use crate::format::inode::Inode as Record;
use crate::format::superblock::Superblock;
use crate::store::Store;
use crate::txn::Handle;

/// A file of this many bytes and more needs `large_file`.
const LARGE: u64 = 1 << 31;

/// True if the superblock may get a feature later: handles then reserve a credit for it.
pub(crate) const fn may_come(features: &Features) -> bool {
    !features.compat(Compat::EXT_ATTR) || !features.ro_compat(RoCompat::LARGE_FILE)
}

/// Gives the superblock the features that an inode uses, in the handle that writes the inode.
///
/// # Errors
/// The superblock cannot be read, or the journal was aborted.
pub(crate) fn note(store: &Store, handle: &Handle, record: &Record) -> Result<()> {
    let superblock = &store.superblock;
    if record.file_acl != Pba(0) && !superblock.has_ext_attr.load(Ordering::Relaxed) {
        add(store, handle, Compat::EXT_ATTR, RoCompat::empty())?;
        superblock.has_ext_attr.store(true, Ordering::Relaxed);
    }
    if record.size >= LARGE && !superblock.has_large_file.load(Ordering::Relaxed) {
        add(store, handle, Compat::empty(), RoCompat::LARGE_FILE)?;
        superblock.has_large_file.store(true, Ordering::Relaxed);
    }
    Ok(())
}

fn add(store: &Store, handle: &Handle, compat: Compat, ro_compat: RoCompat) -> Result<()> {
    let has = store.superblock.read(&store.buffers)?.features();
    if has.compat(compat) && has.ro_compat(ro_compat) {
        return Ok(());
    }
    store.superblock.change(store, handle, |superblock: &mut Superblock| {
        superblock.make_dynamic();
        let mut features = superblock.features();
        features.compat.insert(compat);
        features.ro_compat.insert(ro_compat);
        superblock.set_features(features);
    })
}
