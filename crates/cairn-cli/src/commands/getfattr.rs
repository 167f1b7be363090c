//! `cairn getfattr`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use cairn_vfs::{FileSystem, walk};

use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome};
use crate::operands::{LongHelp, Operands};
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};
use crate::{json, print};

/// Arguments of `getfattr`.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  cairn getfattr -d -m - disk.img /etc/passwd
  cairn getfattr --only-values -n security.capability disk.img /bin/ping

Without -m - only attributes whose names begin with user. are shown, as with getfattr(1). Values \
that are not text are shown in hexadecimal digits (0x…), as cairn setfattr takes them.
JSON: an array of objects with path (path_hex, if it is not UTF-8) and attributes: an array of \
name (name_hex) and value (in hex)."
)]
pub struct Args {
    /// --help.
    #[command(flatten)]
    pub help: LongHelp,
    /// This attribute, with its value.
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<OsString>,
    /// Print values, too, not only names.
    #[arg(short = 'd', long)]
    pub dump: bool,
    /// - for attributes of all kinds, not only user.*.
    #[arg(short = 'm', long = "match", value_name = "-", value_parser = ["-"],
        allow_hyphen_values = true)]
    pub pattern: Option<String>,
    /// Print only the value's bytes.
    #[arg(long, requires = "name", conflicts_with = "json")]
    pub only_values: bool,
    /// Those of a symbolic link itself, not of its target.
    #[arg(short = 'h', long)]
    pub no_dereference: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Files.
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
        show(fs, self, output)
    }
}

/// Prints attributes.
///
/// # Errors
/// A path or the attribute does not exist.
pub fn show(fs: &dyn FileSystem, args: &Args, output: &mut Output<'_>) -> Outcome {
    let mut array = json::Array::default();
    let shown = args.operands.each(fs, |path| {
        let pairs = read(fs, args, path).map_err(|error| Failure::volume(shown(path), &error))?;
        if args.json {
            array.push(output, object(path, &pairs))
        } else if args.only_values {
            pairs.iter().try_for_each(|(_, value)| output.bytes(value))
        } else if pairs.is_empty() {
            Ok(())
        } else {
            text(args, path, &pairs, output)
        }
    });
    shown.and(if args.json { array.end(output) } else { Ok(()) })
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn read(fs: &dyn FileSystem, args: &Args, path: &[u8]) -> cairn_vfs::Result<Pairs> {
    let ino = walk::resolve(fs, path, !args.no_dereference)?.ino;
    let mut names = match &args.name {
        Some(name) => vec![name.as_bytes().to_vec()],
        None => fs.listxattr(ino)?,
    };
    names
        .retain(|name| args.name.is_some() || args.pattern.is_some() || name.starts_with(b"user."));
    names.sort();
    names.into_iter().map(|name| fs.getxattr(ino, &name).map(|value| (name, value))).collect()
}

fn text(args: &Args, path: &[u8], pairs: &Pairs, output: &mut Output<'_>) -> Outcome {
    // Without the leading slash, as getfattr(1) prints paths, so that the output fits another root.
    let relative =
        path.iter().position(|byte| *byte != b'/').map_or(&b"."[..], |start| &path[start..]);
    writeln!(output, "# file: {}", print::escaped(relative))?;
    for (name, value) in pairs {
        output.escaped(name)?;
        if args.dump || args.name.is_some() {
            write!(output, "={}", encoded(value))?;
        }
        output.bytes(b"\n")?;
    }
    output.bytes(b"\n")
}

/// `"text"` or `0x…`.
fn encoded(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.contains(char::is_control) => {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
        _ => format!("0x{}", json::hex(value)),
    }
}

fn object(path: &[u8], pairs: &Pairs) -> json::Object {
    let attribute = |(name, value): &(Vec<u8>, Vec<u8>)| {
        let mut object = json::Object::new();
        json::insert_name(&mut object, "name", name);
        object.insert("value".into(), json::hex(value).into());
        serde_json::Value::Object(object)
    };
    let mut object = json::Object::new();
    json::insert_name(&mut object, "path", path);
    object.insert("attributes".into(), pairs.iter().map(attribute).collect());
    object
}
