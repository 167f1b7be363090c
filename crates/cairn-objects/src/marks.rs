//! Marks of volumes: `made/NAME` is made after the manifest, and removed before it. So a mark
//! without a manifest tells that the manifest was lost. Volumes of older versions of Cairn have
//! none.

use bytes::Bytes;
use cairn_block::{Error, ErrorKind, Result};

use crate::opening::find_manifest;
use crate::requests::{Created, Requests};
use crate::store;

/// Begins the names of marks.
const MADE: &str = "made/";

fn name(volume: &str) -> String {
    format!("{MADE}{volume}")
}

/// Marks a volume whose manifest was just made.
///
/// # Errors
/// [`ErrorKind::Exists`] if there is a mark already: the manifest of a volume of this name was
/// lost. The new manifest is removed then. The store, which may leave the volume without a mark.
pub(crate) fn set(requests: &Requests, volume: &str, operation: &str) -> Result<()> {
    // Every object begins with something that no other has.
    let contents = format!("{:016x} {volume}\n", requests.runtime().random());
    if requests.create(&name(volume), &[Bytes::from(contents)])? == Created::Ours {
        return Ok(());
    }
    requests.delete(&crate::format::manifest::name(volume))?;
    Err(Error::new(ErrorKind::Exists, operation.to_owned(), detail(volume)))
}

/// Removes the mark of a volume that is about to be removed. There may be none.
pub(crate) fn clear(requests: &Requests, volume: &str) -> Result<()> {
    Ok(requests.delete(&name(volume))?)
}

/// Is there a mark of a volume whose manifest is not there?
pub(crate) fn is_lost(requests: &Requests, volume: &str) -> Result<bool> {
    let found = match requests.get(&name(volume)) {
        Err(error) if error.kind == store::ErrorKind::Missing => false,
        found => found.map(|_| true)?,
    };
    // A volume that is made or removed at this moment has neither or both.
    Ok(found && is_missing(requests, volume)?)
}

fn is_missing(requests: &Requests, volume: &str) -> Result<bool> {
    match find_manifest(requests, volume) {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind == ErrorKind::PermissionDenied => Ok(false),
        found => found.map(|_| false),
    }
}

/// The volumes whose manifests were lost. `known` have one.
pub(crate) fn lost(requests: &Requests, known: &[String]) -> Result<Vec<String>> {
    let listed = requests.list(MADE, None)?;
    let names = listed.iter().filter_map(|listed| listed.name.strip_prefix(MADE));
    let mut lost = Vec::new();
    for name in names.filter(|name| crate::address::check_name(name).is_ok()) {
        if !known.iter().any(|known| known == name) && is_lost(requests, name)? {
            lost.push(name.to_owned());
        }
    }
    Ok(lost)
}

/// What is wrong with such a volume.
pub(crate) fn error(volume: &str, operation: &str) -> Error {
    Error::new(ErrorKind::Io, operation.to_owned(), detail(volume))
}

fn detail(volume: &str) -> String {
    format!(
        "the manifest of the volume {volume} is lost: put it back ({}), or give the volume up by \
         force",
        crate::format::manifest::name(volume)
    )
}
