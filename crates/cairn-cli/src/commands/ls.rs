//! `cairn ls`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::Arc;

use cairn_vfs::{Attributes, Error, FileKind, FileSystem, walk};

use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};
use crate::tree::{self, Passed};
use crate::{json, pattern, print};

/// Arguments of `ls`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn ls -l disk.img /etc
  cairn ls --json -R disk.img /home | jq -r '.[] | select(.size > 1000000) | .path'

Names are sorted by their bytes; times are UTC; owners are numbers. On a terminal control characters in names are shown as \\n or \
\\033; in a pipe or file names are written as they are, so that a name with a newline looks like two: programs had better \
read --json.
JSON: an array with one object a file, a line each: what cairn stat --json gives, without extended attributes. A name that is not UTF-8 \
has its exact bytes under path_hex.")]
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
    /// List directories themselves, not what is in them.
    #[arg(short = 'd', long, conflicts_with = "recursive")]
    pub directory: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// What to list; the root if absent.
    pub paths: Vec<OsString>,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        list(fs, self, output)
    }
}

/// Lists.
///
/// # Errors
/// A path does not exist or cannot be read.
pub fn list(fs: &dyn FileSystem, args: &Args, output: &mut Output<'_>) -> Outcome {
    let root = [OsString::from("/")];
    let paths = pattern::expand(fs, if args.paths.is_empty() { &root } else { &args.paths })?;
    let mut listing = Listing {
        fs,
        args,
        headings: args.recursive || paths.len() > 1,
        first: true,
        array: None,
        passed: Passed::default(),
        output,
    };
    if args.json {
        listing.array = Some(json::Array::default());
    }
    for path in &paths {
        listing.path(path)?;
    }
    if let Some(array) = listing.array {
        array.end(listing.output)?;
    }
    listing.passed.end()
}

struct Listing<'a, 'o> {
    fs: &'a dyn FileSystem,
    args: &'a Args,
    /// Each directory's entries stand under its name.
    headings: bool,
    /// Nothing was printed yet.
    first: bool,
    array: Option<json::Array>,
    /// Entries that could not be read.
    passed: Passed,
    output: &'a mut Output<'o>,
}

impl Listing<'_, '_> {
    fn path(&mut self, path: &[u8]) -> Outcome {
        let failed = |error| Failure::volume(shown(path), &error);
        let follow = !self.args.long && !self.args.directory;
        let found = walk::resolve(self.fs, path, follow).map_err(failed)?;
        if found.kind != FileKind::Directory || self.args.directory {
            self.first = false;
            return self.entry(path, path, &found);
        }
        let mut seen = HashSet::new();
        let mut pending = vec![(path.to_vec(), found)];
        while let Some((path, directory)) = pending.pop() {
            if !seen.insert(directory.ino) {
                let repeated = Error::Corrupt(Arc::new(walk::TreeError::Repeated(directory.ino)));
                return Err(Failure::volume(shown(&path), &repeated));
            }
            let below = self.directory(&path, &directory).or_else(|failure| self.pass(failure).map(|()| Vec::new()))?;
            pending.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// Prints what is in a directory; gives the directories in it, if they are to follow.
    fn directory(&mut self, path: &[u8], directory: &Attributes) -> Outcome<Vec<(Vec<u8>, Attributes)>> {
        let (mut entries, damage) = walk::list_past_damage(self.fs, directory.ino);
        if let Some(error) = damage {
            self.pass(Failure::volume(shown(path), &error))?;
        }
        entries.retain(|entry| self.args.all || !entry.name.starts_with(b"."));
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        if self.headings && !self.args.json {
            if !self.first {
                self.output.bytes(b"\n")?;
            }
            self.output.name(path)?;
            self.output.bytes(b":\n")?;
        }
        self.first = false;
        let mut below = Vec::new();
        for entry in entries {
            let whole = join(path, &entry.name);
            if !self.args.long && !self.args.json && !self.args.recursive {
                self.output.name(&entry.name)?;
                self.output.bytes(b"\n")?;
                continue;
            }
            let attributes = match self.fs.getattr(entry.ino) {
                Ok(attributes) => attributes,
                Err(error) => {
                    self.unreadable(&entry.name)?;
                    self.pass(Failure::volume(shown(&whole), &error))?;
                    continue;
                }
            };
            self.entry(&whole, &entry.name, &attributes)?;
            if self.args.recursive && attributes.kind == FileKind::Directory {
                below.push((whole, attributes));
            }
        }
        Ok(below)
    }

    /// What is damaged does not hide the rest.
    fn pass(&mut self, failure: Failure) -> Outcome {
        self.passed.pass(failure, tree::complain)
    }

    /// A name whose attributes cannot be read.
    fn unreadable(&mut self, name: &[u8]) -> Outcome {
        if self.array.is_some() {
            return Ok(());
        }
        if self.args.long {
            self.output.bytes(b"??????????   ?     ?     ?          ? ")?;
        }
        self.output.name(name)?;
        self.output.bytes(b"\n")
    }

    fn entry(&mut self, path: &[u8], name: &[u8], attributes: &Attributes) -> Outcome {
        let target = if attributes.kind == FileKind::Symlink && (self.args.long || self.args.json) {
            Some(self.fs.readlink(attributes.ino).map_err(|error| Failure::volume(shown(path), &error))?)
        } else {
            None
        };
        if let Some(array) = &mut self.array {
            let mut object = json::attributes(path, attributes);
            if let Some(target) = target {
                json::insert_name(&mut object, "target", &target);
            }
            return array.push(self.output, object);
        }
        if self.args.long {
            write!(self.output, "{} ", long(attributes))?;
        }
        self.output.name(name)?;
        if let Some(target) = target {
            self.output.bytes(b" -> ")?;
            self.output.name(&target)?;
        }
        self.output.bytes(b"\n")
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

fn long(attributes: &Attributes) -> String {
    let size = match attributes.kind {
        FileKind::BlockDevice | FileKind::CharDevice => {
            let (major, minor) = print::device(attributes.device);
            format!("{major}, {minor}")
        }
        _ => attributes.size.to_string(),
    };
    format!(
        "{} {:>3} {:>5} {:>5} {size:>10} {}",
        print::mode(attributes),
        attributes.links,
        attributes.uid,
        attributes.gid,
        print::time(attributes.mtime),
    )
}
