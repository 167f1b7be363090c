//! `-t TYPE` of `mount`: the expected format of the image. mount(8) passes its own type on to its
//! helpers.

use std::path::PathBuf;

use cairn::{Format, ImageSpec};

use crate::failure::{Failure, Outcome};

/// The type that the caller gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Not given: the image tells.
    Any,
    /// This format.
    Of(Format),
}

/// Parses a type.
///
/// # Errors
/// Cairn serves no such type.
pub fn parse(text: &str) -> Result<Kind, String> {
    let name = text.strip_prefix("fuse.").unwrap_or(text);
    let name = name.strip_prefix("cairn.").unwrap_or(name);
    match name {
        "auto" | "cairn" | "fuse" | "fuseblk" => Ok(Kind::Any),
        // These are one format with different features.
        "ext2" | "ext3" | "ext4" => Ok(Kind::Of(Format::Ext4)),
        "f2fs" => Ok(Kind::Of(Format::F2fs)),
        _ => Err("give ext4, ext3, ext2, f2fs or auto".to_owned()),
    }
}

/// Checks that the image has the given format.
///
/// # Errors
/// The image has another format, or it cannot be read.
pub fn check(kind: Option<Kind>, image: &ImageSpec, devices: &[PathBuf]) -> Outcome {
    let Some(Kind::Of(said)) = kind else { return Ok(()) };
    let found = cairn::inspect(image, devices)?.format();
    if found == said {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{image}: it contains {found}, not {said}: leave out -t, or give -t {found}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_what_mount_passes_on() {
        for text in ["auto", "cairn", "fuse", "fuse.cairn"] {
            assert_eq!(parse(text), Ok(Kind::Any), "{text}");
        }
        for text in ["ext2", "ext4", "cairn.ext4", "fuse.cairn.ext3"] {
            assert_eq!(parse(text), Ok(Kind::Of(Format::Ext4)), "{text}");
        }
        assert_eq!(parse("f2fs"), Ok(Kind::Of(Format::F2fs)));
        assert!(parse("xfs").unwrap_err().contains("ext4"));
    }
}
