//! `cairn tune`.

use std::ffi::OsString;

use cairn::tune::{Ext4TuneOptions, OnErrors, Reserved, UuidWish};
use cairn::{ImageSpec, TuneOptions};
use cairn_vfs::Timestamp;

use super::mkfs::parse_uuid;
use crate::date;
use crate::failure::{Failure, Outcome};
use crate::usage::{number, unit_forgotten};

const MINUTE: u32 = 60;
const DAY: u32 = 24 * 60 * MINUTE;

/// Arguments of `tune`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn tune -L root -m 1 disk.img
  cairn tune -O metadata_csum_seed -U random disk.img
  cairn tune --journal-size 8M disk.img
  cairn tune -e remount-ro -c 30 -i 6m -o ^acl,discard disk.img

Changes a volume that is not mounted; one that was not unmounted cleanly is recovered first. \
Nothing is written if something asked for is not possible. Features that can be added: \
has_journal, metadata_csum_seed, read-only, dir_index, large_dir, dir_nlink, ext_attr, extent, \
huge_file, large_file; removed: has_journal, metadata_csum_seed, read-only, orphan_file (which \
also goes with the journal). Others need a rewrite of the volume.")]
pub struct Args {
    /// Label: at most 16 bytes on ext4, 511 UTF-16 units on f2fs.
    #[arg(short = 'L', long)]
    label: Option<String>,
    /// UUID: one, `random`, or `clear` for zeros.
    #[arg(short = 'U', long, value_parser = parse_uuid_wish)]
    uuid: Option<UuidWish>,
    /// ext4: percentage of the blocks reserved for root.
    #[arg(short = 'm', long, value_name = "PERCENT", value_parser = number(0.0..=50.0, 5.0))]
    reserved: Option<f64>,
    /// ext4: number of the blocks reserved for root.
    #[arg(short = 'r', long, value_name = "BLOCKS", conflicts_with = "reserved")]
    reserved_blocks: Option<u64>,
    /// ext4: the user who may use the reserved blocks, by number.
    #[arg(short = 'u', long, value_name = "UID")]
    reserved_uid: Option<u32>,
    /// ext4: the group that may use them, by number.
    #[arg(short = 'g', long, value_name = "GID")]
    reserved_gid: Option<u32>,
    /// ext4: what a mount does about damage: continue, remount-ro or panic.
    #[arg(short = 'e', long, value_name = "WHAT", value_parser = parse_errors)]
    errors: Option<OnErrors>,
    /// ext4: mounts until a check is due; 0 or -1 is any number.
    #[arg(short = 'c', long, value_name = "N", allow_negative_numbers = true,
        value_parser = parse_mounts)]
    max_mounts: Option<u16>,
    /// ext4: mounts since the last check.
    #[arg(short = 'C', long, value_name = "N")]
    mounts: Option<u16>,
    /// ext4: time until a check is due, in days, or as 2w (weeks) or 6m (months); 0 is never.
    #[arg(short = 'i', long, value_name = "TIME", value_parser = parse_interval)]
    check_interval: Option<u32>,
    /// ext4: date of the last check.
    #[arg(short = 'T', long, value_name = "DATE", value_parser = date::parse)]
    last_check: Option<Timestamp>,
    /// ext4: default mount options to add or, with ^, to remove.
    #[arg(short = 'o', long, value_name = "OPTIONS", value_delimiter = ',')]
    mount_options: Vec<String>,
    /// ext4: features to add or, with ^, to remove.
    #[arg(short = 'O', long, value_delimiter = ',')]
    features: Vec<String>,
    /// ext4: size of the journal, which is made anew, such as 64M. size=64 is 64 MiB, as for
    /// tune2fs.
    #[arg(short = 'J', long, value_name = "SIZE", value_parser = parse_journal)]
    journal_size: Option<u64>,
    /// ext4: blocks of a RAID's chunk on one disk.
    #[arg(long, value_name = "BLOCKS")]
    stride: Option<u16>,
    /// ext4: blocks of a RAID's stripe over all data disks.
    #[arg(long, value_name = "BLOCKS")]
    stripe_width: Option<u32>,
    /// f2fs: extensions of files that change often to add or, with ^, to remove.
    #[arg(long, value_name = "EXTENSIONS", value_delimiter = ',')]
    hot: Vec<String>,
    /// f2fs: extensions of files that are written once.
    #[arg(long, value_name = "EXTENSIONS", value_delimiter = ',')]
    cold: Vec<String>,
    /// f2fs: a further device of the volume. May be repeated.
    #[arg(long = "device", value_name = "DEVICE")]
    devices: Vec<std::path::PathBuf>,
    /// The image: a file, a block device or an address. What can follow its name: cairn --help.
    image: OsString,
}

fn parse_uuid_wish(text: &str) -> Result<UuidWish, String> {
    match text {
        "random" => Ok(UuidWish::Random),
        "clear" => Ok(UuidWish::Is(uuid::Uuid::nil())),
        text => {
            let uuid = parse_uuid(text).map(UuidWish::Is);
            uuid.map_err(|why| format!("{why}; or random, or clear"))
        }
    }
}

fn parse_errors(text: &str) -> Result<OnErrors, String> {
    match text {
        "continue" => Ok(OnErrors::Continue),
        "remount-ro" => Ok(OnErrors::RemountReadOnly),
        "panic" => Ok(OnErrors::Panic),
        _ => Err("give continue, remount-ro or panic".into()),
    }
}

fn parse_mounts(text: &str) -> Result<u16, String> {
    match text.parse::<i32>() {
        Ok(-1 | 0) => Ok(0),
        Ok(mounts) => match u16::try_from(mounts) {
            Ok(mounts) if mounts <= i16::MAX.cast_unsigned() => Ok(mounts),
            _ => Err("give 1 to 32767, or 0 for any number".into()),
        },
        Err(_) => Err("give a number, such as 30; 0 is any number".into()),
    }
}

fn parse_interval(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.strip_suffix(['d', 'w', 'm']) {
        Some(digits) if text.ends_with('w') => (digits, 7 * DAY),
        Some(digits) if text.ends_with('m') => (digits, 30 * DAY),
        Some(digits) => (digits, DAY),
        None => (text, DAY),
    };
    let seconds = digits.parse::<u32>().ok().and_then(|count| count.checked_mul(unit));
    seconds.ok_or_else(|| "give days, or as 2w or 6m; 0 is never".into())
}

fn parse_journal(text: &str) -> Result<u64, String> {
    let wrong = || "give a size, such as 64M".to_owned();
    if let Some(megabytes) = text.strip_prefix("size=") {
        let whole = megabytes.parse::<u64>().ok().and_then(|size| size.checked_mul(1 << 20));
        return whole.or_else(|| cairn_base::options::parse_size(megabytes)).ok_or_else(wrong);
    }
    match unit_forgotten(text, 1 << 16) {
        Some(why) => Err(why),
        None => cairn_base::options::parse_size(text).ok_or_else(wrong),
    }
}

/// Changes the volume.
///
/// # Errors
/// The image cannot be opened, is in use, or the volume cannot have what is asked for.
pub fn run(args: &Args) -> Outcome {
    let image = ImageSpec::parse(&args.image)?;
    let percent = args.reserved.map(Reserved::Percent);
    let ext4 = Ext4TuneOptions {
        label: None,
        uuid: None,
        reserved: percent.or(args.reserved_blocks.map(Reserved::Blocks)),
        reserved_uid: args.reserved_uid,
        reserved_gid: args.reserved_gid,
        errors: args.errors,
        max_mounts: args.max_mounts,
        mounts: args.mounts,
        check_interval: args.check_interval,
        last_check: args.last_check.map(|date| date.seconds),
        mount_options: args.mount_options.clone(),
        stride: args.stride,
        stripe_width: args.stripe_width,
        features: args.features.clone(),
        journal_size: args.journal_size,
    };
    let options = TuneOptions {
        label: args.label.clone(),
        uuid: args.uuid,
        ext4,
        cold: args.cold.clone(),
        hot: args.hot.clone(),
        devices: args.devices.clone(),
    };
    let nothing = TuneOptions { devices: args.devices.clone(), ..TuneOptions::default() };
    if options == nothing {
        return Err(Failure::usage(
            "nothing is to be changed: give an option, such as -L LABEL (cairn info shows a \
             volume)",
        ));
    }
    Ok(cairn::tune(&image, &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_tune2fs_s() {
        assert_eq!(parse_interval("3"), Ok(3 * DAY));
        assert_eq!(parse_interval("2w"), Ok(14 * DAY));
        assert_eq!(parse_interval("1m"), Ok(30 * DAY));
        assert!(parse_interval("2y").is_err());
        assert_eq!(parse_mounts("-1"), Ok(0));
        assert!(parse_mounts("40000").is_err());
        assert_eq!(parse_journal("size=16"), Ok(16 << 20));
        assert_eq!(parse_journal("size=16M"), Ok(16 << 20));
        assert_eq!(parse_journal("16M"), Ok(16 << 20));
        assert!(parse_uuid_wish("time").is_err());
    }
}
