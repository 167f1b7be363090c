//! `cairn export`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use cairn_base::names::Escaped;
use cairn_base::shell::quoted;
use cairn_build::{Compression, ExportOptions, Left, OciOptions, Rules, Source, Target};
use cairn_vfs::Timestamp;

use super::build::failure;
use super::chown::Owner;
use super::source_options::path_test;
use crate::failure::{Failure, Outcome};
use crate::session::source_date_epoch;
use crate::signals::remove_unfinished;
use crate::{date, output};

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn export disk.img -o disk.tar.zst
  cairn export --exclude '/var/cache/*' 'disk.img#2' -o - | tar -tv
  cairn export disk.img -o tree/ --manifest tree.dump
  cairn export --platform linux/amd64 disk.img -o oci:image:latest

An archive has the form of pax, with owners, times, extended attributes, access lists, hard links, \
holes and devices; only sockets are left out, which tar has not. The same image gives the same \
bytes. What cairn build takes can be given in place of an image.

TARGET names a directory if it ends in a slash, exists as one, or begins with dir:. The directory \
must be new or empty. A user who is not root may not give files away or make devices: what is not \
kept is counted, and --manifest states all of it for cairn build --manifest.
oci:DIR[:TAG] is a container image with one layer. If DIR is a layout already, the image is added \
to it, in the place of one with the same tag.")]
pub struct Args {
    /// The archive: .gz, .tgz, .zst and .tzst are compressed; - is standard output. Or DIR/,
    /// dir:DIR or oci:DIR[:TAG].
    #[arg(short = 'o', long, value_name = "TARGET")]
    output: OsString,
    /// How the archive, or the layer of a container image, is compressed. [default: by the name of
    /// the archive; gzip for layers]
    #[arg(long, value_name = "none|gzip|zstd", value_parser = parse_compression)]
    compress: Option<Compression>,
    /// With a directory: also write what it cannot keep, as a composefs-dump.
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// With oci: the platform of the image. [default: what its programs are for]
    #[arg(long, value_name = "OS/ARCH")]
    platform: Option<String>,
    /// Owner of everything.
    #[arg(long, value_name = "UID:GID", value_parser = super::chown::parse_owner)]
    owner: Option<Owner>,
    /// Set later times to this date. [default: SOURCE_DATE_EPOCH]
    #[arg(long, value_name = "DATE", value_parser = date::parse)]
    mtime: Option<Timestamp>,
    /// Leave out what matches, as for build. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Replace the archive, or the manifest, if it exists.
    #[arg(short = 'F', short_alias = 'f', long)]
    force: bool,
    /// The image, or what else build takes; later ones go over earlier ones.
    #[arg(required = true, value_name = "IMAGE")]
    sources: Vec<OsString>,
}

fn parse_compression(name: &str) -> Result<Compression, String> {
    match name {
        "none" => Ok(Compression::None),
        "gzip" => Ok(Compression::Gzip),
        "zstd" => Ok(Compression::Zstd),
        _ => Err("give none, gzip or zstd".into()),
    }
}

/// Where the export goes, by the word of the command line.
fn target(args: &Args) -> Outcome<Target> {
    let word = args.output.as_bytes();
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let refused = |option: &str, what: &str| {
        let word = args.output.escaped();
        Failure::usage(format!("{option} is for {what}, not for {word}: leave it out"))
    };
    if args.platform.is_some() && !word.starts_with(b"oci:") {
        return Err(refused("--platform", "container images (oci:DIR)"));
    }
    if let Some(rest) = word.strip_prefix(b"oci:") {
        if args.manifest.is_some() {
            return Err(refused("--manifest", "directories"));
        }
        if args.force {
            return Err(refused("--force", "archives: an image of the same tag is replaced"));
        }
        let colon = rest.iter().rposition(|byte| *byte == b':');
        let tagged = colon.filter(|at| !rest.get(*at..).unwrap_or_default().contains(&b'/'));
        let (directory, tag) = rest.split_at(tagged.unwrap_or(rest.len()));
        let tag = tag.strip_prefix(b":").map(|tag| OsString::from_vec(tag.to_vec()));
        let tag = tag.map(OsString::into_string).transpose();
        let tag = tag.map_err(|tag| Failure::usage(format!("{}: no tag", tag.escaped())))?;
        if directory.is_empty() || tag.as_deref() == Some("") {
            return Err(Failure::usage("oci: without a name: give oci:DIR or oci:DIR:TAG"));
        }
        return Ok(Target::Oci {
            path: path(directory),
            compression: args.compress.unwrap_or(Compression::Gzip),
            options: OciOptions { tag, platform: args.platform.clone() },
        });
    }
    let named = word.strip_prefix(b"dir:").filter(|rest| !rest.is_empty());
    if named.is_some() || word.ends_with(b"/") || Path::new(&args.output).is_dir() {
        if args.compress.is_some() {
            return Err(refused("--compress", "archives and container images"));
        }
        if args.force && args.manifest.is_none() {
            return Err(refused("--force", "archives: the directory must be new or empty"));
        }
        let path = path(named.unwrap_or(word));
        return Ok(Target::Directory { path, manifest: args.manifest.clone() });
    }
    if args.manifest.is_some() {
        return Err(refused("--manifest", "directories"));
    }
    let by_name = Compression::of_name(Path::new(&args.output)).map_err(failure);
    let compression = args.compress.map_or_else(|| by_name, Ok)?;
    Ok(Target::Archive { path: PathBuf::from(&args.output), compression })
}

/// Writes the archive, the directory or the container image.
///
/// # Errors
/// The image cannot be read or is damaged, or the target cannot be written.
pub fn run(args: &Args) -> Outcome {
    let target = target(args)?;
    remove_unfinished()?;
    let epoch = source_date_epoch()?.map(|seconds| Timestamp { seconds, nanoseconds: 0 });
    let owner = args.owner.unwrap_or(Owner { uid: None, gid: None });
    let source = |name: &OsString| Source { name: name.clone(), platform: None };
    let advice = advice(&target);
    let options = ExportOptions {
        target,
        sources: args.sources.iter().map(source).collect(),
        rules: Rules {
            uid: owner.uid,
            gid: owner.gid,
            latest: args.mtime.or(epoch),
            exclude: args.exclude.iter().map(path_test).collect(),
            ..Rules::default()
        },
        overwrite: args.force,
    };
    let left = cairn_build::export(options).map_err(failure)?;
    if !left.is_nothing() {
        say(&left, &args.output, &advice);
    }
    Ok(())
}

/// What to do about what is not kept.
fn advice(target: &Target) -> String {
    match target {
        Target::Archive { .. } | Target::Oci { .. } => "tar archives have none".into(),
        Target::Directory { manifest: Some(manifest), .. } => {
            format!("cairn build --manifest {} restores them", quoted(manifest))
        }
        Target::Directory { manifest: None, .. } => {
            "add --manifest FILE, from which cairn build restores them, or run as root".into()
        }
    }
}

fn say(left: &Left, output: &OsStr, advice: &str) {
    output::complain(format_args!("{}: warning: not kept: {left}: {advice}", output.escaped()));
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(words: &[&str]) -> Outcome<Target> {
        let words = [&["export", "x.img"], words].concat();
        target(&Line::try_parse_from(words).unwrap().args)
    }

    #[test]
    fn targets_by_name() {
        let oci = |path: &str, tag: Option<&str>| Target::Oci {
            path: path.into(),
            compression: Compression::Gzip,
            options: OciOptions { tag: tag.map(str::to_owned), platform: None },
        };
        assert_eq!(parsed(&["-o", "oci:a"]).unwrap(), oci("a", None));
        assert_eq!(parsed(&["-o", "oci:a:latest"]).unwrap(), oci("a", Some("latest")));
        assert_eq!(parsed(&["-o", "oci:a:b/c"]).unwrap(), oci("a:b/c", None));
        for word in ["dir:new", "new/", "/"] {
            let found = parsed(&["-o", word]).unwrap();
            assert!(matches!(found, Target::Directory { manifest: None, .. }), "{word}");
        }
        let archive = |path: &str, compression| Target::Archive { path: path.into(), compression };
        assert_eq!(parsed(&["-o", "a.tgz"]).unwrap(), archive("a.tgz", Compression::Gzip));
        let packed = parsed(&["-o", "-", "--compress", "zstd"]).unwrap();
        assert_eq!(packed, archive("-", Compression::Zstd));
    }

    #[test]
    fn options_of_other_targets_are_refused() {
        for words in [
            &["-o", "a.tar", "--manifest", "m"][..],
            &["-o", "a.tar", "--platform", "linux/arm64"],
            &["-o", "a/", "--compress", "gzip"],
            &["-o", "a/", "--force"],
            &["-o", "oci:a", "--manifest", "m"],
            &["-o", "oci:a", "--force"],
            &["-o", "oci:"],
            &["-o", "oci:a:"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }
}
