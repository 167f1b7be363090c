//! The system's mount table, `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The kernel's number for it, unlike those of all other mounts of the system.
    pub id: String,
    /// Device number, `major:minor`.
    pub device: String,
    /// The user who owns the daemon (`user_id` of a FUSE mount).
    pub owner: u32,
    /// Mount point.
    pub point: PathBuf,
    /// Type, such as `fuse.cairn`.
    pub kind: String,
    /// Source: for Cairn, the image.
    pub source: String,
    /// True if the mount is read-only.
    pub read_only: bool,
    /// Options of the mount and of its filesystem.
    pub flags: Vec<String>,
}

impl Mount {
    /// True if Cairn may serve it. A mount that root made directly has no subtype in the table.
    #[must_use]
    pub fn is_cairn(&self) -> bool {
        matches!(self.kind.as_str(), "fuse.cairn" | "fuseblk.cairn" | "fuse" | "fuseblk")
    }

    /// True if a table still has it. The kernel gives the numbers of a mount that is gone to the
    /// next ones: the path has to be the same, too.
    #[must_use]
    pub fn is_in(&self, table: &[u8]) -> bool {
        let same = |other: &Self| {
            other.id == self.id && other.device == self.device && other.point == self.point
        };
        parse_all(table).any(|other| same(&other))
    }
}

/// The mount at exactly this path (the topmost, if there are several).
///
/// # Errors
/// `/proc` cannot be read.
pub fn find(point: &Path) -> Outcome<Option<Mount>> {
    Ok(all()?.into_iter().rfind(|mount| mount.point == point))
}

/// All mounts, in the order of the table.
///
/// # Errors
/// `/proc` cannot be read.
pub fn all() -> Outcome<Vec<Mount>> {
    const TABLE: &str = "/proc/self/mountinfo";
    let table =
        std::fs::read(TABLE).map_err(|error| Failure::start(TABLE, &error, "mount /proc"))?;
    Ok(parse_all(&table).collect())
}

/// All mounts of a table, in its order.
pub fn parse_all(table: &[u8]) -> impl Iterator<Item = Mount> {
    table.split(|byte| *byte == b'\n').filter_map(parse)
}

/// `36 35 98:0 /root /point rw,noatime master:1 - type source super-options`
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = String::from_utf8_lossy(fields.next()?).into_owned();
    let device = String::from_utf8_lossy(fields.nth(1)?).into_owned();
    let point = unescape(fields.nth(1)?);
    let options = fields.next()?;
    let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(behind.next()?).into_owned();
    let source = unescape(behind.next()?).to_string_lossy().into_owned();
    let super_options = behind.next().unwrap_or_default();
    let flags =
        options.split(|byte| *byte == b',').chain(super_options.split(|byte| *byte == b','));
    let flags: Vec<String> = flags.map(|flag| String::from_utf8_lossy(flag).into_owned()).collect();
    let read_only = flags.iter().any(|flag| flag == "ro");
    let owner = super_options.split(|byte| *byte == b',').find_map(|option| {
        let digits = std::str::from_utf8(option.strip_prefix(b"user_id=")?).ok()?;
        digits.parse().ok()
    });
    let owner = owner.unwrap_or(0);
    Some(Mount { id, device, owner, point: point.into(), kind, source, read_only, flags })
}

/// Decodes `\040` and the like, which the table has for blanks and backslashes.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while let Some(byte) = field.get(at) {
        let octal = field.get(at + 1..at + 4).filter(|_| *byte == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        bytes.push(octal.unwrap_or(*byte));
        at += if octal.is_some() { 4 } else { 1 };
    }
    OsString::from_vec(bytes)
}

/// The absolute path of a mount point whose server may be dead: only its parent is accessed.
///
/// # Errors
/// The parent does not exist.
pub fn absolute(point: &Path) -> Outcome<PathBuf> {
    let failed = |error: std::io::Error| Failure::host(point, &error);
    let mut trimmed = point.as_os_str().as_bytes();
    while let [rest @ .., b'/'] = trimmed
        && !rest.is_empty()
    {
        trimmed = rest;
    }
    let point = Path::new(std::ffi::OsStr::from_bytes(trimmed));
    match (point.parent(), point.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(std::fs::canonicalize(parent).map_err(failed)?.join(name))
        }
        _ => std::fs::canonicalize(point).map_err(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_line() {
        let line = b"79 28 0:52 / /mnt/my\\040disk rw,nosuid shared:1 - fuse.cairn /img/a\\134b#2 \
            ro,user_id=0";
        let mount = parse(line).unwrap();
        assert_eq!(mount.point, Path::new("/mnt/my disk"));
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("fuse.cairn", "/img/a\\b#2"));
        assert!(mount.is_cairn() && mount.read_only);
        assert_eq!((mount.device.as_str(), mount.owner), ("0:52", 0));
    }

    #[test]
    fn a_mount_with_the_numbers_of_one_that_is_gone_is_another() {
        let table = b"79 28 0:52 / /first rw - fuse.cairn a rw,user_id=0\n\
            80 28 0:53 / /second rw - fuse.cairn b rw,user_id=0\n";
        let [first, second] = parse_all(table).collect::<Vec<_>>().try_into().unwrap();
        assert!(first.is_in(table) && second.is_in(table));
        let later = b"79 28 0:52 / /third rw - fuse.cairn c rw,user_id=0\n\
            80 28 0:52 / /second rw - fuse.cairn d rw,user_id=0\n";
        assert!(!first.is_in(later) && !second.is_in(later));
    }

    #[test]
    fn finds_the_root_and_nothing_else() {
        assert!(find(Path::new("/")).unwrap().is_some());
        assert!(find(Path::new("/no/such/mount")).unwrap().is_none());
    }

    #[test]
    fn trailing_slashes_do_not_matter() {
        assert_eq!(absolute(Path::new("/proc//")).unwrap(), Path::new("/proc"));
        assert_eq!(absolute(Path::new("//")).unwrap(), Path::new("/"));
    }
}
