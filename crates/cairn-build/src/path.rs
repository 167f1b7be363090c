//! Paths of members: bytes from an archive become a [`MemberPath`] before they name anything.
//!
//! Invariant: no component is empty, `.` or `..`, holds NUL, or is longer than 255 bytes. A path
//! without components is the root.

use cairn_vfs::Name;

/// Most components of a path.
const DEPTH_MAX: usize = 4096;

/// The bytes of a checked name.
type NameBytes = Box<[u8]>;

/// A checked path below the root of the image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct MemberPath(Vec<NameBytes>);

impl MemberPath {
    /// Checks a path as an archive has it. `./a/b/` and `a//b` mean `a/b`.
    ///
    /// # Errors
    /// The path is absolute, leads upwards, or no directory can hold one of its names.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.first() == Some(&b'/') {
            return Err("the name is absolute: archive the tree with relative names".into());
        }
        Self::relative(bytes)
    }

    /// As [`MemberPath::parse`], for the target of a hard link: a leading slash means the root.
    ///
    /// # Errors
    /// The path leads upwards, or no directory can hold one of its names.
    pub(crate) fn relative(bytes: &[u8]) -> Result<Self, String> {
        let mut components = Vec::new();
        for component in bytes.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." => {}
                b".." => return Err("the name leads upwards with '..'".into()),
                name => {
                    let name = Name::check(name).map_err(|bad| bad.what().to_owned())?;
                    components.push(name.bytes().into());
                }
            }
        }
        if components.len() > DEPTH_MAX {
            return Err(format!("directories nest deeper than {DEPTH_MAX}"));
        }
        Ok(Self(components))
    }

    /// The path of one name.
    pub(crate) fn of_name(name: &[u8]) -> Result<Self, String> {
        let name = Name::check(name).map_err(|bad| bad.what().to_owned())?;
        Ok(Self(vec![name.bytes().into()]))
    }

    /// This path with a name behind it.
    pub(crate) fn join(&self, name: &[u8]) -> Result<Self, String> {
        let mut path = self.clone();
        path.0.extend(Self::of_name(name)?.0);
        Ok(path)
    }

    pub(crate) fn components(&self) -> &[NameBytes] {
        &self.0
    }

    /// The directory and the name in it; `None` for the root.
    pub(crate) fn split(&self) -> Option<(&[NameBytes], &[u8])> {
        self.0.split_last().map(|(name, directory)| (directory, &**name))
    }

    /// The path without its last component.
    pub(crate) fn parent(&self) -> Self {
        Self(self.split().map_or(Vec::new(), |(directory, _)| directory.to_vec()))
    }

    /// The path with slashes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.join(&b'/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out_of_the_image() {
        for good in [&b"a/b"[..], b"./a//b/", b"a/./b"] {
            assert_eq!(MemberPath::parse(good).unwrap().bytes(), b"a/b");
        }
        assert_eq!(MemberPath::parse(b"./").unwrap().components().len(), 0);
        for bad in [&b"/etc"[..], b"../x", b"a/../../x", b"a\0b", &[b'x'; 256]] {
            assert!(MemberPath::parse(bad).is_err(), "{}", bad.escape_ascii());
        }
        assert!(MemberPath::parse(&b"a/".repeat(5000)).is_err());
    }
}
