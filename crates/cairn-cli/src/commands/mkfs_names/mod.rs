//! The names and options of other makers of filesystems: the program called as `mke2fs`,
//! `mkfs.ext4`, `mkfs.ext3`, `mkfs.ext2` or `mkfs.f2fs`, or as `cairn mkfs.ext4 …`.
//!
//! What their options mean they mean here. What Cairn does not have is refused by name.

mod asked;
mod f2fs;
mod letters;
mod mke2fs;

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use cairn::{Cause, Format, ImageSpec, MkfsOptions, Part};
use cairn_base::names::Escaped;
use cairn_build::{Free, Options, Rules, Shape, Size, Source};
use cairn_vfs::Timestamp;

use self::asked::{Answer, Asked};
use super::build::failure;
use crate::confirm;
use crate::failure::{Failure, Outcome, Status};
use crate::output;
use crate::session::{now, source_date_epoch};
use crate::signals::remove_unfinished;

/// A maker whose options are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    /// The `N` of `mkfs.extN`, or 0 for `mke2fs`.
    Ext(u8),
    F2fs,
}

fn maker(name: &OsStr) -> Option<Maker> {
    let name = Path::new(name).file_name()?;
    Some(match name.as_bytes() {
        b"mke2fs" => Maker::Ext(0),
        b"mkfs.ext2" => Maker::Ext(2),
        b"mkfs.ext3" => Maker::Ext(3),
        b"mkfs.ext4" => Maker::Ext(4),
        b"mkfs.f2fs" => Maker::F2fs,
        _ => return None,
    })
}

/// Runs a command line of another maker. `None` if it is none.
#[must_use]
pub fn run(arguments: &[OsString]) -> Option<Status> {
    let (maker, name, words) = match arguments {
        [program, words @ ..] if maker(program).is_some() => (maker(program)?, program, words),
        [_, command, words @ ..] if !command.as_bytes().contains(&b'/') => {
            (maker(command)?, command, words)
        }
        _ => return None,
    };
    let name = Path::new(name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let answered = match maker {
        Maker::Ext(kind) => mke2fs::parse(&name, kind, words),
        Maker::F2fs => f2fs::parse(&name, words),
    };
    let done = answered.and_then(|answer| match answer {
        Answer::Text(text) => {
            output::with_stdout(|stdout| stdout.write_fmt(format_args!("{text}")))
        }
        Answer::Make(asked) => make(*asked),
    });
    Some(match done {
        Ok(()) => Status::Success,
        Err(failure) => {
            output::report(&failure);
            // The makers know no other.
            if failure.status == Status::Success { Status::Success } else { Status::Failed }
        }
    })
}

fn make(asked: Asked) -> Outcome {
    let Asked { mut options, tree, device, asks } = asked;
    options.time = source_date_epoch()?.or(options.time);
    if let Some(tree) = tree {
        return fill(options, tree, &device);
    }
    let image = named(device);
    let on_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    options.overwrite |= asks && !on_terminal;
    loop {
        match cairn::mkfs(&image, &options) {
            Err(error) => match error.cause() {
                Cause::WouldOverwrite { found } if asks && confirm::can_ask() => {
                    confirm::ask(&format!("{} holds {found}. Overwrite it?", error.image()))?;
                    options.overwrite = true;
                }
                _ => return Err(error.into()),
            },
            Ok(()) => return Ok(()),
        }
    }
}

/// The image of this name. What these programs make has the name as it is; a `?` may follow that of
/// an image that is there.
fn named(device: OsString) -> ImageSpec {
    match ImageSpec::parse(&device) {
        Ok(image) if image.part == Part::Whole && image.exists() => image,
        _ => ImageSpec::whole(PathBuf::from(device)),
    }
}

/// `-d`: a directory (what is in it) or an archive.
fn fill(options: MkfsOptions, tree: OsString, device: &OsStr) -> Outcome {
    let output = PathBuf::from(device);
    let file = std::fs::metadata(&output).ok();
    let is_device = file.as_ref().is_some_and(|file| file.file_type().is_block_device());
    let there = file.map(|file| file.len()).filter(|len| *len > 0);
    let size = match options.size.or(there) {
        Some(size) => Size::Exact(size),
        // A device is filled.
        None if is_device => Size::Auto,
        None => {
            let name = output.escaped();
            return Err(Failure::usage(format!("{name}: does not exist: give a size behind it")));
        }
    };
    if options.block_size.is_some_and(|size| size != 4096) {
        return Err(Failure::usage("-b: blocks have 4096 bytes with -d: leave it out"));
    }
    let mut name = tree;
    if Path::new(&name).is_dir() {
        name.push("/");
    }
    let time = options.time;
    let latest = time.map(|seconds| Timestamp { seconds, nanoseconds: 0 });
    let build = Options {
        output,
        sources: vec![Source { name, platform: None }],
        format: Format::Ext4,
        size,
        free: Free::Bytes(0),
        label: options.label,
        uuid: options.uuid,
        features: options.features,
        casefold: options.casefold,
        inodes: options.inodes,
        reserved_percent: options.reserved_percent.unwrap_or(5.0),
        rules: Rules { latest, ..Rules::default() },
        time,
        now: now()?,
        overwrite: true,
        shape: Shape::Raw,
        dig_holes: false,
        tuning: options.tuning,
        root_owner: options.root_owner,
        read_only: false,
        disk: None,
    };
    remove_unfinished()?;
    cairn_build::build(build).map(drop).map_err(failure)
}

#[cfg(test)]
mod tests;
