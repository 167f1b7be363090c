//! `cairn ls`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use cairn_vfs::{Attributes, FileKind, FileSystem, walk};

use crate::failure::{Failure, Outcome};
use crate::print;
use crate::session::{Access, shown, with_volume};

/// Arguments of `ls`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn ls -l disk.img /etc

Times are UTC; owners are numbers.")]
pub struct Args {
    /// Long format: mode, links, owner, group, size, time, name.
    #[arg(short = 'l', long)]
    pub long: bool,
    /// Go into directories.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Show names that begin with a dot, too.
    #[arg(short = 'a', long)]
    pub all: bool,
    /// The image.
    pub image: OsString,
    /// What to list; the root if absent.
    pub paths: Vec<OsString>,
}

/// Lists.
///
/// # Errors
/// A path does not exist or cannot be read.
pub fn run(args: &Args) -> Outcome {
    with_volume(&args.image, Access::Read, |fs| {
        print!("{}", list(fs, args)?);
        Ok(())
    })
}

/// What `run` prints.
///
/// # Errors
/// As [`run`].
pub fn list(fs: &dyn FileSystem, args: &Args) -> Outcome<String> {
    let mut text = String::new();
    let root = [OsString::from("/")];
    let paths = if args.paths.is_empty() { &root[..] } else { &args.paths[..] };
    for path in paths {
        let path = path.as_bytes();
        let failed = |error| Failure::volume(shown(path), &error);
        let found = walk::resolve(fs, path, !args.long).map_err(failed)?;
        if found.kind != FileKind::Directory {
            line(fs, args, path, &found, &mut text).map_err(failed)?;
        } else if args.recursive {
            recurse(fs, args, path, &found, &mut text).map_err(failed)?;
        } else {
            if paths.len() > 1 {
                let _ = writeln!(text, "{}:", shown(path));
            }
            directory(fs, args, &found, &mut text).map_err(failed)?;
        }
    }
    Ok(text)
}

fn recurse(
    fs: &dyn FileSystem,
    args: &Args,
    path: &[u8],
    start: &Attributes,
    text: &mut String,
) -> cairn_vfs::Result<()> {
    walk::walk(fs, start.ino, &mut |visit| {
        let name = visit.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if !args.all && name.starts_with(b".") {
            return Ok(walk::Next::Skip);
        }
        if visit.attributes.kind == FileKind::Directory {
            let start = shown(path);
            let below = shown(visit.path);
            let gap = if text.is_empty() { "" } else { "\n" };
            let slash = if below.is_empty() || start.ends_with('/') { "" } else { "/" };
            let _ = writeln!(text, "{gap}{start}{slash}{below}:");
            directory(fs, args, visit.attributes, text)?;
        }
        Ok(walk::Next::Continue)
    })
}

fn directory(fs: &dyn FileSystem, args: &Args, of: &Attributes, text: &mut String) -> cairn_vfs::Result<()> {
    let mut entries = walk::list(fs, of.ino)?;
    entries.retain(|entry| args.all || !entry.name.starts_with(b"."));
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        if args.long {
            let attributes = fs.getattr(entry.ino)?;
            line(fs, args, &entry.name, &attributes, text)?;
        } else {
            let _ = writeln!(text, "{}", shown(&entry.name));
        }
    }
    Ok(())
}

fn line(
    fs: &dyn FileSystem,
    args: &Args,
    name: &[u8],
    attributes: &Attributes,
    text: &mut String,
) -> cairn_vfs::Result<()> {
    if !args.long {
        let _ = writeln!(text, "{}", shown(name));
        return Ok(());
    }
    let size = match attributes.kind {
        FileKind::BlockDevice | FileKind::CharDevice => {
            let (major, minor) = print::device(attributes.device);
            format!("{major}, {minor}")
        }
        _ => attributes.size.to_string(),
    };
    let _ = write!(
        text,
        "{} {:>3} {:>5} {:>5} {size:>10} {} {}",
        print::mode(attributes),
        attributes.links,
        attributes.uid,
        attributes.gid,
        print::time(attributes.mtime),
        shown(name),
    );
    if attributes.kind == FileKind::Symlink {
        let _ = write!(text, " -> {}", shown(&fs.readlink(attributes.ino)?));
    }
    text.push('\n');
    Ok(())
}
