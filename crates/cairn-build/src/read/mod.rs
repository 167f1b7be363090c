//! Sources: what each is, and how it is put into an assembly.

mod container;
mod cpio;
mod digest;
mod directory;
mod gzip;
mod image;
mod layer;
mod layers;
mod members;
mod named;
mod reasons;
mod stream;
mod tar;
mod zstd;

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn::{Cause, DiskFormat, ImageSpec, OpenOptions, Part, Transfers};
use cairn_base::names::Escaped;

pub use self::container::is_layout;
pub(crate) use self::directory::host_file;
pub(crate) use self::reasons::kept;
pub(crate) use self::tar::RANGES_MAX;

use self::reasons::broken;
use self::stream::Stream;
use crate::assembly::Assembly;
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::rules::Rules;
use crate::store::Limits;
use crate::tree::Tree;
use crate::users::Users;

/// Bytes that tell what an archive is.
const START: u64 = 1024;

/// What a source can be, for messages.
const GIVE: &str = "give a directory, an archive or an image";
const UNKNOWN: &str = "neither a directory, an archive (tar, cpio) nor an image: give one of these";

/// A source as it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name.
    pub name: OsString,
    /// Which of the images for several platforms in a container index, as `linux/arm64`.
    pub platform: Option<String>,
}

/// Puts the sources over each other, later ones over earlier ones. `spool` is the directory for the
/// contents of streams.
///
/// # Errors
/// A source cannot be read, is damaged, or holds what no image can hold.
pub fn assemble(sources: &[Source], rules: Rules, limits: Limits, spool: PathBuf) -> Result<Tree> {
    let mut manifests = Vec::new();
    for path in &rules.manifests {
        manifests.push(Manifest::read(path)?);
    }
    let mut assembly = Assembly::new(rules, limits, spool);
    manifests.iter_mut().for_each(|manifest| manifest.prepare(&mut assembly));
    for source in sources {
        read(&mut assembly, source)?;
    }
    named::resolve(&mut assembly)?;
    assembly.change_owners();
    if !manifests.is_empty() {
        let users = Users::read(&assembly)?;
        for manifest in manifests {
            manifest.apply(&mut assembly, &users)?;
        }
    }
    Ok(assembly.finish())
}

fn read(assembly: &mut Assembly, source: &Source) -> Result<()> {
    let path = Path::new(&source.name);
    let shown = path.escaped();
    if source.name == "-" {
        // As a file of its own, to be looked at.
        let input = io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let input = input.and_then(|input| input.metadata());
        assembly.rules.refuse_output("standard input", input)?;
        let stream = Stream::pipe(io::stdin());
        let stream = stream.map_err(|error| unread(&shown, &error))?;
        return archive(assembly, "standard input", stream, source.platform.as_deref());
    }
    if let Some((directory, tag)) = container::reference(&source.name) {
        if !is_layout(&directory) {
            let why = "is no OCI layout: give oci:DIR or oci:DIR:TAG of one";
            return Err(Error::source(shown, why));
        }
        let of = (directory.as_path(), tag);
        return container::layout(assembly, &shown, of, source.platform.as_deref());
    }
    let image = ImageSpec::parse(&source.name).map_err(Error::image)?;
    assembly.rules.refuse_output(&shown, std::fs::metadata(image.file().unwrap_or(path)))?;
    // What only an image can have.
    let is_image = image.part != Part::Whole
        || image.file().is_none()
        || image.format != DiskFormat::ByContent
        || image.transfers != Transfers::default()
        || image.key.is_some();
    if is_image {
        return image::read(assembly, &shown, image::open(&image)?);
    }
    let metadata = std::fs::metadata(path).map_err(|error| Error::host(path, error))?;
    let platform = source.platform.as_deref();
    if metadata.is_dir() {
        return match container::is_layout(path) {
            true => container::layout(assembly, &shown, (path, None), platform),
            false => directory::read(assembly, path),
        };
    }
    if is_volume(path, &metadata)? {
        return image::read(assembly, &shown, image::open(&image)?);
    }
    let file = File::open(path).map_err(|error| Error::host(path, error))?;
    if !metadata.is_file() {
        let stream = Stream::pipe(file);
        let stream = stream.map_err(|error| unread(&shown, &error))?;
        return archive(assembly, &shown, stream, platform);
    }
    let file = Arc::new(file);
    let store = assembly.stores.add(file.clone());
    match in_place(assembly, &shown, (file, store), platform) {
        Err(Error::Source { why, .. }) if why == UNKNOWN => {
            // A disk in another format, such as qcow2.
            match cairn::open(&image, &OpenOptions::read_only()) {
                Ok(volume) => image::read(assembly, &shown, volume),
                Err(error) => Err(unknown(&shown, error)),
            }
        }
        read => read,
    }
}

/// The error for a file of an unknown form, which is no image, either: what it looks like, and what
/// to do with it, if its signature is known.
fn unknown(source: &str, error: cairn::Error) -> Error {
    match error.cause() {
        // The advice is for images.
        Cause::UnknownFormat { hint: Some(hint) }
            if hint.advice.contains("mkfs") || hint.advice.starts_with("give the image") =>
        {
            Error::source(source, format!("it is {}: {GIVE}", hint.what))
        }
        Cause::UnknownFormat { hint: None } => Error::source(source, UNKNOWN),
        _ => Error::image(error),
    }
}

/// Puts in an archive that is a whole store.
fn in_place(
    assembly: &mut Assembly,
    source: &str,
    (file, store): (Arc<File>, u32),
    platform: Option<&str>,
) -> Result<()> {
    let len = file.metadata().map_err(|error| Error::host(source, error))?.len();
    let stream = || {
        let stream = Stream::in_store(file.clone(), store, 0, len);
        stream.map_err(|error| unread(source, &error))
    };
    // Only what is read in place can be looked at twice.
    if let start @ Stream::Place(_) = stream()?
        && container::is_container(&tar::names(start))
    {
        return container::archive(assembly, source, stream()?, platform);
    }
    archive(assembly, source, stream()?, platform)
}

/// True if an ext4 or F2FS volume begins there: both have a magic number in their superblock.
fn is_volume(path: &Path, metadata: &Metadata) -> Result<bool> {
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(false);
    }
    let mut bytes = [0; 64];
    let file = File::open(path).map_err(|error| Error::host(path, error))?;
    if file.read_exact_at(&mut bytes, 1024).is_err() {
        return Ok(false);
    }
    Ok(bytes.starts_with(&[0x10, 0x20, 0xf5, 0xf2]) || bytes.get(56..58) == Some(&[0x53, 0xef]))
}

fn unread(source: &str, error: &io::Error) -> Error {
    Error::source(source, broken(error))
}

/// Puts an archive in whose kind its first bytes tell.
fn archive(
    assembly: &mut Assembly,
    source: &str,
    mut stream: Stream,
    platform: Option<&str>,
) -> Result<()> {
    let mut start = Vec::new();
    let read = stream.by_ref().take(START).read_to_end(&mut start);
    read.map_err(|error| unread(source, &error))?;
    if tar::is_tar(&start) {
        let begins = container::may_begin(&tar::first_name(&start));
        let read_once = matches!(stream, Stream::Pipe(_));
        let mut stream = stream.unread(start);
        // The list of layers may be the last member, so such an archive is read twice.
        if begins && read_once {
            let kept = assembly.stores.keep_all(&mut stream);
            let kept =
                kept.map_err(|error| reasons::not_kept(error, |why| Error::source(source, why)))?;
            return in_place(assembly, source, kept, platform);
        }
        return tar::read(assembly, source, stream, false);
    }
    if cpio::is_cpio(&start) {
        return cpio::read(assembly, source, stream.unread(start));
    }
    let why = match cpio::other_form(&start) {
        Some(form) => format!("a cpio archive in {form}: make it with cpio -o -H newc"),
        None if start.is_empty() => format!("it is empty: {GIVE}"),
        None if tar::is_cut(&start) => {
            "a tar archive that ends in its first header: it is truncated: fetch or make it again"
                .into()
        }
        None => tar::damaged_first(&start).unwrap_or_else(|| UNKNOWN.into()),
    };
    Err(Error::source(source, why))
}
