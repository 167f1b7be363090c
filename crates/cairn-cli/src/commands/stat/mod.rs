//! `cairn stat`.

mod format;

use std::fmt::Write as _;

use cairn_vfs::{Attributes, FileKind, FileSystem, walk};
use serde_json::Value;

use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome};
use crate::operands::Operands;
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};
use crate::{json, print, protection};
use format::{Format, Subject};

/// Arguments of `stat`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn stat --json disk.img /etc/passwd
  cairn stat -c '%a %u:%g %s %n' disk.img '/etc/*.conf'

FORMAT has the directives of stat(1): %a %A mode, %b blocks of %B bytes, %f raw mode, %F kind, %g \
%u owner, %h links, %i inode, %n name, %N name with target, %o block size, %s size, %t %T device; \
%w %x %y %z times of birth, access, modification and change, %W %X %Y %Z the same in seconds. A \
width may follow the %, as in %-10s.

JSON: an array with one object a path: path, inode, generation, kind, mode (octal string), links, \
uid, gid, size, sectors, device [major, minor], atime, mtime, ctime, crtime ({seconds, \
nanoseconds}), flags, target, xattrs (name to bytes in hex). A path or target that is not UTF-8 \
has its exact bytes in hex under path_hex or target_hex; if the name of an extended attribute is \
not, xattrs_hex has all of them with names in hex.")]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Print this for each file, and a newline.
    #[arg(short = 'c', long, value_name = "FORMAT", value_parser = Format::parse,
        conflicts_with = "json")]
    pub format: Option<Format>,
    /// As -c, without the newline. Understands \n, \t, \0 and \\.
    #[arg(long, value_name = "FORMAT", value_parser = Format::parse_printf,
        conflicts_with_all = ["json", "format"])]
    pub printf: Option<Format>,
    /// Follow a symbolic link at the end of the path.
    #[arg(short = 'L', long)]
    pub dereference: bool,
    /// What to describe.
    #[command(flatten)]
    pub operands: Operands,
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
        describe(fs, self, output)
    }
}

/// Describes.
///
/// # Errors
/// A path does not exist or cannot be read.
pub fn describe(fs: &dyn FileSystem, args: &Args, output: &mut Output<'_>) -> Outcome {
    let mut objects = Vec::new();
    let done = args.operands.each(fs, |path| {
        let failed = |error| Failure::volume(shown(path), &error);
        let mut found = walk::resolve(fs, path, args.dereference).map_err(failed)?;
        // The volume's block size, not the preferred size of a read, which `getattr` gives.
        found.block_size = fs.statfs().map_err(failed)?.block_size;
        if let Some(format) = args.format.as_ref().or(args.printf.as_ref()) {
            let target = target(fs, &found).map_err(failed)?;
            let subject = Subject { path, attributes: &found, target: target.as_deref() };
            return output.bytes(&format.of(&subject));
        }
        let extra = Extra::read(fs, &found).map_err(failed)?;
        if args.json {
            objects.push(object(path, &found, &extra));
            return Ok(());
        }
        let mut text = String::new();
        append(&mut text, path, &found, &extra);
        output.bytes(text.as_bytes())
    });
    done.and(if args.json { writeln!(output, "{:#}", Value::Array(objects)) } else { Ok(()) })
}

/// Fields that are not part of `getattr`.
struct Extra {
    target: Option<Vec<u8>>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Extra {
    fn read(fs: &dyn FileSystem, of: &Attributes) -> cairn_vfs::Result<Self> {
        let target = target(fs, of)?;
        let names = fs.listxattr(of.ino)?;
        let pair = |name: Vec<u8>| fs.getxattr(of.ino, &name).map(|value| (name, value));
        Ok(Self { target, xattrs: names.into_iter().map(pair).collect::<cairn_vfs::Result<_>>()? })
    }
}

fn target(fs: &dyn FileSystem, of: &Attributes) -> cairn_vfs::Result<Option<Vec<u8>>> {
    (of.kind == FileKind::Symlink).then(|| fs.readlink(of.ino)).transpose()
}

fn object(path: &[u8], of: &Attributes, extra: &Extra) -> Value {
    let mut object = json::attributes(path, of);
    match &extra.target {
        Some(target) => json::insert_name(&mut object, "target", target),
        None => drop(object.insert("target".into(), Value::Null)),
    }
    let pairs = |key: fn(&[u8]) -> String| {
        extra
            .xattrs
            .iter()
            .map(move |(name, value)| (key(name), Value::from(json::hex(value))))
            .collect::<json::Object>()
    };
    object.insert("xattrs".into(), pairs(|name| String::from_utf8_lossy(name).into_owned()).into());
    if extra.xattrs.iter().any(|(name, _)| std::str::from_utf8(name).is_err()) {
        object.insert("xattrs_hex".into(), pairs(json::hex).into());
    }
    object.into()
}

fn append(text: &mut String, path: &[u8], of: &Attributes, extra: &Extra) {
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:>8}: {value}");
    };
    let arrow =
        extra.target.as_deref().map_or(String::new(), |target| format!(" -> {}", shown(target)));
    line("File", format!("{}{arrow}", shown(path)));
    line("Kind", print::kind(of.kind).into());
    line("Inode", format!("{}  Links: {}  Generation: {}", of.ino, of.links, of.generation));
    line("Size", format!("{} bytes  Sectors: {}  Block: {}", of.size, of.sectors, of.block_size));
    line(
        "Access",
        format!("{:04o} {}  Uid: {}  Gid: {}", of.permissions, print::mode(of), of.uid, of.gid),
    );
    if matches!(of.kind, FileKind::BlockDevice | FileKind::CharDevice) {
        let (major, minor) = cairn_vfs::decode_device(of.device);
        line("Device", format!("{major}, {minor}"));
    }
    line("Flags", protection::letters(of.flags));
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
