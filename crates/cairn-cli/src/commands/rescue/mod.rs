//! `cairn rescue`: copies what can be read out of a damaged volume, and deleted files.

mod attributes;
mod host;
mod list;
mod sink;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use cairn::{Cause, Class, ImageSpec};
use cairn_check::salvage::{Deleted, Loss, Receiver, Remains, Salvage};
use serde_json::{Value, json};

use crate::commands::dump::{CopiesArg, warn_of_mount};
use crate::failure::{Failure, Outcome, Status};
use crate::output::with_stdout;
use crate::session::ImageArg;
use crate::{json, print};
use sink::Sink;

/// Arguments of `rescue`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "\
cairn rescue [OPTIONS] -o DIR IMAGE
       cairn rescue [OPTIONS] --deleted [-o DIR] IMAGE [WHICH]...")]
#[command(after_help = "\
Examples:
  cairn rescue disk.img -o saved
  cairn rescue --deleted disk.img
  cairn rescue --deleted disk.img -o saved /home/me/letter.txt

Stop using a disk from which files are missing, copy it, and rescue from the copy: whatever writes \
to the disk may overwrite them. The image is only read. With -o, everything that can be reached is \
copied into a directory, past errors; what no directory leads to is put in lost/. With --deleted, \
deleted inodes are listed, or restored with -o. Existing files of the directory are not replaced, \
and existing directories keep their attributes. Exit status: 0 everything was rescued, 1 some was \
lost, 8 nothing could be read; others are those of all commands.")]
pub struct Args {
    /// Find deleted inodes.
    #[arg(long)]
    deleted: bool,
    /// Copy what is found into this directory, which is made if it does not exist.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    copies: CopiesArg,
    #[command(flatten)]
    image: ImageArg,
    /// With --deleted: restore only these, by inode number or path.
    #[arg(requires = "deleted", requires = "output")]
    which: Vec<OsString>,
}

/// Bytes that are searched for superblocks in unusual places.
const SEARCHED: u64 = 4 << 30;
/// Nothing could be read.
const NOTHING: u8 = 8;

/// Rescues.
///
/// # Errors
/// The image cannot be opened, something was lost, or the host refuses the copies.
pub fn run(args: &Args) -> Outcome {
    if args.output.is_none() && !args.deleted {
        return Err(Failure::usage(
            "give a directory with -o, or --deleted to list what is deleted",
        ));
    }
    let rescued = rescue(args).inspect_err(|failure| {
        if args.json && failure.status != Status::Success {
            let _ = with_stdout(|output| json::failure(output, failure));
        }
    })?;
    rescued.map_or(Ok(()), |(head, sink, ended)| report(args.json, head, &sink, ended))
}

/// What was copied, and why the rescue has ended early; nothing if deleted inodes were listed.
type Rescued = Option<(json::Object, Sink, Option<Failure>)>;

fn rescue(args: &Args) -> Outcome<Rescued> {
    let image = args.image.spec()?;
    warn_of_mount(&image);
    let opened = cairn::rescue(&image, &args.image.devices, args.copies.copies());
    let (format, mut volume) = opened.map_err(|error| unreadable(&image, error))?;
    let mut head = json::Object::new();
    json::insert_name(&mut head, "image", image.to_os_string().as_bytes());
    head.insert("format".into(), format.to_string().into());
    head.insert("notes".into(), volume.notes().into());
    let Some(directory) = &args.output else {
        return list::print(args.json, head, &mut *volume).map(|()| None);
    };
    let mut sink = Sink::new(directory, args.json)?;
    if !args.json {
        with_stdout(|output| list::notes(output, &volume.notes()))?;
    }
    if args.deleted {
        restore(args, &mut *volume, &mut sink)?;
    } else {
        volume.tree(&mut sink);
    }
    let ended = sink.finish();
    Ok(Some((head, sink, ended)))
}

/// The advice for a damaged volume is to rescue what is left.
fn unreadable(image: &ImageSpec, error: cairn::Error) -> Failure {
    let why = match error.cause() {
        cause @ Cause::Format { class: Class::Corrupt, .. } => {
            let text = format!("{}: {cause}: nothing can be read by it", error.image());
            Failure::new(Status::Corrupt, text)
        }
        Cause::UnknownFormat { hint: None } => {
            let size = cairn::chain(image).ok().and_then(|links| Some(links.last()?.size));
            let searched = match size.filter(|size| *size <= SEARCHED) {
                Some(size) => format!("in all of its {}", print::size(size)),
                None => {
                    "in the first 4 GiB: `mke2fs -n` with the options of a volume of ext4 lists \
                         where else backups are, and --superblock reads one"
                        .to_owned()
                }
            };
            let text = format!(
                "{error}; if a volume was there, no copy of its superblock is left {searched}"
            );
            Failure::new(Status::Corrupt, text)
        }
        _ => Failure::from(error),
    };
    if why.status == Status::Corrupt { why.with_code(NOTHING) } else { why }
}

/// Restores the deleted inodes that are asked for, without any all, as far as something is left.
fn restore(args: &Args, volume: &mut dyn Salvage, sink: &mut Sink) -> Outcome {
    let list = volume.deleted(sink);
    for word in &args.which {
        if !list.iter().any(|one| is_named(one, word.as_bytes())) {
            let name = print::escaped(word.as_bytes());
            let why = "no deleted inode has this number or path: --deleted lists them";
            return Err(Failure::new(Status::Failed, format!("{name}: {why}")));
        }
    }
    let is_wanted = |one: &&Deleted| {
        args.which.is_empty() || args.which.iter().any(|word| is_named(one, word.as_bytes()))
    };
    for one in list.iter().filter(is_wanted) {
        let path =
            one.path.clone().unwrap_or_else(|| format!("lost/{}", one.file.ino).into_bytes());
        let why = match one.remains {
            Remains::Whole | Remains::Part => None,
            Remains::Overwritten => Some("others use all of its blocks"),
            Remains::Unknown => Some("nothing says where its contents were"),
        };
        let goes_on = match why {
            None => volume.restore(one, &path, sink),
            Some(what) => sink.lost(Loss { path, ino: one.file.ino, what: what.into() }),
        };
        if !goes_on {
            break;
        }
    }
    Ok(())
}

fn is_named(deleted: &Deleted, word: &[u8]) -> bool {
    let number = std::str::from_utf8(word).ok().and_then(|word| word.parse::<u64>().ok());
    let path = word.strip_prefix(b"/").unwrap_or(word);
    number == Some(deleted.file.ino) || deleted.path.as_deref() == Some(path)
}

/// Prints the counts. `ended`: why the rescue has ended early.
fn report(is_json: bool, mut head: json::Object, sink: &Sink, ended: Option<Failure>) -> Outcome {
    let counts = &sink.counts;
    // An empty volume has nothing to be lost.
    let nothing = counts.files == 0 && counts.directories == 0 && counts.losses > 0;
    let status = match (&ended, nothing, counts.losses) {
        (Some(_), ..) | (None, false, 1..) => Status::Failed as u8,
        (None, true, _) => NOTHING,
        (None, false, 0) => 0,
    };
    with_stdout(|output| {
        if is_json {
            let rest = json!({
                "files": counts.files,
                "directories": counts.directories,
                "links": counts.links,
                "bytes": counts.bytes,
                "losses": counts.losses,
                "lost": sink.losses,
                "xattrs_refused": counts.xattrs,
                "status": status,
            });
            if let Value::Object(rest) = rest {
                head.extend(rest);
            }
            if let Some(failure) = &ended {
                head.insert("error".into(), failure.to_string().into());
            }
            return writeln!(output, "{:#}", Value::Object(head));
        }
        if let Some(first) = &sink.refused {
            let many = counted(counts.xattrs, "extended attribute", "extended attributes");
            writeln!(output, "note: {many} not copied, the first one {first}")?;
        }
        writeln!(
            output,
            "rescued {}, {}, {}, {}; {}",
            counted(counts.files, "file", "files"),
            counted(counts.directories, "directory", "directories"),
            counted(counts.links, "further name", "further names"),
            counted(counts.bytes, "byte", "bytes"),
            counted(counts.losses, "loss", "losses")
        )
    })?;
    match (ended, status) {
        (Some(failure), _) => Err(failure),
        (None, 0) => Ok(()),
        (None, status) => Err(Failure::new(Status::Success, "").with_code(status)),
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
