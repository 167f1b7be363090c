//! [`leave_host`]: a root directory without the host.
//!
//! The mounts of the host are in the namespace of a process as long as it looks at them. So each
//! process of a run leaves them when it has what it needs. That frees them only if no file on them
//! is open: the kernel keeps mounts that lie on one with an open file together, because they come
//! from a namespace with more rights.

use std::fs;
use std::io;
use std::path::Path;

use super::mounts::{HARMLESS, change_root, fresh, of_host};
use super::places::Point;

/// Where the volume is mounted, until it is the root directory.
pub(super) const VOLUME: &str = "/volume";

/// A directory that every host has. Nothing in it is needed any longer when it is covered.
const PLACE: &str = "/proc";

/// What stays: what the kernel shows, and what the server opens. None of it keeps a disk in use.
const KEPT: [(&str, Point); 4] = [
    ("proc", Point::Directory),
    ("sys", Point::Directory),
    ("dev/fuse", Point::File),
    ("dev/null", Point::File),
];

/// Gives the mount namespace of this process an empty root directory with what is kept, and
/// [`VOLUME`]. Nobody else may be in the namespace.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn leave_host() -> io::Result<()> {
    let kept = KEPT.map(|(name, point)| {
        let mount = of_host(&Path::new("/").join(name)).ok();
        (Path::new(name), point, mount)
    });
    let place = Path::new(PLACE);
    fresh("tmpfs", &[("mode", "755")], HARMLESS)?.place_at(place)?;
    for (name, point, mount) in kept {
        let (at, Some(mount)) = (place.join(name), mount) else { continue };
        match point {
            Point::Directory => fs::create_dir_all(&at)?,
            Point::File => {
                fs::create_dir_all(at.parent().unwrap_or(place))?;
                fs::File::create_new(&at)?;
            }
        }
        mount.place_at(&at)?;
    }
    fs::create_dir(place.join(VOLUME.trim_start_matches('/')))?;
    change_root(place)
}
