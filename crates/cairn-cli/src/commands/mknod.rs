//! `cairn mknod`.

use std::ffi::OsString;

use cairn_vfs::{FileSystem, NewInode, walk};

use super::destination::{UMASK, create_plain};
use super::on_volume::OnVolume;
use crate::commands::chmod::Change;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::pattern;
use crate::session::{Access, ImageArg, shown};
use crate::tree::unmade;
use crate::usage::number;

/// Arguments of `mknod`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn mknod -m 666 disk.img /dev/null c 1 3
  cairn mknod disk.img /run/pipe p")]
pub struct Args {
    /// Permissions: octal, or clauses such as u=rw,go=; 644 if absent.
    #[arg(short = 'm', long, value_parser = Change::parse)]
    pub mode: Option<Change>,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// Its name.
    pub path: OsString,
    /// b: block device; c or u: character device; p: FIFO; s: socket.
    #[arg(value_name = "TYPE", value_parser = ["b", "c", "u", "p", "s"])]
    pub kind: String,
    /// Major number of a device.
    #[arg(value_parser = number(0..=4095_u32, 8))]
    pub major: Option<u32>,
    /// Minor number of a device.
    #[arg(value_parser = number(0..=1_048_575_u32, 1))]
    pub minor: Option<u32>,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, fs: &dyn FileSystem, _: &mut Output<'_>) -> Outcome {
        make(fs, self)
    }
}

/// Makes a device node, FIFO or socket, owned by root.
///
/// # Errors
/// The name exists, or the numbers do not fit the type.
pub fn make(fs: &dyn FileSystem, args: &Args) -> Outcome {
    let path = pattern::path(&args.path)?;
    let new = new_inode(args).map_err(|why| Failure::usage(format!("{}: {why}", shown(path))))?;
    let mode = args.mode.as_ref();
    let mode = mode.map_or((0o666, UMASK), |change| (change.apply(0o666, false), 0));
    let make = || {
        let (parent, name) = walk::resolve_parent(fs, path)?;
        create_plain(fs, (parent.ino, name), new, mode).map(drop)
    };
    make().map_err(|error| unmade(fs, path, &error))
}

fn new_inode(args: &Args) -> Result<NewInode<'static>, &'static str> {
    let numbers = args.major.zip(args.minor);
    let device = numbers.and_then(|(major, minor)| cairn_vfs::encode_device(major, minor));
    match (args.kind.as_str(), device, args.major) {
        ("b", Some(device), _) => Ok(NewInode::BlockDevice(device)),
        ("c" | "u", Some(device), _) => Ok(NewInode::CharDevice(device)),
        ("p", None, None) => Ok(NewInode::Fifo),
        ("s", None, None) => Ok(NewInode::Socket),
        ("p" | "s", ..) => Err("a FIFO or socket has no device numbers: leave them out"),
        _ => Err("a device needs both numbers: MAJOR MINOR"),
    }
}
