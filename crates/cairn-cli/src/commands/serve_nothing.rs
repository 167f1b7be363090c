//! `cairn serve-nothing`: a FUSE server that stores nothing. `cairn lab` starts it to measure the
//! cost of FUSE alone.

use std::path::PathBuf;
use std::sync::Arc;

use cairn::FileSystem;
use cairn_fuse::{Empty, MountOptions, Requests};
use cairn_lab::nothing::Nothing;

use crate::failure::{Failure, Outcome, Status};

/// Arguments of `serve-nothing`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn serve-nothing /mnt data=1G
  cairn serve-nothing /mnt --storage=nvme data=1G

Stays in the foreground until it is unmounted.")]
pub struct Args {
    /// An empty directory.
    mountpoint: PathBuf,
    /// Serve a tree of names and do nothing else. The kernel sends the requests that Cairn gets, or
    /// as few as possible.
    #[arg(long, value_enum, conflicts_with = "files")]
    requests: Option<Requested>,
    /// Keep what is written in memory.
    #[arg(long, requires = "requests")]
    keep: bool,
    /// Use FUSE over io_uring.
    #[arg(long, requires = "requests")]
    ring: bool,
    /// Keep the one file `data` in memory, and answer as slowly as this storage.
    #[arg(long, value_name = "STORAGE", conflicts_with = "requests")]
    storage: Option<String>,
    /// Files that are there at first, as NAME=SIZE.
    #[arg(value_parser = file)]
    files: Vec<(String, u64)>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Requested {
    AsCairn,
    Fewest,
}

fn file(text: &str) -> Result<(String, u64), String> {
    let (name, size) = text.split_once('=').ok_or("give NAME=SIZE, such as data=1G")?;
    let size = cairn_base::options::parse_size(size)
        .ok_or_else(|| format!("'{size}' is not a number of bytes"))?;
    Ok((name.to_owned(), size))
}

/// Mounts and serves until unmounted.
///
/// # Errors
/// The mount point does not allow it, or the connection to the kernel breaks.
pub fn run(args: &Args) -> Outcome {
    let failed = |error: cairn_fuse::Error| Failure::new(Status::Failed, error.to_string());
    if let Some(requested) = args.requests {
        let requests = match requested {
            Requested::AsCairn => Requests::AsCairn,
            Requested::Fewest => Requests::Fewest,
        };
        let empty = Empty { requests, keeps: args.keep, ring: args.ring };
        return cairn_fuse::serve_empty(&args.mountpoint, empty).map_err(failed);
    }
    if let Some(storage) = &args.storage {
        return serve_storage(args, storage);
    }
    let nothing = Nothing::new(args.files.iter().map(|(name, size)| (name.as_str(), *size)));
    let filesystem: Arc<dyn FileSystem> = Arc::new(nothing);
    let options = MountOptions { source: "nothing".into(), ..MountOptions::default() };
    cairn_fuse::mount(filesystem, &args.mountpoint, &options).map_err(failed)?.run().map_err(failed)
}

/// Serves a file that is as slow as a medium. Each write reaches it at once.
fn serve_storage(args: &Args, storage: &str) -> Outcome {
    let wrong = |what: &str| Failure::new(Status::Usage, what.to_owned());
    let [(name, size)] = &args.files[..] else {
        return Err(wrong("--storage has one file: give data=SIZE, such as data=1G"));
    };
    let device =
        Nothing::with_device(storage, *size).filter(|_| name == "data").ok_or_else(|| {
            wrong("--storage is sd-card, emmc, sata-ssd or nvme, and its file is data=SIZE")
        })?;
    let options = MountOptions {
        source: "storage".into(),
        writeback_cache: false,
        ..MountOptions::default()
    };
    let failed = |error: cairn_fuse::Error| Failure::new(Status::Failed, error.to_string());
    let filesystem: Arc<dyn FileSystem> = Arc::new(device);
    cairn_fuse::mount(filesystem, &args.mountpoint, &options).map_err(failed)?.run().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::file;

    #[test]
    fn files_are_given_by_name_and_size() {
        assert_eq!(file("data=1G"), Ok(("data".into(), 1 << 30)));
        assert!(file("data").is_err() && file("data=x").is_err());
    }
}
