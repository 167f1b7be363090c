//! `cairn setfattr`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use cairn_vfs::{Error, FileSystem, XattrMode, walk};

use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome, Status};
use crate::operands::{LongHelp, Operands};
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};

/// Arguments of `setfattr`.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  cairn setfattr -n user.origin -v 'build 7' disk.img /etc/fstab
  cairn setfattr -n user.bytes -v 0x00ff disk.img /bin/ping
  cairn setfattr -x user.origin disk.img /etc/fstab

A value that begins with 0x is in hexadecimal digits; of a value in double quotes, the text \
between them is set."
)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct Args {
    /// --help.
    #[command(flatten)]
    pub help: LongHelp,
    /// Set this attribute: user.…, trusted.…, security.… or system.posix_acl_….
    #[arg(short = 'n', long, value_name = "NAME", group = "what")]
    pub name: Option<OsString>,
    /// Its value; empty if absent.
    #[arg(short = 'v', long, value_name = "VALUE", requires = "name", allow_hyphen_values = true,
        value_parser = parse_value)]
    pub value: Option<Value>,
    /// Remove this attribute.
    #[arg(short = 'x', long, value_name = "NAME", group = "what")]
    pub remove: Option<OsString>,
    /// Those of a symbolic link itself, not of its target.
    #[arg(short = 'h', long)]
    pub no_dereference: bool,
    /// Files.
    #[command(flatten)]
    pub operands: Operands,
}

/// The bytes of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value(Vec<u8>);

fn parse_value(text: &str) -> Result<Value, String> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let pairs = digits.as_bytes().chunks(2);
        let byte = |pair: &[u8]| match pair {
            [_, _] => u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok(),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
        return bytes
            .map(Value)
            .ok_or_else(|| "give two hexadecimal digits for each byte after 0x".into());
    }
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    Ok(Value(quoted.unwrap_or(text).as_bytes().to_vec()))
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.operands.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, fs: &dyn FileSystem, _: &mut Output<'_>) -> Outcome {
        self.operands.each(fs, |path| {
            change(fs, self, path).map_err(|error| match error {
                Error::Unsupported(_) => {
                    let why = "a name begins with user., trusted., security. or system.: give one \
                        of these";
                    Failure::new(Status::Failed, format!("{}: {error}: {why}", shown(path)))
                }
                error => Failure::volume(shown(path), &error),
            })
        })
    }
}

fn change(fs: &dyn FileSystem, args: &Args, path: &[u8]) -> cairn_vfs::Result<()> {
    let ino = walk::resolve(fs, path, !args.no_dereference)?.ino;
    if let Some(name) = &args.remove {
        return fs.removexattr(ino, name.as_bytes());
    }
    let value = args.value.as_ref().map_or(&[][..], |value| &value.0);
    let name = args.name.as_deref().unwrap_or_default();
    fs.setxattr(ino, name.as_bytes(), value, XattrMode::Set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_text_or_digits() {
        for (text, bytes) in [
            ("plain", &b"plain"[..]),
            ("\"q\"", b"q"),
            ("\"", b"\""),
            ("0x00fF", b"\0\xff"),
            ("", b""),
        ] {
            assert_eq!(parse_value(text), Ok(Value(bytes.to_vec())), "{text}");
        }
        assert!(
            parse_value("0x1").is_err()
                && parse_value("0xzz").is_err()
                && parse_value("0xé").is_err()
        );
    }
}
