//! `cairn rescue`: copies what can be read out of a damaged volume, and deleted files.

mod host;
mod list;
mod sink;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use cairn_check::salvage::{Deleted, Remains, Salvage};
use serde_json::{Value, json};

use crate::commands::dump::{CopiesArg, warn_of_mount};
use crate::failure::{Failure, Outcome, Status};
use crate::output::with_stdout;
use crate::session::ImageArg;
use crate::{json, print};
use sink::Sink;

/// Arguments of `rescue`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn rescue disk.img -o saved
  cairn rescue --deleted disk.img
  cairn rescue --deleted disk.img -o saved /home/me/letter.txt

Stop using a disk from which files are missing, copy it, and rescue from the copy: whatever writes \
to the disk may overwrite them. The image is only read. With -o, everything that can be reached is \
copied into a directory, past errors; what no directory leads to is put in lost/. With --deleted, \
deleted inodes are listed, or restored with -o. No existing file of the directory is replaced. \
Exit status: 0 everything was rescued, 1 some was lost, 8 nothing could be read; others are those \
of all commands.")]
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
    rescue(args).inspect_err(|failure| {
        if args.json && failure.status != Status::Success {
            let _ = with_stdout(|output| json::failure(output, failure));
        }
    })
}

fn rescue(args: &Args) -> Outcome {
    let image = args.image.spec()?;
    warn_of_mount(&image);
    let opened = cairn::rescue(&image, &args.image.devices, args.copies.copies());
    let (format, mut volume) = opened?;
    let mut head = json::Object::new();
    json::insert_name(&mut head, "image", image.to_os_string().as_bytes());
    head.insert("format".into(), format.to_string().into());
    head.insert("notes".into(), volume.notes().into());
    let Some(directory) = &args.output else {
        return list::print(args.json, head, &mut *volume);
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
    sink.finish()?;
    report(args.json, head, &sink)
}

/// Restores the deleted inodes that are asked for; without any, all of which something is left.
fn restore(args: &Args, volume: &mut dyn Salvage, sink: &mut Sink) -> Outcome {
    let list = volume.deleted(sink);
    let wanted: Vec<&Deleted> = match args.which.is_empty() {
        true => list
            .iter()
            .filter(|one| matches!(one.remains, Remains::Whole | Remains::Part))
            .collect(),
        false => {
            let mut wanted = Vec::new();
            for word in &args.which {
                let before = wanted.len();
                wanted.extend(list.iter().filter(|one| is_named(one, word.as_bytes())));
                if wanted.len() == before {
                    let name = print::escaped(word.as_bytes());
                    let why = "no deleted inode has this number or path: --deleted lists them";
                    return Err(Failure::new(Status::Failed, format!("{name}: {why}")));
                }
            }
            wanted
        }
    };
    for one in wanted {
        let path =
            one.path.clone().unwrap_or_else(|| format!("lost/{}", one.file.ino).into_bytes());
        if !volume.restore(one, &path, sink) {
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

fn report(is_json: bool, mut head: json::Object, sink: &Sink) -> Outcome {
    let counts = &sink.counts;
    // An empty volume has nothing to be lost.
    let nothing = counts.files == 0 && counts.directories == 0 && counts.losses > 0;
    let status = match (nothing, counts.losses) {
        (true, _) => NOTHING,
        (false, 0) => 0,
        (false, _) => Status::Failed as u8,
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
                "status": status,
            });
            if let Value::Object(rest) = rest {
                head.extend(rest);
            }
            return writeln!(output, "{:#}", Value::Object(head));
        }
        writeln!(
            output,
            "rescued {} files, {} directories, {} further names, {} bytes; {} losses",
            counts.files, counts.directories, counts.links, counts.bytes, counts.losses
        )
    })?;
    match status {
        0 => Ok(()),
        status => Err(Failure::new(Status::Success, "").with_code(status)),
    }
}
