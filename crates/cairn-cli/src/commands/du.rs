//! `cairn du`.

use std::collections::HashSet;

use cairn_vfs::{Attributes, FileKind, FileSystem, walk};

use super::on_volume::OnVolume;
use crate::failure::{self, Failure, Outcome};
use crate::operands::{LongHelp, OperandsOrRoot};
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};
use crate::tree::{self, Passed};
use crate::usage::number;
use crate::{json, print};

/// Arguments of `du`.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  cairn du -sh disk.img '/home/*'
  cairn du --json -d 1 disk.img

Counts allocated space, in KiB, and a file with several names once, as du(1).
JSON: an array of objects with path (path_hex, if it is not UTF-8), bytes (allocated) and \
apparent_bytes (the sizes)."
)]
pub struct Args {
    /// --help.
    #[command(flatten)]
    pub help: LongHelp,
    /// Only a sum for each path.
    #[arg(short = 's', long, conflicts_with_all = ["all", "max_depth"])]
    pub summarize: bool,
    /// Print files, too.
    #[arg(short = 'a', long)]
    pub all: bool,
    /// Print only directories at most this deep.
    #[arg(short = 'd', long, value_name = "N", value_parser = number(0..=100_000_usize, 1))]
    pub max_depth: Option<usize>,
    /// Sizes with units.
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Sizes in KiB (the default).
    #[arg(short = 'k', overrides_with = "human_readable")]
    pub kibibytes: bool,
    /// Sizes in MiB.
    #[arg(short = 'm', conflicts_with_all = ["human_readable", "bytes"])]
    pub mebibytes: bool,
    /// The files' sizes instead of allocated space.
    #[arg(long)]
    pub apparent_size: bool,
    /// The files' sizes, in bytes.
    #[arg(short = 'b', long = "bytes")]
    pub bytes: bool,
    /// A last line with the sum of all.
    #[arg(short = 'c', long)]
    pub total: bool,
    /// Stay on one filesystem (always so: an image is one filesystem).
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// What to count.
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
        count(fs, self, output)
    }
}

#[derive(Clone, Copy, Default)]
struct Sum {
    allocated: u64,
    apparent: u64,
}

/// A directory whose entries are being counted.
struct Level {
    path: Vec<u8>,
    depth: usize,
    sum: Sum,
}

/// Counts, and prints each directory after its contents.
///
/// # Errors
/// A path does not exist or cannot be read.
pub fn count(fs: &dyn FileSystem, args: &Args, output: &mut Output<'_>) -> Outcome {
    let mut counting = Counting {
        args,
        output,
        seen: HashSet::new(),
        levels: Vec::new(),
        total: Sum::default(),
        array: json::Array::default(),
    };
    let mut passed = Passed::default();
    let counted = failure::each(args.operands.expand(fs)?, |path| {
        let start = walk::resolve(fs, &path, false)
            .map_err(|error| Failure::volume(shown(&path), &error))?;
        let visited =
            tree::visit(fs, &path, &start, &mut passed, &mut |path, attributes, depth| {
                counting.entry(path, attributes, depth)?;
                Ok(walk::Next::Continue)
            });
        visited.and(counting.close(0))
    });
    let ended = counting.end();
    failure::all([counted, ended, passed.end()])
}

struct Counting<'a, 'o> {
    args: &'a Args,
    output: &'a mut Output<'o>,
    /// Files with several names that were counted.
    seen: HashSet<cairn_base::Ino>,
    levels: Vec<Level>,
    total: Sum,
    array: json::Array,
}

impl Counting<'_, '_> {
    fn entry(&mut self, path: &[u8], attributes: &Attributes, depth: usize) -> Outcome {
        self.close(depth)?;
        if attributes.kind != FileKind::Directory
            && attributes.links > 1
            && !self.seen.insert(attributes.ino)
        {
            return Ok(());
        }
        let sum =
            Sum { allocated: attributes.sectors.saturating_mul(512), apparent: attributes.size };
        let level = Level { path: path.to_vec(), depth, sum };
        if attributes.kind == FileKind::Directory {
            self.levels.push(level);
            return Ok(());
        }
        self.add(sum);
        if self.args.all || depth == 0 { self.line(&level) } else { Ok(()) }
    }

    /// Ends the directories that are as deep as this or deeper.
    fn close(&mut self, depth: usize) -> Outcome {
        while let Some(level) = self.levels.pop_if(|level| level.depth >= depth) {
            self.add(level.sum);
            self.line(&level)?;
        }
        Ok(())
    }

    fn add(&mut self, sum: Sum) {
        let above = self.levels.last_mut().map_or(&mut self.total, |level| &mut level.sum);
        above.allocated = above.allocated.saturating_add(sum.allocated);
        above.apparent = above.apparent.saturating_add(sum.apparent);
    }

    /// The total, and the end of the JSON.
    fn end(mut self) -> Outcome {
        let total = if self.args.total && !self.args.json {
            self.text(b"total", self.total)
        } else {
            Ok(())
        };
        let array = if self.args.json { self.array.end(self.output) } else { Ok(()) };
        failure::all([total, array])
    }

    fn line(&mut self, level: &Level) -> Outcome {
        let deepest =
            if self.args.summarize { 0 } else { self.args.max_depth.unwrap_or(usize::MAX) };
        if level.depth > deepest {
            return Ok(());
        }
        if self.args.json {
            let mut object = json::Object::new();
            json::insert_name(&mut object, "path", &level.path);
            object.insert("bytes".into(), level.sum.allocated.into());
            object.insert("apparent_bytes".into(), level.sum.apparent.into());
            return self.array.push(self.output, object);
        }
        self.text(&level.path, level.sum)
    }

    fn text(&mut self, name: &[u8], sum: Sum) -> Outcome {
        let args = self.args;
        let bytes = if args.bytes || args.apparent_size { sum.apparent } else { sum.allocated };
        let shown = match (args.human_readable, args.bytes) {
            (true, _) => print::size_short(bytes),
            (_, true) => bytes.to_string(),
            _ => bytes.div_ceil(if args.mebibytes { 1 << 20 } else { 1 << 10 }).to_string(),
        };
        write!(self.output, "{shown}\t")?;
        self.output.name(name)?;
        self.output.bytes(b"\n")
    }
}
