//! The options of commands that take sources: `build` and `sync`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use cairn_build::{IdRange, PathTest, Rules, Source};
use cairn_vfs::Timestamp;

use super::chown::Owner;
use crate::date;
use crate::failure::Outcome;
use crate::pattern::Pattern;
use crate::session::source_date_epoch;

/// What the sources are changed by.
#[derive(Debug, clap::Args)]
pub struct SourceOptions {
    /// Owner of everything.
    #[arg(long, value_name = "UID:GID", value_parser = super::chown::parse_owner)]
    owner: Option<Owner>,
    /// Change users: FROM:TO, or FROM:TO:COUNT for a range. May be repeated.
    #[arg(long, value_name = "MAP", value_parser = parse_map)]
    uid_map: Vec<IdRange>,
    /// Change groups, as --uid-map.
    #[arg(long, value_name = "MAP", value_parser = parse_map)]
    gid_map: Vec<IdRange>,
    /// Set later times to this date; a new volume is made at it. [default: SOURCE_DATE_EPOCH]
    #[arg(long, value_name = "DATE", value_parser = date::parse)]
    mtime: Option<Timestamp>,
    /// Leave out what matches: a name, or with a slash a path in the image; with a slash at its end
    /// directories only. * also matches slashes in a path. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// A list of owners, modes, devices and attributes, which holds for what the sources and the
    /// other options gave: mtree, composefs-dump, a device table (genext2fs, makedevs),
    /// pseudo-files (mksquashfs), fs_config, file_contexts or a state of fakeroot. May be repeated.
    #[arg(long, value_name = "FILE")]
    manifest: Vec<PathBuf>,
    /// Where the volume will be mounted, such as /vendor: fs_config and file_contexts of Android
    /// name files with it.
    #[arg(long, value_name = "DIR", requires = "manifest", value_parser = parse_mount_point)]
    mount_point: Option<String>,
    /// Which image of a container index with several, such as linux/arm64; with build --partition
    /// also whose type a root partition has. [default for the latter: of the programs in it]
    #[arg(long, value_name = "OS/ARCH")]
    pub(super) platform: Option<String>,
}

impl SourceOptions {
    /// What changes.
    ///
    /// # Errors
    /// `SOURCE_DATE_EPOCH` is no number.
    pub(super) fn rules(&self) -> Outcome<Rules> {
        let epoch = source_date_epoch()?.map(|seconds| Timestamp { seconds, nanoseconds: 0 });
        let owner = self.owner.unwrap_or(Owner { uid: None, gid: None });
        Ok(Rules {
            uid: owner.uid,
            gid: owner.gid,
            uid_map: self.uid_map.clone(),
            gid_map: self.gid_map.clone(),
            latest: self.mtime.or(epoch),
            exclude: self.excludes(),
            own: Vec::new(),
            manifests: self.manifest.clone(),
            mount_point: self.mount_point.clone().unwrap_or_default().into_bytes(),
        })
    }

    /// What is left out.
    pub(super) fn excludes(&self) -> Vec<PathTest> {
        self.exclude.iter().map(path_test).collect()
    }

    /// The sources with these names.
    pub(super) fn sources(&self, names: &[OsString]) -> Vec<Source> {
        let platform = &self.platform;
        names.iter().map(|name| Source { name: name.clone(), platform: platform.clone() }).collect()
    }
}

fn parse_map(text: &str) -> Result<IdRange, String> {
    let mut numbers = text.split(':').map(str::parse::<u32>);
    let mut next = || numbers.next().transpose().ok().flatten();
    let (from, to) = (next(), next());
    let count = if text.split(':').count() == 2 { Some(1) } else { next() };
    match (from, to, count) {
        (Some(from), Some(to), Some(count)) if text.split(':').count() <= 3 => {
            Ok(IdRange { from, to, count })
        }
        _ => Err("give FROM:TO or FROM:TO:COUNT, such as 100000:0:65536".into()),
    }
}

/// Without slashes at its ends.
fn parse_mount_point(text: &str) -> Result<String, String> {
    match text.strip_prefix('/') {
        Some(path) if !path.split('/').any(|name| matches!(name, "." | "..")) => {
            Ok(path.trim_matches('/').into())
        }
        _ => Err("give an absolute path, such as /vendor".into()),
    }
}

/// A pattern without a slash is for names; one with a slash is for whole paths. With a slash at its
/// end it is for directories only.
pub(super) fn path_test(pattern: &OsString) -> PathTest {
    let bytes = pattern.as_bytes();
    let (bytes, directories) = match bytes.strip_suffix(b"/") {
        Some(rest) if !rest.is_empty() => (rest, true),
        _ => (bytes, false),
    };
    let fits = move |is_directory: bool| is_directory || !directories;
    if !bytes.contains(&b'/') {
        let pattern = Pattern::parse(bytes);
        return Arc::new(move |path, is_directory| {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            fits(is_directory) && pattern.matches(name)
        });
    }
    let pattern = Pattern::parse(bytes.strip_prefix(b"/").unwrap_or(bytes));
    Arc::new(move |path, is_directory| fits(is_directory) && pattern.matches(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_ids() {
        assert_eq!(parse_map("5:6"), Ok(IdRange { from: 5, to: 6, count: 1 }));
        assert_eq!(
            parse_map("100000:0:65536"),
            Ok(IdRange { from: 100_000, to: 0, count: 65_536 })
        );
        for wrong in ["", "5", "5:", "a:b", "1:2:3:4", "1:2:"] {
            assert!(parse_map(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn patterns_for_names_and_for_paths() {
        let matches = |pattern: &str, path: &[u8]| path_test(&pattern.into())(path, false);
        assert!(matches("*.o", b"src/a.o") && !matches("*.o", b"src/a.c"));
        assert!(matches("/var/cache", b"var/cache") && !matches("/cache", b"var/cache"));
        assert!(matches("var/*", b"var/a/b"));
        for pattern in ["ssh/", "/etc/ssh/", "etc/ssh/"] {
            let test = path_test(&pattern.into());
            assert!(test(b"etc/ssh", true) && !test(b"etc/ssh", false), "{pattern}");
        }
    }
}
