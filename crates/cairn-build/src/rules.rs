//! [`Rules`]: what a build changes in the attributes of its sources, and what it leaves out.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, fs, io};

use cairn_vfs::{Acl, Timestamp, acl};

use crate::error::{Error, Result};
use crate::node::Metadata;
use crate::path::MemberPath;

/// A range of ids and what they become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// First id in the sources.
    pub from: u32,
    /// What it becomes.
    pub to: u32,
    /// Number of ids.
    pub count: u32,
}

/// A test for a path, which has no leading slash, and whether it is that of a directory.
pub type PathTest = Arc<dyn Fn(&[u8], bool) -> bool + Send + Sync>;

/// What a build changes. Nothing by default.
#[derive(Clone, Default)]
pub struct Rules {
    /// Owner of everything. It goes before the map.
    pub uid: Option<u32>,
    /// Group of everything.
    pub gid: Option<u32>,
    /// Owners by range. The first range that holds an id decides; others stay.
    pub uid_map: Vec<IdRange>,
    /// Groups by range.
    pub gid_map: Vec<IdRange>,
    /// Later times become this.
    pub latest: Option<Timestamp>,
    /// What is left out, with everything below it.
    pub exclude: Vec<PathTest>,
    /// Lists that state attributes, in the forms of other tools. They hold for what the other rules
    /// have left, later ones over earlier ones.
    pub manifests: Vec<PathBuf>,
    /// Where the volume is mounted, for the forms of Android, which name files with it. Without
    /// slashes at its ends.
    pub mount_point: Vec<u8>,
    /// Files of the host that are left out, by device and inode: what is being written.
    pub own: Vec<(u64, u64)>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("uid", &self.uid)
            .field("gid", &self.gid)
            .finish_non_exhaustive()
    }
}

fn mapped(id: u32, map: &[IdRange]) -> u32 {
    let target = |range: &IdRange| {
        let distance = id.checked_sub(range.from).filter(|distance| *distance < range.count)?;
        range.to.checked_add(distance)
    };
    map.iter().find_map(target).unwrap_or(id)
}

impl Rules {
    /// Refuses a file that is read, if it is the one that will be replaced: nothing would be left
    /// of it. What cannot be looked at is an error of the call that reads it.
    ///
    /// # Errors
    /// It is.
    pub(crate) fn refuse_output(
        &self,
        source: &str,
        found: io::Result<fs::Metadata>,
    ) -> Result<()> {
        match found
            .is_ok_and(|found| found.is_file() && self.own.contains(&(found.dev(), found.ino())))
        {
            true => Err(Error::Usage(format!(
                "{source}: is a source, and the image that is made: give the new image another name"
            ))),
            false => Ok(()),
        }
    }

    /// The time of directories that no source states.
    pub(crate) fn beginning(&self) -> Timestamp {
        Timestamp::default()
    }

    /// True if the path, or a directory above it, is left out.
    pub(crate) fn excludes(&self, path: &MemberPath, is_directory: bool) -> bool {
        if self.exclude.is_empty() {
            return false;
        }
        let mut bytes = Vec::new();
        let last = path.components().len().saturating_sub(1);
        path.components().iter().enumerate().any(|(at, name)| {
            if !bytes.is_empty() {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(name);
            self.exclude.iter().any(|test| test(&bytes, is_directory || at < last))
        })
    }

    /// Bounds the times of a node.
    pub(crate) fn date(&self, metadata: &mut Metadata) {
        if let Some(latest) = self.latest {
            for time in [&mut metadata.mtime, &mut metadata.atime, &mut metadata.ctime] {
                *time = (*time).min(latest);
            }
        }
    }

    /// Changes the owners of a node.
    pub(crate) fn own(&self, metadata: &mut Metadata) {
        metadata.uid = self.uid.unwrap_or_else(|| mapped(metadata.uid, &self.uid_map));
        metadata.gid = self.gid.unwrap_or_else(|| mapped(metadata.gid, &self.gid_map));
        if self.uid_map.is_empty() && self.gid_map.is_empty() {
            return;
        }
        for xattr in &mut metadata.xattrs {
            if matches!(&*xattr.name, acl::ACCESS | acl::DEFAULT)
                && let Some(list) = self.mapped_acl(&xattr.value)
            {
                xattr.value = list.into();
            }
        }
    }

    /// The list with its named users and groups mapped.
    fn mapped_acl(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut entries = Acl::from_xattr(value).ok()??.entries().to_vec();
        for entry in &mut entries {
            entry.tag = match entry.tag {
                acl::Tag::User(id) => acl::Tag::User(mapped(id, &self.uid_map)),
                acl::Tag::Group(id) => acl::Tag::Group(mapped(id, &self.gid_map)),
                other => other,
            };
        }
        Acl::new(entries).ok().map(|list| list.to_xattr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_outside_of_the_map_stay() {
        let map = [IdRange { from: 100_000, to: 0, count: 65_536 }];
        assert_eq!(
            [99_999, 100_000, 101_000, 165_536].map(|id| mapped(id, &map)),
            [99_999, 0, 1000, 165_536]
        );
    }

    #[test]
    fn a_directory_that_is_left_out_takes_what_is_below_with_it() {
        let rules = Rules { exclude: vec![Arc::new(|path, _| path == b"a/b")], ..Rules::default() };
        let excludes = |path: &[u8]| rules.excludes(&MemberPath::parse(path).unwrap(), false);
        assert!(excludes(b"a/b") && excludes(b"a/b/c") && !excludes(b"a") && !excludes(b"a/bc"));
        let directories: PathTest = Arc::new(|path, is_directory| is_directory && path == b"a");
        let rules = Rules { exclude: vec![directories], ..Rules::default() };
        let excludes = |path: &[u8], is| rules.excludes(&MemberPath::parse(path).unwrap(), is);
        assert!(excludes(b"a", true) && excludes(b"a/b", false) && !excludes(b"a", false));
    }
}
