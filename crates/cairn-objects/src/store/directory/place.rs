//! Where an object's file is.

use std::io;
use std::path::{Path, PathBuf};

use cairn_base::host;

/// The file of a name below `root`, behind the links that are followed.
pub(super) fn behind(root: &Path, name: &str) -> io::Result<PathBuf> {
    let below = |place: PathBuf, part| host::behind_links(&place.join(part));
    name.split('/').try_fold(host::behind_links(root)?, below)
}

/// The file of a name below `root`, which may be a link itself.
pub(super) fn unfollowed(root: &Path, name: &str) -> io::Result<PathBuf> {
    let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
    Ok(behind(root, folder)?.join(last))
}

/// A path without links, as far as it is there.
pub(super) fn real(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = |above: &Path| {
        Some(above.canonicalize().ok()?.join(whole.strip_prefix(above).unwrap_or(Path::new(""))))
    };
    whole.ancestors().find_map(there).unwrap_or_else(|| whole.clone())
}
