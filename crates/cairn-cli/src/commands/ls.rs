//! `cairn ls`.

use std::cmp::Ordering;
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
  cairn ls -lhtr disk.img /var/log
  cairn ls --json -R disk.img /home

Names are sorted by their bytes. Times are UTC, owners are numbers. On a terminal, control \
characters in names are printed as \\n or \\033. In a pipe or a file they are printed unchanged: \
use -b for people, --json in programs.
JSON: an array with one object for each file, each on its own line, as of cairn stat --json but \
without extended attributes. A name that is not UTF-8 has its exact bytes under path_hex."
)]
pub struct Args {
    /// --help.
    #[command(flatten)]
    pub help: LongHelp,
    /// Long format: mode, links, owner, group, size, time, name.
    #[arg(short = 'l', long)]
    pub long: bool,
    /// The same as -l: owners are always numbers.
    #[arg(short = 'n', long)]
    pub numeric_uid_gid: bool,
    /// Go into directories.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Sort by time of modification, newest first.
    #[arg(short = 't', overrides_with = "by_size")]
    pub by_time: bool,
    /// Sort by size, largest first.
    #[arg(short = 'S', overrides_with = "by_time")]
    pub by_size: bool,
    /// Reverse the order.
    #[arg(short = 'r', long)]
    pub reverse: bool,
    /// Show names that begin with a dot, too, and . and ...
    #[arg(short = 'a', long)]
    pub all: bool,
    /// Show names that begin with a dot, too.
    #[arg(short = 'A', long, overrides_with = "all")]
    pub almost_all: bool,
    /// One name a line (always so).
    #[arg(short = '1')]
    pub one_per_line: bool,
    /// Inode numbers before the names.
    #[arg(short = 'i', long)]
    pub inode: bool,
    /// Escape control characters in names also in a pipe or a file.
    #[arg(short = 'b', long)]
    pub escape: bool,
    /// Sizes with units (with -l).
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// List directories themselves, not their contents.
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

    fn json(&self) -> bool {
        self.json
    }

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        list(fs, self, output)
    }
}

impl Args {
    fn is_long(&self) -> bool {
        self.long || self.numeric_uid_gid
    }

    fn needs_attributes(&self) -> bool {
        self.is_long() || self.json || self.recursive || self.inode || self.by_time || self.by_size
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
    let mut operands = Vec::new();
    let found = failure::each(paths, |path| {
        let attributes = Some(listing.operand(&path)?);
        operands.push(Row { name: path, attributes });
        Ok(())
    });
    listing.sort(&mut operands);
    let operands = operands.into_iter().filter_map(|row| Some((row.name, row.attributes?)));
    // As ls(1): other files come before directories.
    let (directories, files): (Vec<_>, Vec<_>) =
        operands.partition(|(_, of)| of.kind == FileKind::Directory && !args.directory);
    let files = failure::each(files, |(path, of)| listing.file(&path, &of));
    let directories = failure::each(directories, |(path, of)| listing.tree(path, of));
    let ended = listing.array.map_or(Ok(()), |array| array.end(listing.output));
    failure::all([found, files, directories, ended, listing.passed.end()])
}

/// An entry that is to be listed.
struct Row {
    name: Vec<u8>,
    /// None if they are not needed, or cannot be read.
    attributes: Option<Attributes>,
}

impl Row {
    fn map<T>(&self, get: impl FnOnce(&Attributes) -> T) -> Option<T> {
        self.attributes.as_ref().map(get)
    }
}

struct Listing<'a, 'o> {
    fs: &'a dyn FileSystem,
    args: &'a Args,
    /// True if a directory's name is printed before its entries.
    headings: bool,
    /// True until something is printed.
    first: bool,
    array: Option<json::Array>,
    /// Entries that could not be read.
    passed: Passed,
    output: &'a mut Output<'o>,
}

impl Listing<'_, '_> {
    fn operand(&self, path: &[u8]) -> Outcome<Attributes> {
        let follow = !self.args.is_long() && !self.args.directory;
        // As ls(1), a link that leads to nothing is listed itself.
        let found = match walk::resolve(self.fs, path, follow) {
            Err(Error::NotFound | Error::Loop) if follow => walk::resolve(self.fs, path, false),
            found => found,
        };
        found.map_err(|error| Failure::volume(shown(path), &error))
    }

    fn file(&mut self, path: &[u8], of: &Attributes) -> Outcome {
        self.first = false;
        self.entry(path, path, of)
    }

    /// Sorts as the options say. An unreadable entry counts as oldest and smallest.
    fn sort(&self, rows: &mut [Row]) {
        rows.sort_by(|a, b| {
            let order = match (self.args.by_time, self.args.by_size) {
                (true, _) => b.map(|of| of.mtime).cmp(&a.map(|of| of.mtime)),
                (_, true) => b.map(|of| of.size).cmp(&a.map(|of| of.size)),
                _ => Ordering::Equal,
            };
            let order = order.then_with(|| a.name.cmp(&b.name));
            if self.args.reverse { order.reverse() } else { order }
        });
    }

    fn tree(&mut self, path: Vec<u8>, found: Attributes) -> Outcome {
        let mut seen = HashSet::new();
        let mut pending = vec![(path, found)];
        while let Some((path, directory)) = pending.pop() {
            if !seen.insert(directory.ino) {
                let repeated = Error::Corrupt(Arc::new(walk::TreeError::Repeated(directory.ino)));
                return Err(Failure::volume(shown(&path), &repeated));
            }
            let below = self
                .directory(&path, &directory)
                .or_else(|failure| self.pass(failure).map(|()| Vec::new()))?;
            pending.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// Prints the entries of a directory. Returns the directories in it, if they are to be listed.
    fn directory(
        &mut self,
        path: &[u8],
        directory: &Attributes,
    ) -> Outcome<Vec<(Vec<u8>, Attributes)>> {
        let (mut entries, damage) = walk::list_past_damage(self.fs, directory.ino);
        if let Some(error) = damage {
            self.pass(Failure::volume(shown(path), &error))?;
        }
        let hidden = self.args.all || self.args.almost_all;
        entries.retain(|entry| hidden || !entry.name.starts_with(b"."));
        if self.headings && !self.args.json {
            if !self.first {
                self.output.bytes(b"\n")?;
            }
            self.name(path)?;
            self.output.bytes(b":\n")?;
        }
        self.first = false;
        let mut rows = Vec::new();
        for entry in entries {
            let whole = join(path, &entry.name);
            let read = |fs: &dyn FileSystem| walk::attributes_of(fs, directory.ino, &entry);
            rows.push(self.row(&whole, entry.name.to_vec(), read)?);
        }
        // Programs that read JSON do not need `.` and `..`.
        if self.args.all && !self.args.json {
            rows.push(self.row(path, b".".to_vec(), |_| Ok(directory.clone()))?);
            rows.push(self.row(path, b"..".to_vec(), |fs| walk::lookup(fs, directory.ino, b".."))?);
        }
        self.sort(&mut rows);
        let mut below = Vec::new();
        for Row { name, attributes } in rows {
            let whole = join(path, &name);
            match attributes {
                None => self.name_only(&name)?,
                Some(attributes) => {
                    self.entry(&whole, &name, &attributes)?;
                    let is_dots = matches!(&name[..], b"." | b"..");
                    if self.args.recursive && attributes.kind == FileKind::Directory && !is_dots {
                        below.push((whole, attributes));
                    }
                }
            }
        }
        Ok(below)
    }

    /// The row of an entry. Attributes are read only if they are shown.
    fn row(
        &mut self,
        path: &[u8],
        name: Vec<u8>,
        read: impl FnOnce(&dyn FileSystem) -> cairn_vfs::Result<Attributes>,
    ) -> Outcome<Row> {
        if !self.args.needs_attributes() {
            return Ok(Row { name, attributes: None });
        }
        match read(self.fs) {
            Ok(attributes) => Ok(Row { name, attributes: Some(attributes) }),
            Err(error) => {
                self.pass(Failure::volume(shown(path), &error))?;
                Ok(Row { name, attributes: None })
            }
        }
    }

    fn name(&mut self, name: &[u8]) -> Outcome {
        if self.args.escape { self.output.escaped(name) } else { self.output.name(name) }
    }

    /// Records damage; the other entries are still listed.
    fn pass(&mut self, failure: Failure) -> Outcome {
        self.passed.pass(failure, tree::complain)
    }

    /// A name whose attributes are not needed, or cannot be read.
    fn name_only(&mut self, name: &[u8]) -> Outcome {
        if self.array.is_some() {
            return Ok(());
        }
        if self.args.inode {
            self.output.bytes(b"      ? ")?;
        }
        if self.args.is_long() {
            self.output.bytes(b"??????????   ?     ?     ?          ? ")?;
        }
        self.name(name)?;
        self.output.bytes(b"\n")
    }

    fn entry(&mut self, path: &[u8], name: &[u8], attributes: &Attributes) -> Outcome {
        let target =
            if attributes.kind == FileKind::Symlink && (self.args.is_long() || self.args.json) {
                Some(
                    self.fs
                        .readlink(attributes.ino)
                        .map_err(|error| Failure::volume(shown(path), &error))?,
                )
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
        if self.args.is_long() {
            write!(self.output, "{} ", print::long(attributes, self.args.human_readable))?;
        }
        self.name(name)?;
        if let Some(target) = target {
            self.output.bytes(b" -> ")?;
            self.name(&target)?;
        }
        self.output.bytes(b"\n")
    }
}
