//! `cairn df`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use cairn_base::stats::Value;
use cairn_vfs::{FileSystem, VolumeStats};

use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome};
use crate::operands::LongHelp;
use crate::output::Output;
use crate::session::{Access, ImageArg, with_volume};
use crate::{failure, json, print};

/// Arguments of `df`.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  cairn df -h disk.img
  cairn df -hT *.img

Sizes in KiB, as df(1) counts them for the mounted volume. Of an F2FS volume the space that \
cleaning needs (its overprovision, which is a large share of a small volume) is never free: it \
counts as used.
JSON: one object (of several images an array of them): image, block_size, and in bytes size, used, \
free (root may use it) and available (everybody may); inodes, inodes_used and inodes_free. An \
image that cannot be opened: image, error and status."
)]
pub struct Args {
    /// --help.
    #[command(flatten)]
    pub help: LongHelp,
    /// Sizes with units.
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Sizes in KiB (the default).
    #[arg(short = 'k', overrides_with = "human_readable")]
    pub kibibytes: bool,
    /// Show the type of the filesystem.
    #[arg(short = 'T', long)]
    pub print_type: bool,
    /// Inodes instead of space.
    #[arg(short = 'i', long)]
    pub inodes: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// Further images.
    #[arg(value_name = "IMAGES", conflicts_with = "devices")]
    pub more: Vec<OsString>,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn json(&self) -> bool {
        self.json
    }

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        if !self.more.is_empty() {
            return Err(Failure::usage("df: one image is open here: leave the others out"));
        }
        let found = Found::of(fs)?;
        if self.json {
            let object = object(&self.image.image, &found.stats);
            return writeln!(output, "{:#}", serde_json::Value::Object(object));
        }
        heading(self, output)?;
        row(self, &self.image.image, &found, output)
    }
}

/// What is asked of a volume.
struct Found {
    stats: VolumeStats,
    format: Option<String>,
}

impl Found {
    fn of(fs: &dyn FileSystem) -> Outcome<Self> {
        let stats = fs.statfs().map_err(|error| Failure::volume("statfs", &error))?;
        Ok(Self { stats, format: format_name(fs) })
    }
}

/// Opens one image after the other.
///
/// # Errors
/// An image cannot be opened. The other images are still shown.
pub fn each(args: &Args, output: &mut Output<'_>) -> Outcome {
    let further = args.more.iter().map(|image| ImageArg { image: image.clone(), devices: vec![] });
    let images: Vec<ImageArg> = std::iter::once(args.image.clone()).chain(further).collect();
    let (mut array, mut begun) = (json::Array::default(), false);
    let is_one = images.len() == 1;
    let done = failure::each(images, |image| {
        let found = with_volume(&image, Access::Read, Found::of);
        if !args.json {
            let found = found?;
            if !std::mem::replace(&mut begun, true) {
                heading(args, output)?;
            }
            return row(args, &image.image, &found, output);
        }
        match found {
            Ok(found) => {
                let object = object(&image.image, &found.stats);
                match is_one {
                    true => writeln!(output, "{:#}", serde_json::Value::Object(object)),
                    false => array.push(output, object),
                }
            }
            Err(failure) => {
                match is_one {
                    true => json::failure(output, &failure)?,
                    false => array.push(output, failed(&image.image, &failure))?,
                }
                Err(failure)
            }
        }
    });
    let ended = if args.json && !is_one { array.end(output) } else { Ok(()) };
    failure::all([done, ended])
}

/// The object of an image that cannot be opened.
fn failed(image: &OsStr, failure: &Failure) -> json::Object {
    let mut object = json::Object::new();
    json::insert_name(&mut object, "image", image.as_bytes());
    object.insert("error".into(), failure.to_string().into());
    object.insert("status".into(), (failure.status as u8).into());
    object
}

fn object(image: &OsStr, stats: &VolumeStats) -> json::Object {
    let mut object = json::Object::new();
    json::insert_name(&mut object, "image", image.as_bytes());
    let bytes = |blocks: u64| blocks.saturating_mul(stats.block_size.into());
    for (key, value) in [
        ("block_size", stats.block_size.into()),
        ("size", bytes(stats.blocks)),
        ("used", bytes(stats.blocks.saturating_sub(stats.free_blocks))),
        ("free", bytes(stats.free_blocks)),
        ("available", bytes(stats.available_blocks)),
        ("inodes", stats.inodes),
        ("inodes_used", stats.inodes.saturating_sub(stats.free_inodes)),
        ("inodes_free", stats.free_inodes),
    ] {
        object.insert(key.into(), value.into());
    }
    object
}

/// `ext4` or `f2fs`.
fn format_name(fs: &dyn FileSystem) -> Option<String> {
    match fs.report().get("state")? {
        Value::Section(state) => state.text("format").map(str::to_owned),
        _ => None,
    }
}

fn heading(args: &Args, output: &mut Output<'_>) -> Outcome {
    let unit = match (args.inodes, args.human_readable) {
        (true, _) => "Inodes",
        (_, true) => "Size",
        _ => "1K-blocks",
    };
    let left = if args.inodes { "IFree" } else { "Available" };
    let used = if args.inodes { "IUsed" } else { "Used" };
    let kind = if args.print_type { "Type " } else { "" };
    writeln!(output, "{kind}{unit:>12} {used:>12} {left:>12} Use% Image")
}

fn row(args: &Args, image: &OsStr, found: &Found, output: &mut Output<'_>) -> Outcome {
    let stats = &found.stats;
    let counts = if args.inodes {
        let used = stats.inodes.saturating_sub(stats.free_inodes);
        [stats.inodes, used, stats.free_inodes]
    } else {
        let used = stats.blocks.saturating_sub(stats.free_blocks);
        let bytes = |blocks: u64| blocks.saturating_mul(stats.block_size.into());
        [bytes(stats.blocks), bytes(used), bytes(stats.available_blocks)]
    };
    let [_, used, left] = counts;
    let shown = counts.map(|count| match (args.inodes, args.human_readable) {
        (true, false) => count.to_string(),
        (_, true) => print::size_short(count),
        _ => count.div_ceil(1024).to_string(),
    });
    // The share of the space that users may take, rounded up as in df.
    let share = match used.saturating_add(left) {
        0 => "-".into(),
        all => format!("{}%", (u128::from(used) * 100).div_ceil(u128::from(all))),
    };
    let kind = found.format.as_ref().filter(|_| args.print_type);
    let kind = kind.map_or(String::new(), |kind| format!("{kind:<4} "));
    write!(output, "{kind}{:>12} {:>12} {:>12} {share:>4} ", shown[0], shown[1], shown[2])?;
    output.escaped(image.as_bytes())?;
    output.bytes(b"\n")
}
