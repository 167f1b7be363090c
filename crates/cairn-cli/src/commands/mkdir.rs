//! `cairn mkdir`.

use cairn_vfs::{Error, FileKind, FileSystem, NewInode, walk};

use super::destination::{UMASK, create_plain};
use super::on_volume::OnVolume;
use crate::commands::chmod::Change;
use crate::failure::{self, Failure, Outcome};
use crate::operands::Operands;
use crate::output::Output;
use crate::pattern;
use crate::session::{Access, ImageArg, shown};

/// Arguments of `mkdir`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn mkdir -p disk.img /srv/www/html")]
pub struct Args {
    /// Make missing parents too, and accept directories that exist.
    #[arg(short = 'p', long)]
    pub parents: bool,
    /// Permissions: octal, or clauses such as u=rwx,go=; 755 if absent.
    #[arg(short = 'm', long, value_parser = Change::parse)]
    pub mode: Option<Change>,
    /// Print what is made.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Directories to make.
    #[command(flatten)]
    pub operands: Operands,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.operands.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        make(fs, self, output)
    }
}

/// Makes directories, owned by root.
///
/// # Errors
/// A name exists, or a parent does not.
pub fn make(fs: &dyn FileSystem, args: &Args, output: &mut Output<'_>) -> Outcome {
    // As mkdir(1): clauses change mode a=rwx.
    let mode = args.mode.as_ref().map(|change| change.apply(0o777, true));
    failure::each(&args.operands.paths, |path| {
        let path = pattern::path(path)?;
        let mut made = Vec::new();
        let done = if args.parents {
            make_all(fs, path, mode, &mut made)
        } else {
            make_one(fs, path, mode, &mut made)
        };
        for path in made.iter().filter(|_| args.verbose) {
            output.done(&[("created directory ", path)])?;
        }
        done.map_err(|error| {
            let failure = Failure::volume(shown(path), &error);
            match error {
                Error::NotFound if !args.parents => {
                    failure.leaving("add -p to create the directories above it".to_owned())
                }
                _ => failure,
            }
        })
    })
}

fn make_one(
    fs: &dyn FileSystem,
    path: &[u8],
    mode: Option<u32>,
    all: &mut Vec<Vec<u8>>,
) -> cairn_vfs::Result<()> {
    let (parent, name) = walk::resolve_parent(fs, path)?;
    let mode = mode.map_or((0o777, UMASK), |mode| (mode, 0));
    create_plain(fs, (parent.ino, name), NewInode::Directory, mode)?;
    all.push(path.to_vec());
    Ok(())
}

fn make_all(
    fs: &dyn FileSystem,
    path: &[u8],
    mode: Option<u32>,
    all: &mut Vec<Vec<u8>>,
) -> cairn_vfs::Result<()> {
    let ends = (1..=path.len()).filter(|end| {
        let slash = path.get(*end).is_none_or(|byte| *byte == b'/');
        slash && path.get(end - 1) != Some(&b'/')
    });
    for end in ends {
        let prefix = path.get(..end).unwrap_or(path);
        let mode = mode.filter(|_| end == path.len());
        match walk::resolve(fs, prefix, true) {
            Ok(found) if found.kind == FileKind::Directory => {}
            Ok(_) => return Err(Error::NotDirectory),
            Err(Error::NotFound) => make_one(fs, prefix, mode, all)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
