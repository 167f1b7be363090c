//! `cairn mkfs`.

use std::ffi::OsString;

use cairn::{Format, ImageSpec, MkfsOptions};
use uuid::Uuid;

use crate::failure::Outcome;

/// Arguments of `mkfs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn mkfs -t ext4 -L root --size 2G root.img

The result is reproducible when -U is given and SOURCE_DATE_EPOCH is set.")]
pub struct Args {
    /// Type of filesystem.
    #[arg(short = 't', long = "type", default_value = "ext4", value_parser = parse_format)]
    format: Format,
    /// Volume label, at most 16 bytes.
    #[arg(short = 'L', long)]
    label: Option<String>,
    /// UUID of the volume; random if absent.
    #[arg(short = 'U', long)]
    uuid: Option<Uuid>,
    /// Features to add or, with ^, to leave out, in mke2fs's words: -O ^has_journal,casefold.
    #[arg(short = 'O', long, value_delimiter = ',')]
    features: Vec<String>,
    /// Block size in bytes: 1024, 2048 or 4096.
    #[arg(short = 'b', long, value_name = "BYTES")]
    block_size: Option<u32>,
    /// Size of the image file: needed to create one; 512M, 2G…
    #[arg(long, value_parser = parse_size)]
    size: Option<u64>,
    /// The image; a file is created if absent.
    image: OsString,
}

fn parse_format(name: &str) -> Result<Format, String> {
    Format::from_name(name).ok_or_else(|| "the types are: ext4".into())
}

fn parse_size(text: &str) -> Result<u64, String> {
    cairn::image::parse_size(text).ok_or_else(|| "give bytes, or a number with K, M, G or T".into())
}

/// Makes the filesystem.
///
/// # Errors
/// The image cannot be created, is in use, or the parameters do not fit.
pub fn run(args: &Args) -> Outcome {
    let options = MkfsOptions {
        format: args.format,
        label: args.label.clone(),
        uuid: args.uuid,
        features: args.features.clone(),
        block_size: args.block_size,
        size: args.size,
    };
    cairn::mkfs(&ImageSpec::parse(&args.image)?, &options)?;
    Ok(())
}
