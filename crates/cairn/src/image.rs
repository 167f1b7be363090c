//! Names of images: `IMAGE`, `IMAGE#2` (a partition) or `IMAGE?offset=1048576` (a byte offset).
//!
//! Nothing is opened here. If a file with the whole name exists, the name means that file: a file
//! called `disk#2` can be named.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use cairn_base::options::parse_size;

use crate::error::{Cause, Error};

/// Which part of a file or device holds the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// A partition by its number in the GPT or MBR table, from 1.
    Partition(u32),
    /// Everything from this byte on.
    Offset(u64),
}

/// Where an image is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Location {
    /// A file or block device of this system.
    File(PathBuf),
}

/// A parsed image name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageSpec {
    /// Where it is.
    pub location: Location,
    /// The part of it.
    pub part: Part,
}

impl ImageSpec {
    /// All of a file or device, even if its name contains `#` or `?`.
    #[must_use]
    pub fn whole(path: impl Into<PathBuf>) -> Self {
        Self { location: Location::File(path.into()), part: Part::Whole }
    }

    /// Parses a name as given on a command line.
    ///
    /// # Errors
    /// The text after `#` or `?` is not a partition number or an `offset=`.
    pub fn parse(name: &OsStr) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::new("", Cause::Address("the image name is empty".into())));
        }
        if Path::new(name).exists() {
            return Ok(Self::whole(name));
        }
        let bytes = name.as_bytes();
        let Some(at) = bytes.iter().rposition(|byte| matches!(byte, b'#' | b'?')) else {
            return Ok(Self::whole(name));
        };
        let (path, selector) = bytes.split_at(at);
        // If a slash follows the mark, the mark is part of a directory's name.
        if path.is_empty() || selector.contains(&b'/') {
            return Ok(Self::whole(name));
        }
        let part = parse_part(&String::from_utf8_lossy(selector))
            .map_err(|why| Error::new(name.to_string_lossy(), Cause::Address(why)))?;
        let path = OsString::from_vec(path.to_vec());
        Ok(Self { location: Location::File(path.into()), part })
    }

    /// The file or block device; `None` if the image is not one of this system.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match &self.location {
            Location::File(path) => Some(path),
        }
    }

    /// Whether it is there, as far as its name tells.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.file().is_none_or(Path::exists)
    }

    /// The name of what holds the image, without the part of it.
    #[must_use]
    pub fn name(&self) -> PathBuf {
        match &self.location {
            Location::File(path) => path.clone(),
        }
    }

    /// The name that [`ImageSpec::parse`] reads back, byte for byte.
    #[must_use]
    pub fn to_os_string(&self) -> OsString {
        let mut name = self.name().into_os_string();
        match self.part {
            Part::Whole => {}
            Part::Partition(number) => name.push(format!("#{number}")),
            Part::Offset(offset) => name.push(format!("?offset={offset}")),
        }
        name
    }

    /// The same image with an absolute path, so that it means the same from another working
    /// directory.
    ///
    /// # Errors
    /// The file does not exist or cannot be reached.
    pub fn canonical(&self) -> Result<Self, Error> {
        let location = match &self.location {
            Location::File(path) => {
                Location::File(std::fs::canonicalize(path).map_err(|error| {
                    let operation = format!("open {}", path.display());
                    Error::new(self, Cause::Open(cairn_block::Error::from_io(operation, error)))
                })?)
            }
        };
        Ok(Self { location, part: self.part })
    }
}

fn parse_part(selector: &str) -> Result<Part, String> {
    if let Some(number) = selector.strip_prefix('#') {
        return match number.parse() {
            Ok(number) if number > 0 => Ok(Part::Partition(number)),
            _ => Err(format!(
                "'{number}' is not a partition number; partitions count from 1, as in IMAGE#2"
            )),
        };
    }
    let query = selector.trim_start_matches('?');
    let offset = query.strip_prefix("offset=").ok_or_else(|| {
        format!("'?{query}' is not understood; only ?offset=BYTES can follow the image's name")
    })?;
    parse_size(offset).map(Part::Offset).ok_or_else(|| {
        format!("'{offset}' is not a number of bytes, as in ?offset=1048576 or ?offset=1M")
    })
}

impl fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_os_string().display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Result<ImageSpec, Error> {
        ImageSpec::parse(OsStr::new(name))
    }

    #[test]
    fn reads_the_three_forms() {
        assert_eq!(parse("/no/disk.img").unwrap(), ImageSpec::whole("/no/disk.img"));
        assert_eq!(parse("/no/disk.img#12").unwrap().part, Part::Partition(12));
        let offset = parse("/no/disk.img?offset=1M").unwrap();
        assert_eq!(
            (offset.file(), offset.part),
            (Some(Path::new("/no/disk.img")), Part::Offset(1 << 20))
        );
    }

    #[test]
    fn displays_what_it_parses() {
        for name in ["/no/a", "/no/a#3", "/no/a?offset=512"] {
            assert_eq!(parse(name).unwrap().to_string(), name);
        }
    }

    #[test]
    fn a_mark_in_a_directory_is_part_of_the_path() {
        assert_eq!(parse("/no/c#/disk").unwrap(), ImageSpec::whole("/no/c#/disk"));
    }

    #[test]
    fn an_existing_name_is_taken_literally() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk#2");
        std::fs::write(&path, b"x").unwrap();
        assert_eq!(ImageSpec::parse(path.as_os_str()).unwrap(), ImageSpec::whole(&path));
    }

    #[test]
    fn refuses_nonsense() {
        for name in
            ["", "/no/a#0", "/no/a#x", "/no/a?size=3", "/no/a?offset=", "/no/a?offset=9999999999T"]
        {
            let error = parse(name).expect_err(name);
            assert!(matches!(error.cause(), Cause::Address(_)), "{name}: {error}");
        }
    }
}
