//! `cairn find`.

mod expression;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use cairn_vfs::{Attributes, FileKind, FileSystem, walk};

use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::session::{Access, ImageArg, now, shown};
use crate::tree::{self, Passed, last_name};
use crate::{failure, json, pattern, print};
use expression::{Action, Expression, Subject};

/// Arguments of `find`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn find disk.img /etc -name '*.conf' -type f
  cairn find disk.img / -type f -size +1M -newer /etc/stamp
  cairn find disk.img /var -name '*.gz' -delete
  cairn find a.img -type f -perm -2 -print0 | xargs -0r cairn chmod a.img o-w
  cairn find --json disk.img / -perm -4000

PATHS come first (the root if there is none), then the expression, as with find(1):
  -name, -iname, -path PATTERN  the name (the whole path) matches
  -type f,d,l,b,c,p,s        the kind is one of these
  -size [+-]N[cwbkMG]        the size in these units, rounded up: N, more, less
  -newer PATH                it changed after PATH on the image did
  -newermt DATE              it changed after this date
  -mtime, -mmin [+-]N        it changed N days (minutes) ago, earlier, later
  -uid, -gid, -links, -inum [+-]N
  -user UID, -group GID      by number: the image has names of its own
  -perm [-/]MODE             the octal mode; all of its bits; any of its bits
  -empty                     a file without bytes, a directory without entries
  -mindepth, -maxdepth N     how deep below the paths
  ! EXPR, EXPR -o EXPR, ( EXPR ), -true, -false
  -print (also without any action), -print0, -ls
                             print the path and a newline; the path and a zero
                             byte; a line as of ls -lib
  -delete                    remove it, after what is in it
  -prune, -depth, -quit      do not enter it; enter it first; end the search
JSON: an array with one object for each file, each on its own line, as of cairn ls --json.")]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// Where to search, and the expression.
    #[arg(value_name = "PATH|EXPRESSION", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    /// The words are not parsed yet, so a file called -delete also opens the image for writing.
    fn access(&self) -> Access {
        if self.words.iter().any(|word| word == "-delete") { Access::Write } else { Access::Read }
    }

    fn json(&self) -> bool {
        self.json
    }

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        find(fs, self, output)
    }
}

/// Searches in the order of the directories, and does the expression's actions.
///
/// # Errors
/// The expression is not understood; a path does not exist, cannot be read or cannot be removed.
pub fn find(fs: &dyn FileSystem, args: &Args, output: &mut Output<'_>) -> Outcome {
    let is_expression = |word: &OsString| {
        word.as_bytes().starts_with(b"-") || matches!(word.as_bytes(), b"!" | b"(")
    };
    let split = args.words.iter().position(is_expression).unwrap_or(args.words.len());
    let (paths, words) = args.words.split_at(split);
    let mtime_of = |path: &[u8]| {
        let found =
            walk::resolve(fs, path, true).map_err(|error| Failure::volume(shown(path), &error))?;
        Ok(found.mtime)
    };
    let expression = Expression::parse(words, now()?, &mtime_of)?;
    let root = [OsString::from("/")];
    let paths = pattern::expand(fs, if paths.is_empty() { &root } else { paths })?;
    let mut search = Search {
        fs,
        expression: &expression,
        json: args.json.then(json::Array::default),
        output,
        unfinished: Vec::new(),
        kept: Passed::by_writer(),
        ended: false,
    };
    let mut passed =
        if args.access() == Access::Write { Passed::by_writer() } else { Passed::default() };
    let found = failure::each(paths, |path| search.below(&path, &mut passed));
    let ended = search.json.map_or(Ok(()), |array| array.end(search.output));
    failure::all([found, ended, search.kept.end(), passed.end()])
}

/// A directory that is evaluated after its entries.
struct Unfinished {
    path: Vec<u8>,
    attributes: Attributes,
    depth: usize,
}

struct Search<'a, 'o> {
    fs: &'a dyn FileSystem,
    expression: &'a Expression,
    json: Option<json::Array>,
    output: &'a mut Output<'o>,
    unfinished: Vec<Unfinished>,
    /// What could not be removed.
    kept: Passed,
    /// True after `-quit`.
    ended: bool,
}

impl Search<'_, '_> {
    fn below(&mut self, path: &[u8], passed: &mut Passed) -> Outcome {
        if self.ended {
            return Ok(());
        }
        let fs = self.fs;
        let start =
            walk::resolve(fs, path, false).map_err(|error| Failure::volume(shown(path), &error))?;
        let visited = tree::visit(fs, path, &start, passed, &mut |path, attributes, depth| {
            self.finish(depth)?;
            let goes_on = if self.ended {
                false
            } else if self.expression.depth_first && attributes.kind == FileKind::Directory {
                self.unfinished.push(Unfinished {
                    path: path.to_vec(),
                    attributes: attributes.clone(),
                    depth,
                });
                true
            } else {
                self.one(path, attributes, depth)?
            };
            Ok(match (self.ended, goes_on && depth < self.expression.most_depth) {
                (true, _) => walk::Next::Stop,
                (_, true) => walk::Next::Continue,
                _ => walk::Next::Skip,
            })
        });
        visited.and(self.finish(0))
    }

    /// Evaluates the finished directories at this depth or deeper.
    fn finish(&mut self, depth: usize) -> Outcome {
        while let Some(last) = self.unfinished.pop_if(|last| last.depth >= depth) {
            if !self.ended {
                self.one(&last.path, &last.attributes, last.depth)?;
            }
        }
        Ok(())
    }

    /// Evaluates the expression. False if the walk is not to enter this directory.
    fn one(&mut self, path: &[u8], attributes: &Attributes, depth: usize) -> Outcome<bool> {
        if depth < self.expression.least_depth {
            return Ok(true);
        }
        let fs = self.fs;
        let is_empty = || match attributes.kind {
            FileKind::Directory => {
                walk::list(fs, attributes.ino).is_ok_and(|entries| entries.is_empty())
            }
            kind => kind == FileKind::Regular && attributes.size == 0,
        };
        let subject = Subject { path, attributes, is_empty: &is_empty };
        let mut goes_on = true;
        let expression = self.expression;
        let matches = expression.matches(&subject, &mut |action, subject| {
            match action {
                Action::Prune => goes_on = expression.depth_first,
                Action::Quit => self.ended = true,
                Action::Delete => return self.delete(subject),
                Action::Print | Action::PrintZero | Action::List => self.print(action, subject)?,
            }
            Ok(true)
        })?;
        if matches && expression.prints {
            self.print(Action::Print, &subject)?;
        }
        Ok(goes_on)
    }

    fn print(&mut self, how: Action, subject: &Subject<'_>) -> Outcome {
        if let Some(array) = &mut self.json {
            return array.push(self.output, json::attributes(subject.path, subject.attributes));
        }
        let of = subject.attributes;
        if how == Action::List {
            let kib = of.sectors.div_ceil(2);
            write!(self.output, "{:>9} {kib:>6} {} ", of.ino, print::long(of, false))?;
        }
        // As in find(1), -ls is for people.
        match how {
            Action::List => self.output.escaped(subject.path)?,
            _ => self.output.name(subject.path)?,
        }
        if how == Action::List && of.kind == FileKind::Symlink {
            let target = self.fs.readlink(of.ino);
            let target = target.map_err(|error| Failure::volume(shown(subject.path), &error))?;
            self.output.bytes(b" -> ")?;
            self.output.escaped(&target)?;
        }
        self.output.bytes(if how == Action::PrintZero { b"\0" } else { b"\n" })
    }

    /// Removes a file. False if it cannot be removed. As in find(1), a start of the search at the
    /// root, `.` or `..` is not removed, and that is not a failure.
    fn delete(&mut self, subject: &Subject<'_>) -> Outcome<bool> {
        if matches!(last_name(subject.path), b"" | b"." | b"..") {
            return Ok(true);
        }
        let removed = walk::resolve_parent(self.fs, subject.path).and_then(|(parent, name)| {
            match subject.attributes.kind {
                FileKind::Directory => self.fs.rmdir(parent.ino, name),
                _ => self.fs.unlink(parent.ino, name),
            }
        });
        match removed {
            Ok(()) => Ok(true),
            Err(error) => {
                let failure = Failure::volume(shown(subject.path), &error);
                self.kept.pass(failure, tree::complain).map(|()| false)
            }
        }
    }
}
