//! `cairn resize`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use cairn::{ImageSpec, SizeWish};
use cairn_base::options::parse_size;
use serde_json::Value;

use crate::failure::{Failure, Outcome};
use crate::output::with_stdout;
use crate::usage::unit_forgotten;
use crate::{json, print};

/// Arguments of `resize`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn resize disk.img 1G
  cairn resize disk.img +100M
  cairn resize disk.img -10M
  cairn resize disk.img min
  cairn resize 'disk.img#2' max

Changes the size of a volume that is not mounted; one that was not unmounted cleanly is \
recovered first. A file or object volume grows and shrinks with its volume; a partition or device \
must be large enough, and keeps its size. After a crash the volume has the old size, the new one \
or one in between, and is whole; the next try goes on.")]
pub struct Args {
    /// Print the sizes as JSON.
    #[arg(long)]
    json: bool,
    /// The image: a file, a block device or an address. What can follow its name: cairn --help.
    image: OsString,
    /// The new size: bytes such as 2G; +SIZE or -SIZE for so much more or less; max for all of the
    /// file, partition or device; min for as little as the files need.
    #[arg(value_parser = parse_wish, allow_hyphen_values = true)]
    size: SizeWish,
}

fn parse_wish(text: &str) -> Result<SizeWish, String> {
    let (wish, digits): (fn(u64) -> SizeWish, _) = match text.as_bytes().first() {
        Some(b'+') => (SizeWish::More, &text[1..]),
        Some(b'-') => (SizeWish::Less, &text[1..]),
        _ => (SizeWish::Bytes, text),
    };
    let size = parse_size(digits);
    if size == Some(0) {
        return Err("a volume has no size of 0: give min for the smallest that it can have".into());
    }
    if let Some(why) = unit_forgotten(text, 4096) {
        return Err(why);
    }
    match size {
        _ if text == "max" => Ok(SizeWish::Most),
        _ if text == "min" => Ok(SizeWish::Least),
        Some(size) => Ok(wish(size)),
        None => Err("give bytes with K, M, G or T, such as 2G, +SIZE, -SIZE, min, or max".into()),
    }
}

/// Changes the size.
///
/// # Errors
/// The image cannot be opened or is in use, or the volume cannot have this size.
pub fn run(args: &Args) -> Outcome {
    let image = ImageSpec::parse(&args.image)?;
    let done = match cairn::resize(&image, args.size) {
        Ok(done) => done,
        Err(error) => {
            let failure = Failure::from(error);
            if args.json {
                with_stdout(|output| json::failure(output, &failure))?;
            }
            return Err(failure);
        }
    };
    with_stdout(|output| {
        if args.json {
            let mut object = json::Object::new();
            json::insert_name(&mut object, "image", image.to_os_string().as_bytes());
            object.insert("before".into(), done.before.into());
            object.insert("size".into(), done.after.into());
            return writeln!(output, "{:#}", Value::Object(object));
        }
        let name = print::escaped(image.to_os_string().as_bytes());
        let (before, after) = (print::size(done.before), print::size(done.after));
        match done.before == done.after {
            true => writeln!(output, "{name}: {after}, as before"),
            false => writeln!(output, "{name}: {after}, before {before}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_more_or_all() {
        assert_eq!(parse_wish("2G"), Ok(SizeWish::Bytes(2 << 30)));
        assert_eq!(parse_wish("+1M"), Ok(SizeWish::More(1 << 20)));
        assert_eq!(parse_wish("max"), Ok(SizeWish::Most));
        assert_eq!(parse_wish("min"), Ok(SizeWish::Least));
        assert_eq!(parse_wish("-1M"), Ok(SizeWish::Less(1 << 20)));
        for (text, said) in [("0", "min"), ("+0", "min"), ("-5", "-5M"), ("--jsn", "-SIZE")] {
            let why = parse_wish(text).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
    }
}
