//! `cairn find`.

mod expression;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use cairn_vfs::{FileKind, FileSystem, walk};

use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::session::{Access, ImageArg, now, shown};
use crate::tree::{self, Passed};
use crate::{failure, json, pattern};
use expression::{Expression, Subject};

/// Arguments of `find`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn find disk.img /etc -name '*.conf' -type f
  cairn find disk.img / -type f -size +1M -newer /etc/stamp -print0 | xargs -0 -n1 cairn cat disk.img
  cairn find --json disk.img / -perm -4000

PATHS come first (the root if there is none), then the expression, as with find(1):
  -name, -iname, -path PATTERN   the name (the whole path) matches
  -type f,d,l,b,c,p,s            it is of one of these kinds
  -size [+-]N[cwbkMG]            it is larger (+), smaller (-) or as large in these units, rounded up (b: 512 bytes)
  -newer PATH, -newermt DATE     its contents were changed later than those of PATH on the image, or than this date (UTC)
  -mtime, -mmin [+-]N            its contents were changed N days (a part of a day does not count) or minutes ago; more, less
  -uid, -gid, -links, -inum [+-]N
  -user UID, -group GID          by number: names on this host need not be those of the image
  -perm [-/]MODE                 permissions are this octal mode; have all (-) or any (/) of its bits
  -empty                         a file without bytes, a directory without entries
  -mindepth, -maxdepth N         how deep below the paths
  ! EXPR, EXPR -o EXPR, ( EXPR )
  -print (default), -print0      how paths are printed: with a newline or a zero byte behind each
JSON: an array with one object a file, a line each, as of cairn ls --json.")]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// Where to look, and what for.
    #[arg(value_name = "PATH|EXPRESSION", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        find(fs, self, output)
    }
}

/// Prints what matches, in the directories' order.
///
/// # Errors
/// The expression is not understood; a path does not exist or cannot be read.
pub fn find(fs: &dyn FileSystem, args: &Args, output: &mut Output<'_>) -> Outcome {
    let is_expression = |word: &OsString| word.as_bytes().starts_with(b"-") || matches!(word.as_bytes(), b"!" | b"(");
    let split = args.words.iter().position(is_expression).unwrap_or(args.words.len());
    let (paths, words) = args.words.split_at(split);
    let mtime_of = |path: &[u8]| {
        let found = walk::resolve(fs, path, true).map_err(|error| Failure::volume(shown(path), &error))?;
        Ok(found.mtime)
    };
    let expression = Expression::parse(words, now()?, &mtime_of)?;
    let root = [OsString::from("/")];
    let (mut array, mut passed) = (json::Array::default(), Passed::default());
    let found = failure::each(pattern::expand(fs, if paths.is_empty() { &root } else { paths })?, |path| {
        let start = walk::resolve(fs, &path, false).map_err(|error| Failure::volume(shown(&path), &error))?;
        tree::visit(fs, &path, &start, &mut passed, &mut |path, attributes, depth| {
            let is_empty = || match attributes.kind {
                FileKind::Directory => walk::list(fs, attributes.ino).is_ok_and(|entries| entries.is_empty()),
                kind => kind == FileKind::Regular && attributes.size == 0,
            };
            let subject = Subject { path, attributes, is_empty: &is_empty };
            if depth >= expression.least_depth && expression.matches(&subject) {
                if args.json {
                    array.push(output, json::attributes(path, attributes))?;
                } else if expression.zero {
                    output.bytes(path)?;
                    output.bytes(b"\0")?;
                } else {
                    output.name(path)?;
                    output.bytes(b"\n")?;
                }
            }
            Ok(if depth < expression.most_depth { walk::Next::Continue } else { walk::Next::Skip })
        })
    });
    let ended = if args.json { array.end(output) } else { Ok(()) };
    found.and(ended).and(passed.end())
}
