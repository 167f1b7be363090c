//! `cairn dump` and `cairn journal`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use cairn::{Copies, Format, ImageSpec, Structure};
use cairn_check::Fields;
use serde_json::Value;

use crate::failure::{Failure, Outcome};
use crate::output::with_stdout;
use crate::session::ImageArg;
use crate::{fields, json, output};

/// Which copies of superblock and checkpoint are read.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct CopiesArg {
    /// Read with the superblock in this block. F2FS has one in block 0 and one in block 1.
    #[arg(long, value_name = "BLOCK")]
    superblock: Option<u64>,
    /// ext4: read with the backup superblock and the descriptors of this group.
    #[arg(long, value_name = "GROUP", conflicts_with = "superblock")]
    backup: Option<u32>,
    /// f2fs: read with this checkpoint pack.
    #[arg(long, value_name = "PACK", value_parser = clap::value_parser!(u8).range(1..=2))]
    pack: Option<u8>,
}

impl CopiesArg {
    /// The copies.
    #[must_use]
    pub const fn copies(&self) -> Copies {
        Copies { superblock: self.superblock, group: self.backup, pack: self.pack }
    }
}

/// Arguments of `dump`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn dump disk.img superblock
  cairn dump disk.img inode /etc/passwd
  cairn dump --json disk.img extents 12
  cairn dump disk.img block 1024

Shows what debugfs and dump.f2fs show: each structure by itself, with its place and its checksum, \
as it stands on the disk; no journal is replayed. A volume that cannot be mounted can be dumped. \
ext4 has superblock, groups [N], block N, inode, extents, htree, xattrs; F2FS has superblock, \
checkpoint, block N, inode, nodes, xattrs, nat NID, sit SEGNO, segments, summary SEGNO. An inode \
is named by its path or its number.")]
pub struct Args {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    copies: CopiesArg,
    #[command(flatten)]
    image: ImageArg,
    /// The structure.
    what: What,
    /// Which one: a number, or the path of an inode.
    which: Option<OsString>,
}

/// Arguments of `journal`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn journal disk.img
  cairn journal --json disk.img#2

Of ext4: the journal's superblock, every descriptor, commit and revoke block of the log with its \
checksum and the blocks that it is about, fast commits, and what a replay would do. Of F2FS: both \
checkpoint packs, orphans, the journals of NAT and SIT, and the chain of fsynced nodes that the \
next mount recovers.")]
pub struct JournalArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    copies: CopiesArg,
    #[command(flatten)]
    image: ImageArg,
}

/// The structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// The superblock.
    Superblock,
    /// ext4: group descriptors.
    Groups,
    /// A block.
    Block,
    /// An inode.
    Inode,
    /// The block map of an inode.
    Extents,
    /// ext4: the index of a directory.
    Htree,
    /// Extended attributes.
    Xattrs,
    /// F2FS: checkpoint packs.
    Checkpoint,
    /// F2FS: the nodes of an inode.
    Nodes,
    /// F2FS: the address of a node.
    Nat,
    /// F2FS: what is valid in a segment.
    Sit,
    /// F2FS: segments in use.
    Segments,
    /// F2FS: owners of a segment's blocks.
    Summary,
}

/// Shows a structure.
///
/// # Errors
/// The image cannot be opened, or there is no such structure.
pub fn run(args: &Args) -> Outcome {
    let structure = structure(args.what, args.which.as_deref()).inspect_err(|failure| {
        if args.json {
            let _ = with_stdout(|output| json::failure(output, failure));
        }
    })?;
    let image = args.image.spec()?;
    warn_of_mount(&image);
    let found = cairn::dump(&image, &args.image.devices, args.copies.copies(), &structure);
    show(args.json, &image, found)
}

/// Shows the journal.
///
/// # Errors
/// The image cannot be opened, or has no journal.
pub fn run_journal(args: &JournalArgs) -> Outcome {
    let image = args.image.spec()?;
    warn_of_mount(&image);
    show(args.json, &image, cairn::journal(&image, &args.image.devices, args.copies.copies()))
}

/// Warns if what is read may change meanwhile.
pub fn warn_of_mount(image: &ImageSpec) {
    if let Some(point) = image.file().and_then(cairn_block::file::mounted_by_kernel) {
        output::complain(format_args!(
            "warning: {image}: Linux has mounted it on {point}: what is shown may be old or change \
             meanwhile; unmount it first"
        ));
    }
}

fn show(
    is_json: bool,
    image: &ImageSpec,
    found: Result<(Format, Fields), cairn::Error>,
) -> Outcome {
    let (format, found) = match found {
        Ok(found) => found,
        Err(error) => {
            let failure = Failure::from(error);
            if is_json {
                with_stdout(|output| json::failure(output, &failure))?;
            }
            return Err(failure);
        }
    };
    with_stdout(|output| {
        if !is_json {
            return output.bytes(fields::text(&found).as_bytes());
        }
        let mut object = json::Object::new();
        json::insert_name(&mut object, "image", image.to_os_string().as_bytes());
        object.insert("format".into(), format.to_string().into());
        object.extend(fields::object(&found));
        writeln!(output, "{:#}", Value::Object(object))
    })
}

/// The structure that the words mean.
fn structure(what: What, which: Option<&OsStr>) -> Outcome<Structure> {
    let number = |text: &OsStr| -> Outcome<u64> {
        let parsed = text.to_str().and_then(|text| text.parse().ok());
        let wrong = || format!("'{}' is not a number: give one from 0 on", text.display());
        parsed.ok_or_else(|| Failure::usage(wrong()))
    };
    let small = |text: &OsStr| -> Outcome<u32> {
        let wrong = || format!("'{}' is too large: give a smaller number", text.display());
        u32::try_from(number(text)?).map_err(|_| Failure::usage(wrong()))
    };
    let needed = |example: &str| {
        let wrong = || format!("which one is missing: say it, as in {example}");
        which.ok_or_else(|| Failure::usage(wrong()))
    };
    let word = |example: &str| -> Outcome<Vec<u8>> { Ok(needed(example)?.to_owned().into_vec()) };
    let alone = |structure| match which {
        None => Ok(structure),
        Some(word) => {
            let text = format!("'{}' is one argument too many: leave it out", word.display());
            Err(Failure::usage(text))
        }
    };
    match what {
        What::Superblock => alone(Structure::Superblock),
        What::Checkpoint => alone(Structure::Checkpoint),
        What::Segments => alone(Structure::Segments),
        What::Groups => Ok(Structure::Groups(which.map(small).transpose()?)),
        What::Block => Ok(Structure::Block(number(needed("dump IMAGE block 8")?)?)),
        What::Inode => Ok(Structure::Inode(word("dump IMAGE inode /etc/passwd")?)),
        What::Extents => Ok(Structure::Extents(word("dump IMAGE extents /etc/passwd")?)),
        What::Htree => Ok(Structure::Htree(word("dump IMAGE htree /usr/lib")?)),
        What::Xattrs => Ok(Structure::Xattrs(word("dump IMAGE xattrs /etc/passwd")?)),
        What::Nodes => Ok(Structure::Nodes(word("dump IMAGE nodes /etc/passwd")?)),
        What::Nat => Ok(Structure::Nat(small(needed("dump IMAGE nat 3")?)?)),
        What::Sit => Ok(Structure::Sit(small(needed("dump IMAGE sit 0")?)?)),
        What::Summary => Ok(Structure::Summary(small(needed("dump IMAGE summary 0")?)?)),
    }
}
