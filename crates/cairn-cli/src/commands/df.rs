//! `cairn df`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use cairn_base::stats::Value;
use cairn_vfs::{FileSystem, VolumeStats};

use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome};
use crate::operands::LongHelp;
use crate::output::Output;
use crate::session::{Access, ImageArg};
use crate::{json, print};

/// Arguments of `df`.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Example:
  cairn df -h disk.img

Sizes in KiB, as df(1) counts them for the mounted volume.
JSON: one object: image, block_size, and in bytes size, used, free (root may use it) and available (everybody may); inodes, \
inodes_used and inodes_free."
)]
pub struct Args {
    /// --help.
    #[command(flatten)]
    pub help: LongHelp,
    /// Sizes with units.
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Sizes in KiB: it is so without -h.
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
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        let stats = fs.statfs().map_err(|error| Failure::volume("statfs", &error))?;
        if self.json {
            return writeln!(
                output,
                "{:#}",
                serde_json::Value::Object(object(&self.image.image, &stats))
            );
        }
        let kind = if self.print_type { format_name(fs) } else { None };
        table(self, &stats, kind.as_deref(), output)
    }
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

fn table(args: &Args, stats: &VolumeStats, kind: Option<&str>, output: &mut Output<'_>) -> Outcome {
    let (unit, counts) = if args.inodes {
        let used = stats.inodes.saturating_sub(stats.free_inodes);
        ("Inodes", [stats.inodes, used, stats.free_inodes])
    } else {
        let used = stats.blocks.saturating_sub(stats.free_blocks);
        let bytes = |blocks: u64| blocks.saturating_mul(stats.block_size.into());
        let unit = if args.human_readable { "Size" } else { "1K-blocks" };
        (unit, [bytes(stats.blocks), bytes(used), bytes(stats.available_blocks)])
    };
    let [_, used, left] = counts;
    let shown = counts.map(|count| match (args.inodes, args.human_readable) {
        (true, false) => count.to_string(),
        (_, true) => print::size_short(count),
        _ => count.div_ceil(1024).to_string(),
    });
    // Of what may be used; rounded up, as df does.
    let share = match used.saturating_add(left) {
        0 => "-".into(),
        all => format!("{}%", (u128::from(used) * 100).div_ceil(u128::from(all))),
    };
    let left = if args.inodes { "IFree" } else { "Available" };
    let used = if args.inodes { "IUsed" } else { "Used" };
    let heading = if kind.is_some() { "Type " } else { "" };
    let kind = kind.map_or(String::new(), |kind| format!("{kind:<4} "));
    writeln!(output, "{heading}{unit:>12} {used:>12} {left:>12} Use% Image")?;
    write!(output, "{kind}{:>12} {:>12} {:>12} {share:>4} ", shown[0], shown[1], shown[2])?;
    output.name(args.image.image.as_bytes())?;
    output.bytes(b"\n")
}
