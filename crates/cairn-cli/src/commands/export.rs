//! `cairn export`.

use std::ffi::OsString;
use std::path::PathBuf;

use cairn_build::{Compression, ExportOptions, Rules, Source};
use cairn_vfs::Timestamp;

use super::build::{failure, path_test};
use super::chown::Owner;
use crate::date;
use crate::failure::Outcome;
use crate::session::source_date_epoch;
use crate::signals::remove_unfinished;

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn export disk.img -o disk.tar.zst
  cairn export --exclude '/var/cache/*' 'disk.img#2' -o - | tar -tv

The archive has the form of pax, with owners, times, extended attributes, access lists, hard \
links, holes and devices; only sockets are left out, which tar has not. The same image gives the \
same bytes. What cairn build takes can be given in place of an image. cairn get copies into a \
directory.")]
pub struct Args {
    /// The archive: .gz, .tgz, .zst and .tzst are compressed; - is standard output.
    #[arg(short = 'o', long, value_name = "ARCHIVE")]
    output: PathBuf,
    /// Owner of everything.
    #[arg(long, value_name = "UID:GID", value_parser = super::chown::parse_owner)]
    owner: Option<Owner>,
    /// Set later times to this date. [default: SOURCE_DATE_EPOCH]
    #[arg(long, value_name = "DATE", value_parser = date::parse)]
    mtime: Option<Timestamp>,
    /// Leave out what matches, as for build. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Replace the archive if it exists.
    #[arg(short = 'F', short_alias = 'f', long)]
    force: bool,
    /// The image, or what else build takes; later ones go over earlier ones.
    #[arg(required = true, value_name = "IMAGE")]
    sources: Vec<OsString>,
}

/// Writes the archive.
///
/// # Errors
/// The image cannot be read or is damaged, or the archive cannot be written.
pub fn run(args: &Args) -> Outcome {
    remove_unfinished()?;
    let epoch = source_date_epoch()?.map(|seconds| Timestamp { seconds, nanoseconds: 0 });
    let owner = args.owner.unwrap_or(Owner { uid: None, gid: None });
    let source = |name: &OsString| Source { name: name.clone(), platform: None };
    let options = ExportOptions {
        output: args.output.clone(),
        sources: args.sources.iter().map(source).collect(),
        compression: Compression::of_name(&args.output).map_err(failure)?,
        rules: Rules {
            uid: owner.uid,
            gid: owner.gid,
            latest: args.mtime.or(epoch),
            exclude: args.exclude.iter().map(path_test).collect(),
            ..Rules::default()
        },
        overwrite: args.force,
    };
    cairn_build::export(options).map_err(failure)
}
