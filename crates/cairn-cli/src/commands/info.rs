//! `cairn info`.

use std::os::unix::ffi::OsStrExt;

use cairn::{Cause, Disk, DiskPartition, ImageSpec, Info};
use cairn_vfs::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::pool;
use crate::failure::{Failure, Outcome, Status};
use crate::output::{complain, with_stdout};
use crate::session::ImageArg;
use crate::{json, print, session, wording};

/// Arguments of `info`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn info disk.img
  cairn info --json disk.img#2
  cairn info --pool file-store:///srv/pool

Of a disk with partitions, info lists these: where each is, what it holds, and how to address it.
The JSON form is one object: \"image\", \"type\" (ext2, ext3, ext4, f2fs or disk), \"size\", \
\"used\" and \"free\" in bytes (metadata counts as used), \"device\" (what the image is made of, \
from what holds the bytes: \"kind\", \"detail\" and \"size\" of each), and the format's own \
fields, whose names do not change. Dates are seconds since 1970 there. A disk has \"table\" \
(GPT or MBR), \"size\" and \"partitions\", each with \"number\", \"address\", \"offset\", \
\"size\", \"type\", \"name\", \"filesystem\" and \"label\". With --pool: \"pool\" and \
\"volumes\", each with \"name\", \"address\", \"size\", \"snapshot\" and \"writer\" (null, or \
\"host\" and \"process\"), \"unreadable\", each with \"name\" and \"reason\"; if there are \
such, the exit status is 4 (3 if the mode forbids it); and \"left\", what belongs to no volume.")]
pub struct Args {
    /// List the volumes and snapshots of the pool that the address of an object volume names.
    #[arg(long)]
    pool: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: ImageArg,
}

/// Keys whose numbers are seconds since 1970.
const DATES: [&str; 3] = ["created", "last_mounted", "last_written"];

/// Keys whose numbers are bytes.
const SIZES: [&str; 3] = ["size", "used", "free"];

/// Keys whose texts may say what to do.
const ADVICE: [&str; 2] = ["access", "needs_check"];

/// Prints what the image holds. Only the superblock (F2FS: also the checkpoint), the root's inode
/// or the partition table is read; damage elsewhere does not matter.
///
/// # Errors
/// The image cannot be opened.
pub fn run(args: &Args) -> Outcome {
    if args.pool {
        return pool::list(&args.image.spec()?, args.json);
    }
    let looked = args.image.spec().and_then(|image| Ok((look(args, &image)?, image)));
    match looked {
        Ok((Found::Volume(info), image)) => show(args, &image, info.format().name(), &info, None),
        Ok((Found::Disk(disk), image)) => {
            if let Some(missing) = disk.missing(&image) {
                complain(format_args!("warning: {}", Failure::from(missing)));
            }
            show(args, &image, "disk", &disk, Some(&disk))
        }
        Err(failure) => {
            if args.json {
                with_stdout(|output| json::failure(output, &failure))?;
            }
            Err(failure)
        }
    }
}

/// What an image holds.
enum Found {
    Volume(Info),
    Disk(Disk),
}

fn look(args: &Args, image: &ImageSpec) -> Outcome<Found> {
    let unknown = match cairn::inspect(image, &args.image.devices) {
        Ok(info) => {
            session::tell_of_interrupted(image);
            if let Info::Ext4(info) = &info {
                session::tell_of_check(image, info.needs_check.as_deref());
            }
            return Ok(Found::Volume(info));
        }
        Err(error) if matches!(error.cause(), Cause::UnknownFormat { .. }) => error,
        Err(error) => return Err(error.into()),
    };
    cairn::disk(image)?.map(Found::Disk).ok_or_else(|| unknown.into())
}

fn show(
    args: &Args,
    image: &ImageSpec,
    kind: &str,
    details: &impl Serialize,
    disk: Option<&Disk>,
) -> Outcome {
    let details = serde_json::to_value(details);
    let details =
        details.map_err(|error| Failure::new(Status::Failed, format!("{image}: {error}")))?;
    let mut object = json::Object::new();
    json::insert_name(&mut object, "image", image.to_os_string().as_bytes());
    object.insert("type".into(), kind.into());
    object.insert("device".into(), device(args, image)?);
    if let Value::Object(mut fields) = details {
        // The superblock tells ext2, ext3 and ext4 apart.
        if let Some(kind) = fields.remove("kind") {
            object.insert("type".into(), kind);
        }
        for key in ADVICE {
            if let Some(Value::String(text)) = fields.get_mut(key) {
                *text = wording::named(text).into_owned();
            }
        }
        object.extend(sizes(&fields));
        object.extend(fields);
    }
    with_stdout(|output| {
        if args.json {
            return writeln!(output, "{:#}", Value::Object(object));
        }
        object.remove("partitions");
        output.bytes(as_text(&object).as_bytes())?;
        disk.map_or(Ok(()), |disk| output.bytes(table(disk).as_bytes()))
    })
}

/// What the image is made of, from what holds the bytes.
fn device(args: &Args, image: &ImageSpec) -> Outcome<Value> {
    let links = cairn::chain(image)?;
    if args.json {
        return Ok(links.iter().map(|link| serde_json::json!(link)).collect());
    }
    let shown: Vec<String> = links.iter().map(ToString::to_string).collect();
    Ok(shown.join(", ").into())
}

/// A volume's size, used and free space in bytes. F2FS's numbers come from its checkpoint.
fn sizes(of: &json::Object) -> json::Object {
    let number = |object: &json::Object, key: &str| object.get(key).and_then(Value::as_u64);
    let mut sizes = json::Object::new();
    let (Some(unit), Some(blocks)) = (number(of, "block_size"), number(of, "blocks")) else {
        return sizes;
    };
    let free = number(of, "free_blocks").or_else(|| {
        let checkpoint = of.get("checkpoint")?.as_object()?;
        number(checkpoint, "user_blocks")?.checked_sub(number(checkpoint, "valid_blocks")?)
    });
    let mut insert = |key: &str, blocks: u64| {
        sizes.insert(key.into(), blocks.saturating_mul(unit).into());
    };
    insert("size", blocks);
    if let Some(free) = free {
        insert("free", free);
        insert("used", blocks.saturating_sub(free));
    }
    sizes
}

/// The partitions of a disk, in columns.
fn table(disk: &Disk) -> String {
    let heading = ["address", "start", "size", "type", "filesystem", "label"].map(String::from);
    let row = |one: &DiskPartition| {
        let or_dash = |text: &Option<String>| {
            text.as_deref().map_or("-".into(), |text| print::escaped(text.as_bytes()))
        };
        let label = one.label.as_ref().or(one.name.as_ref()).cloned();
        let address = print::escaped(one.address.as_bytes());
        [
            address,
            print::size(one.offset),
            print::size(one.size),
            one.kind.clone(),
            or_dash(&one.filesystem),
            or_dash(&label),
        ]
    };
    let rows: Vec<[String; 6]> =
        std::iter::once(heading).chain(disk.partitions.iter().map(row)).collect();
    print::columns(&rows)
}

/// `key: value` lines; nested objects are indented.
fn as_text(object: &serde_json::Map<String, Value>) -> String {
    let mut text = String::new();
    append(&mut text, object, 0);
    text
}

fn append(text: &mut String, object: &serde_json::Map<String, Value>, indent: usize) {
    for (name, value) in object {
        let key = format!("{:indent$}{}:", "", name.replace('_', " "));
        match value {
            Value::Object(inner) => {
                text.push_str(&format!("{key}\n"));
                append(text, inner, indent + 2);
            }
            value if DATES.contains(&name.as_str()) => {
                text.push_str(&format!("{key:<26} {}\n", date(value)))
            }
            value if SIZES.contains(&name.as_str()) => {
                let shown = value.as_u64().map_or_else(|| scalar(value), print::size);
                text.push_str(&format!("{key:<26} {shown}\n"));
            }
            value => text.push_str(&format!("{key:<26} {}\n", scalar(value))),
        }
    }
}

fn date(value: &Value) -> String {
    match value.as_i64() {
        Some(0) => "never".into(),
        Some(seconds) => format!("{} UTC", print::time(Timestamp { seconds, nanoseconds: 0 })),
        None => scalar(value),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        Value::String(text) if text.is_empty() => "-".into(),
        Value::String(text) => print::escaped(text.as_bytes()),
        Value::Array(items) if items.is_empty() => "-".into(),
        Value::Array(items) => items.iter().map(scalar).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_lists_every_field() {
        let Value::Object(object) = serde_json::json!({
            "image": "disk.img", "clean": true, "features": ["extent", "64bit"], "label": "",
            "journal": {"blocks": 1024}, "created": 951_782_400, "last_mounted": 0,
        }) else {
            unreachable!("an object literal")
        };
        let text = as_text(&object);
        for line in [
            "image:                     disk.img",
            "features:                  extent 64bit",
            "  blocks:",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.contains("clean:                     yes"), "{text}");
        assert!(text.contains("2000-02-29 00:00:00 UTC\n") && text.contains("never\n"), "{text}");
    }
}
