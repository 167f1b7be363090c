//! Manifests that are older than the objects of their volume: somebody has put an old one back.
//!
//! An opening for writing raises the epoch in the manifest, and only then makes objects of that
//! epoch. So an object of a later epoch than the manifest's tells that the manifest is not the
//! newest, if it is still the same after the object was seen.

use std::collections::BTreeSet;

use cairn_block::{Error, ErrorKind, Result};

use crate::format::ObjectId;
use crate::format::id::LOG;
use crate::format::manifest::{Manifest, Replay};
use crate::requests::Requests;

/// The epochs after the manifest's that have objects.
fn later_epochs(requests: &Requests, manifest: &Manifest) -> Result<BTreeSet<u32>> {
    // No epoch of a snapshot has objects.
    if manifest.read_only {
        return Ok(BTreeSet::new());
    }
    let (log, epoch) = (manifest.id, manifest.epoch);
    let last = ObjectId { log, epoch, sequence: u64::MAX }.to_string();
    let listed = requests.list(&format!("{LOG}{log:016x}/"), Some(&last))?;
    let found = listed.iter().filter_map(|one| ObjectId::parse(&one.name)).map(|id| id.epoch);
    Ok(found.filter(|later| *later > epoch).collect())
}

/// What a manifest is that has `epoch` while there are objects of the epoch `later`.
pub(crate) fn older(volume: &str, epoch: u32, later: u32) -> Error {
    let detail = format!(
        "the manifest of the volume {volume} is an older copy: it has epoch {epoch}, and there are \
         objects of epoch {later}: put the newest one in its place; if there is none, open the \
         volume for writing with ?take-over, which takes these objects into it"
    );
    Error::new(ErrorKind::NotFound, "read the store", detail)
}

/// Refuses a manifest that is not the newest: of the kind [`ErrorKind::NotFound`], as for an object
/// that is missing, because the manifest may have changed meanwhile.
pub(crate) fn refuse(requests: &Requests, volume: &str, manifest: &Manifest) -> Result<()> {
    match later_epochs(requests, manifest)?.last() {
        Some(later) => Err(older(volume, manifest.epoch, *later)),
        None => Ok(()),
    }
}

/// Makes a manifest that is not the newest refer to the later logs. They are whole, unless a gc has
/// removed what the newest manifest did not need: whoever follows them finds the gap.
pub(crate) fn extend(requests: &Requests, volume: &str, manifest: &mut Manifest) -> Result<()> {
    let later = later_epochs(requests, manifest)?;
    if let Some(last) = later.last() {
        tracing::warn!("{}", older(volume, manifest.epoch, *last).detail);
        let id = manifest.id;
        let log = |epoch| Replay { id, epoch, from: 0, to: None, recorded: 0 };
        manifest.replay.extend(later.iter().copied().map(log));
        manifest.epoch = *last;
    }
    Ok(())
}
