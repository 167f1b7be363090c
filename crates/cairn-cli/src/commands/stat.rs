//! `cairn stat`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use cairn_vfs::{Attributes, FileKind, FileSystem, Timestamp, walk};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::print;
use crate::session::{Access, shown, with_volume};

/// Arguments of `stat`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn stat --json disk.img /etc/passwd

JSON: an array with one object a path: path, inode, generation, kind, mode (octal string), links, uid, gid, size, \
sectors, device [major, minor], atime, mtime, ctime, crtime ({seconds, nanoseconds}), flags, target, xattrs \
(name to bytes in hex).")]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Follow a symbolic link at the end of the path.
    #[arg(short = 'L', long)]
    pub dereference: bool,
    /// The image.
    pub image: OsString,
    /// What to describe.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// Describes.
///
/// # Errors
/// A path does not exist or cannot be read.
pub fn run(args: &Args) -> Outcome {
    with_volume(&args.image, Access::Read, |fs| {
        print!("{}", describe(fs, args)?);
        Ok(())
    })
}

/// What `run` prints.
///
/// # Errors
/// As [`run`].
pub fn describe(fs: &dyn FileSystem, args: &Args) -> Outcome<String> {
    let mut objects = Vec::new();
    let mut text = String::new();
    for path in &args.paths {
        let path = path.as_bytes();
        let failed = |error| Failure::volume(shown(path), &error);
        let found = walk::resolve(fs, path, args.dereference).map_err(failed)?;
        let extra = Extra::read(fs, &found).map_err(failed)?;
        if args.json {
            objects.push(object(path, &found, &extra));
        } else {
            append(&mut text, path, &found, &extra);
        }
    }
    if args.json { Ok(format!("{:#}\n", Value::Array(objects))) } else { Ok(text) }
}

/// What `getattr` does not tell.
struct Extra {
    target: Option<Vec<u8>>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Extra {
    fn read(fs: &dyn FileSystem, of: &Attributes) -> cairn_vfs::Result<Self> {
        let target = (of.kind == FileKind::Symlink).then(|| fs.readlink(of.ino)).transpose()?;
        let names = fs.listxattr(of.ino)?;
        let pair = |name: Vec<u8>| fs.getxattr(of.ino, &name).map(|value| (name, value));
        Ok(Self { target, xattrs: names.into_iter().map(pair).collect::<cairn_vfs::Result<_>>()? })
    }
}

fn object(path: &[u8], of: &Attributes, extra: &Extra) -> Value {
    let (major, minor) = print::device(of.device);
    let xattrs: serde_json::Map<_, _> =
        extra.xattrs.iter().map(|(name, value)| (shown(name), Value::from(hex(value)))).collect();
    json!({
        "path": shown(path),
        "inode": of.ino.get(),
        "generation": of.generation,
        "kind": print::kind(of.kind),
        "mode": format!("{:04o}", of.permissions),
        "links": of.links,
        "uid": of.uid,
        "gid": of.gid,
        "size": of.size,
        "sectors": of.sectors,
        "device": [major, minor],
        "atime": time(of.atime),
        "mtime": time(of.mtime),
        "ctime": time(of.ctime),
        "crtime": of.crtime.map(time),
        "flags": of.flags.bits(),
        "target": extra.target.as_deref().map(shown),
        "xattrs": xattrs,
    })
}

fn time(at: Timestamp) -> Value {
    json!({ "seconds": at.seconds, "nanoseconds": at.nanoseconds })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn append(text: &mut String, path: &[u8], of: &Attributes, extra: &Extra) {
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:>8}: {value}");
    };
    let arrow = extra.target.as_deref().map_or(String::new(), |target| format!(" -> {}", shown(target)));
    line("File", format!("{}{arrow}", shown(path)));
    line("Kind", print::kind(of.kind).into());
    line("Inode", format!("{}  Links: {}  Generation: {}", of.ino, of.links, of.generation));
    line("Size", format!("{} bytes  Sectors: {}  Block: {}", of.size, of.sectors, of.block_size));
    line("Access", format!("{:04o} {}  Uid: {}  Gid: {}", of.permissions, print::mode(of), of.uid, of.gid));
    if matches!(of.kind, FileKind::BlockDevice | FileKind::CharDevice) {
        let (major, minor) = print::device(of.device);
        line("Device", format!("{major}, {minor}"));
    }
    line("Accessed", print::time_exact(of.atime));
    line("Modified", print::time_exact(of.mtime));
    line("Changed", print::time_exact(of.ctime));
    if let Some(born) = of.crtime {
        line("Born", print::time_exact(born));
    }
    for (name, value) in &extra.xattrs {
        line("Xattr", format!("{} = {}", shown(name), value.escape_ascii()));
    }
}
