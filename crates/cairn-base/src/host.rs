//! Files of the host that are made or replaced under a name that the caller gives.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Most links that are followed, as in Linux.
const MOST_LINKS: u32 = 40;
/// The mode bits of a directory such as /tmp: all may write, and remove only what is their own.
const STICKY_FOR_ALL: u32 = 0o1002;

/// A link that is not followed.
#[derive(Debug)]
struct ForeignLink;

impl fmt::Display for ForeignLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a symbolic link of another user in a directory that all may write: name the file \
             that it leads to",
        )
    }
}

impl std::error::Error for ForeignLink {}

/// The file that gets the contents if `path` is written: symbolic links in the place of its last
/// name are followed, also to a file that does not exist yet. The result is no link, so a file that
/// takes its place replaces nothing but the file that was meant.
///
/// In a directory with the sticky bit that all may write, such as /tmp, a link is followed only if
/// it belongs to this user or to the owner of the directory. Linux does so too where
/// `fs.protected_symlinks` is on, but only for the last name of a path. Here the rule is for all of
/// them.
///
/// # Errors
/// A link is not followed (`PermissionDenied`), links lead in a circle, or a directory cannot be
/// read.
pub fn behind_links(path: &Path) -> Result<PathBuf> {
    // Without a slash at its end, behind which lstat(2) follows a link.
    let mut place: PathBuf = path.components().collect();
    for _ in 0..MOST_LINKS {
        check_parents(&place)?;
        let found = match std::fs::symlink_metadata(&place) {
            Ok(found) if found.is_symlink() => found,
            Ok(_) => return Ok(place),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(place),
            Err(error) => return Err(error),
        };
        check_link(parent(&place), &found)?;
        let parent = parent(&place);
        let target = std::fs::read_link(&place)?;
        place = parent.join(&target);
        if target.as_os_str().as_bytes().ends_with(b"/") {
            place = place.components().collect();
        }
    }
    Err(Errno::LOOP.into())
}

fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// True of what belongs to another user, neither to this one nor to the owner of the directory, in
/// a directory with the sticky bit that all may write: this user cannot remove it, and need not
/// have asked for it. A link there is not followed.
///
/// # Errors
/// It or its directory cannot be looked at.
pub fn is_foreign(path: &Path) -> Result<bool> {
    is_of_another(&std::fs::symlink_metadata(path)?, parent(path))
}

fn is_of_another(found: &Metadata, directory: &Path) -> Result<bool> {
    let directory = std::fs::metadata(directory)?;
    let is_open_to_all = directory.mode() & STICKY_FOR_ALL == STICKY_FOR_ALL;
    let own = rustix::process::geteuid().as_raw();
    Ok(is_open_to_all && found.uid() != own && found.uid() != directory.uid())
}

/// Opens a regular file, and neither a link that has taken its place meanwhile nor a pipe, which
/// would wait for a writer.
///
/// # Errors
/// It cannot be opened, or is something else.
pub fn open_regular(path: &Path, options: &mut OpenOptions) -> Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(Error::other("it is no regular file")),
    }
}

/// Refuses a link that is not followed. `parent` is the directory that it is in.
fn check_link(parent: &Path, link: &Metadata) -> Result<()> {
    match is_of_another(link, parent)? {
        true => Err(Error::new(ErrorKind::PermissionDenied, ForeignLink)),
        false => Ok(()),
    }
}

/// Refuses links on the way to a file that are not followed.
fn check_parents(path: &Path) -> Result<()> {
    // The names that are still to be looked up, the next one last.
    let names = |path: &Path| -> Vec<PathBuf> {
        path.components().rev().map(|name| PathBuf::from(name.as_os_str())).collect()
    };
    let (mut at, mut links) = (PathBuf::new(), 0);
    let mut left = names(path.parent().unwrap_or(Path::new("")));
    while let Some(name) = left.pop() {
        let below = at.join(&name);
        // What cannot be looked up is an error of the call that makes the file.
        let Ok(found) = std::fs::symlink_metadata(&below) else { return Ok(()) };
        if !found.is_symlink() {
            at = below;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        check_link(parent(&below), &found)?;
        left.extend(names(&std::fs::read_link(&below)?));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    #[test]
    fn links_are_followed_also_to_what_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink("file", at("link")).unwrap();
        symlink(at("link"), at("second")).unwrap();
        symlink("sub/new", at("dangling")).unwrap();
        symlink("circle", at("circle")).unwrap();
        for (name, leads_to) in [
            ("file", "file"),
            ("link", "file"),
            ("second", "file"),
            ("new", "new"),
            ("dangling", "sub/new"),
            ("none/new", "none/new"),
        ] {
            assert_eq!(behind_links(&at(name)).unwrap(), at(leads_to), "{name}");
        }
        assert_eq!(behind_links(&at("circle")).unwrap_err().raw_os_error(), Some(40));
    }

    /// Root makes the directory and the links of others.
    #[test]
    fn links_of_others_in_a_directory_for_all_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(rustix::process::geteuid().is_root(), "root makes links of others");
        let (shared, aim) = (dir.path().join("shared"), dir.path().join("aim"));
        fs::create_dir(&shared).unwrap();
        let link = shared.join("link");
        symlink(&aim, &link).unwrap();
        fs::create_dir_all(aim.join("below")).unwrap();
        let own = dir.path().join("own");
        symlink("shared/link/below/../below", &own).unwrap();
        for (mode, of_directory, of_link, follows) in [
            (0o1777, 0, 1000, false),
            (0o1777, 0, 0, true),
            (0o1777, 1000, 1000, true),
            (0o1777, 1000, 1001, false),
            (0o1775, 0, 1000, true),
            (0o777, 0, 1000, true),
        ] {
            lchown(&shared, Some(of_directory), None).unwrap();
            fs::set_permissions(&shared, Permissions::from_mode(mode)).unwrap();
            lchown(&link, Some(of_link), None).unwrap();
            let found = behind_links(&shared.join("link/"));
            let case = format!("{mode:o} {of_directory} {of_link}: {found:?}");
            assert_eq!(found.is_ok(), follows, "{case}");
            assert_eq!(is_foreign(&link).unwrap(), !follows, "{case}");
            if let Err(error) = found {
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{case}");
                assert!(error.to_string().contains("name the file"), "{error}");
            }
            // On the way to a file, and behind a link of the user's own.
            let way = behind_links(&shared.join("link/below/file"));
            assert_eq!(way.is_ok(), follows, "{case} {way:?}");
            let way = behind_links(&own.join("file"));
            assert_eq!(way.is_ok(), follows, "{case} {way:?}");
        }
    }
}
