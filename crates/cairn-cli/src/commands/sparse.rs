//! `cairn sparse` and `cairn unsparse`.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use cairn::ImageSpec;
use cairn_base::options::parse_size;
use cairn_build::{PackOptions, UnpackOptions};

use super::build::failure;
use crate::failure::{Failure, Outcome, Status, plain};
use crate::signals::remove_unfinished;
use crate::{output, print};

/// Arguments of `sparse`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn sparse disk.img disk.simg
  cairn sparse --crc disk.img - | gzip >disk.simg.gz

A sparse image of Android (version 1.0) has no room for blocks that repeat four bytes, such as \
zeros. fastboot and simg2img read it. cairn build --sparse makes one at once.")]
pub struct PackArgs {
    /// Bytes of a block: a multiple of 4. An image of another size gets zeros at its end.
    #[arg(short = 'b', long, value_name = "BYTES", default_value = "4096",
        value_parser = parse_block)]
    block_size: u32,
    /// Add a checksum of the image.
    #[arg(long)]
    crc: bool,
    /// What holes of the file hold does not matter: a device keeps there what it has. Without
    /// this option it gets zeros.
    #[arg(long)]
    skip_holes: bool,
    /// Replace OUT if it exists.
    #[arg(short = 'F', short_alias = 'f', long)]
    force: bool,
    /// The image: a file or a block device.
    image: PathBuf,
    /// The sparse image; - is standard output.
    out: PathBuf,
}

fn parse_block(text: &str) -> Result<u32, String> {
    let size = parse_size(text).and_then(|size| u32::try_from(size).ok());
    let size = size.filter(|size| size.is_multiple_of(4) && (4..=64 << 20).contains(size));
    size.ok_or_else(|| "give a multiple of 4, at most 64M, such as 4096".into())
}

/// Arguments of `unsparse`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn unsparse system.simg system.img
  cairn unsparse super.img_sparsechunk.0 super.img_sparsechunk.1 super.img

What the sparse image leaves open becomes a hole. Several sparse images are the parts of one.")]
pub struct UnpackArgs {
    /// Replace OUT if it exists.
    #[arg(short = 'F', short_alias = 'f', long)]
    force: bool,
    /// The sparse image, or the parts of one in order; - is standard input.
    #[arg(required = true, value_name = "SPARSE")]
    inputs: Vec<PathBuf>,
    /// The image; - is standard output.
    out: PathBuf,
}

/// Makes a sparse image.
///
/// # Errors
/// The image cannot be read, or the sparse image not written.
pub fn pack(args: &PackArgs) -> Outcome {
    remove_unfinished()?;
    check_image(&args.image)?;
    output::refuse_terminal(&args.out)?;
    let options = PackOptions {
        image: args.image.clone(),
        output: args.out.clone(),
        block: args.block_size,
        crc: args.crc,
        holes_do_not_matter: args.skip_holes,
        overwrite: args.force,
    };
    cairn_build::pack(&options).map_err(failure)
}

/// Makes an image of a sparse one.
///
/// # Errors
/// The sparse image is damaged or cannot be read, or the image cannot be written.
pub fn unpack(args: &UnpackArgs) -> Outcome {
    remove_unfinished()?;
    output::refuse_terminal(&args.out)?;
    let options = UnpackOptions {
        inputs: args.inputs.clone(),
        output: args.out.clone(),
        overwrite: args.force,
    };
    cairn_build::unpack(&options).map_err(failure)
}

/// True of an address, and of a name behind which something follows.
fn says_more(image: &Path) -> bool {
    let parsed = ImageSpec::parse(image.as_os_str());
    parsed.is_ok_and(|spec| spec.file().is_none_or(|file| file != image && file.exists()))
}

/// Refuses what cannot be an image.
fn check_image(image: &Path) -> Outcome {
    let shown = print::escaped(image.as_os_str().as_bytes());
    match std::fs::metadata(image) {
        Ok(of) if of.is_file() || of.file_type().is_block_device() => Ok(()),
        Ok(_) => {
            let why = "neither a file nor a block device: name an image";
            Err(Failure::new(Status::NoImage, format!("{shown}: {why}")))
        }
        Err(_) if says_more(image) => {
            let why = "a sparse image is made of a whole file or block device: copy the disk into \
                       a file first, or build it with cairn build --sparse";
            Err(Failure::usage(format!("{shown}: {why}")))
        }
        Err(error) => {
            let what = plain(&error);
            Err(Failure::new(Status::NoImage, format!("{shown}: {what}: check the name")))
        }
    }
}
