//! `cairn ls`.

use std::collections::HashSet;
use std::sync::Arc;

use cairn_vfs::{Attributes, Error, FileKind, FileSystem, walk};

use super::on_volume::OnVolume;
use crate::failure::{self, Failure, Outcome};
use crate::operands::{LongHelp, OperandsOrRoot};
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};
use crate::tree::{self, Passed, join};
use crate::{json, print};

/// Arguments of `ls`.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  cairn ls -l disk.img /etc
  cairn ls --json -R disk.img /home | jq -r '.[] | select(.size > 1000000) | .path'

Names are sorted by their bytes; times are UTC; owners are numbers. On a terminal control characters in names are shown as \\n or \
\\033; in a pipe or file names are written as they are, so that a name with a newline looks like two: programs had better \
read --json.
JSON: an array with one object a file, a line each: what cairn stat --json gives, without extended attributes. A name that is not UTF-8 \
has its exact bytes under path_hex."
)]
pub struct Args {
    /// --help.
    #[command(flatten)]
    pub help: LongHelp,
    /// Long format: mode, links, owner, group, size, time, name.
    #[arg(short = 'l', long)]
    pub long: bool,
    /// Go into directories.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Show names that begin with a dot, too, and . and ...
    #[arg(short = 'a', long)]
    pub all: bool,
    /// Show names that begin with a dot, too.
    #[arg(short = 'A', long, overrides_with = "all")]
    pub almost_all: bool,
    /// One name a line: it is always so.
    #[arg(short = '1')]
    pub one_per_line: bool,
    /// Inode numbers before the names.
    #[arg(short = 'i', long)]
    pub inode: bool,
    /// Sizes with units (with -l).
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// List directories themselves, not what is in them.
    #[arg(short = 'd', long, conflicts_with = "recursive")]
    pub directory: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// What to list.
    #[command(flatten)]
    pub operands: OperandsOrRoot,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.operands.image
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
    let paths = args.operands.expand(fs)?;
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
    let listed = failure::each(&paths, |path| listing.path(path));
    let ended = listing.array.map_or(Ok(()), |array| array.end(listing.output));
    listed.and(ended).and(listing.passed.end())
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
        let hidden = self.args.all || self.args.almost_all;
        entries.retain(|entry| hidden || !entry.name.starts_with(b"."));
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        if self.headings && !self.args.json {
            if !self.first {
                self.output.bytes(b"\n")?;
            }
            self.output.name(path)?;
            self.output.bytes(b":\n")?;
        }
        self.first = false;
        self.dots(path, directory)?;
        let mut below = Vec::new();
        for entry in entries {
            let whole = join(path, &entry.name);
            if !self.needs_attributes() {
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

    fn needs_attributes(&self) -> bool {
        self.args.long || self.args.json || self.args.recursive || self.args.inode
    }

    /// `.` and `..`, where they are asked for. Programs that read JSON have no use for them.
    fn dots(&mut self, path: &[u8], directory: &Attributes) -> Outcome {
        if !self.args.all || self.args.json {
            return Ok(());
        }
        self.entry(path, b".", directory)?;
        let above = walk::lookup(self.fs, directory.ino, b"..");
        match above.map_err(|error| Failure::volume(shown(path), &error)) {
            Ok(above) => self.entry(path, b"..", &above),
            Err(failure) => {
                self.unreadable(b"..")?;
                self.pass(failure)
            }
        }
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
        if self.args.inode {
            self.output.bytes(b"      ? ")?;
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
        if self.args.inode {
            write!(self.output, "{:>7} ", attributes.ino)?;
        }
        if self.args.long {
            write!(self.output, "{} ", long(attributes, self.args.human_readable))?;
        }
        self.output.name(name)?;
        if let Some(target) = target {
            self.output.bytes(b" -> ")?;
            self.output.name(&target)?;
        }
        self.output.bytes(b"\n")
    }
}

fn long(attributes: &Attributes, human_readable: bool) -> String {
    let size = match attributes.kind {
        FileKind::BlockDevice | FileKind::CharDevice => {
            let (major, minor) = print::device(attributes.device);
            format!("{major}, {minor}")
        }
        _ if human_readable => print::size_short(attributes.size),
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
