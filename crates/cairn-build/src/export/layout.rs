//! [`Layout`]: the OCI layout that an image goes to, a new one or one with other images.
//!
//! A layout that is there stays whole at any time: blobs come first, under names that are their
//! digests and that no index has yet. Then a new `index.json` takes the place of the old one. One
//! export at a time changes a layout, which the lock of `oci-layout` sees to.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use cairn_base::names::Escaped;
use rustix::fs::{FlockOperation, flock, syncfs};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::output::{self, Unfinished, UnfinishedDirectory};
use crate::read::is_layout;
use crate::regular;

/// Largest index that is read.
const INDEX_MAX: u64 = 8 << 20;
/// What names an image in an index.
const NAME: &str = "org.opencontainers.image.ref.name";

/// A layout that has not got its image yet.
pub(super) enum Layout {
    /// It gets its name when it is whole.
    New(UnfinishedDirectory),
    /// It is there.
    Existing(Existing),
}

/// A layout with images.
pub(super) struct Existing {
    path: PathBuf,
    /// New blobs.
    blobs: UnfinishedDirectory,
    index: Value,
    /// The lock.
    _lock: File,
}

impl Layout {
    /// The layout at `path`, which exists, or is new or an empty directory.
    ///
    /// # Errors
    /// `path` is another directory, or cannot be written. A layout with images needs a tag.
    pub(super) fn open(path: &Path, tag: Option<&str>) -> Result<Self> {
        // The links of others, which lead to their choice of a layout.
        output::place(path)?;
        if !is_layout(path) {
            return Ok(Self::New(UnfinishedDirectory::create(path)?));
        }
        if tag.is_none() {
            let path = path.escaped();
            return Err(Error::Usage(format!(
                "{path}: is a layout that may have other images: name this one, as in \
                 oci:{path}:latest"
            )));
        }
        let marker = path.join("oci-layout");
        let lock = regular::open(&marker).map_err(|error| Error::host(&marker, error))?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| Error::host(&marker, error.into()))?;
        let blobs = path.join("blobs/sha256");
        fs::create_dir_all(&blobs).map_err(|error| Error::host(&blobs, error))?;
        let index = read_index(&path.join("index.json"))?;
        let blobs = UnfinishedDirectory::create(&path.join("blobs/cairn"))?;
        Ok(Self::Existing(Existing { path: path.to_owned(), blobs, index, _lock: lock }))
    }

    /// The directory that is being written.
    pub(super) fn directory(&self) -> &UnfinishedDirectory {
        match self {
            Self::New(directory) => directory,
            Self::Existing(Existing { blobs, .. }) => blobs,
        }
    }

    /// A directory with room for what is needed only meanwhile.
    pub(super) fn spool(&self) -> PathBuf {
        output::directory(self.directory().path())
    }

    /// The directory for blobs.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn blobs(&self) -> Result<PathBuf> {
        let path = match self {
            Self::New(directory) => directory.path().join("blobs/sha256"),
            Self::Existing(Existing { blobs, .. }) => blobs.path().to_owned(),
        };
        fs::create_dir_all(&path).map_err(|error| Error::host(&path, error))?;
        Ok(path)
    }

    /// Adds the image with this descriptor, in the place of one of the same name.
    ///
    /// # Errors
    /// The layout cannot be written.
    pub(super) fn finish(self, image: Value) -> Result<()> {
        match self {
            Self::New(directory) => {
                write_layout(directory.path(), image)?;
                set_open(directory.path())?;
                directory.finish()
            }
            Self::Existing(layout) => layout.finish(image),
        }
    }
}

impl Existing {
    fn finish(self, image: Value) -> Result<()> {
        let Self { path, blobs, mut index, _lock } = self;
        let to = path.join("blobs/sha256");
        let read = |error| Error::host(blobs.path(), error);
        for entry in fs::read_dir(blobs.path()).map_err(read)? {
            let entry = entry.map_err(read)?;
            let named = to.join(entry.file_name());
            fs::rename(entry.path(), &named).map_err(|error| Error::host(&named, error))?;
        }
        let opened = File::open(&to).map_err(|error| Error::host(&to, error))?;
        syncfs(opened).map_err(|error| Error::host(&to, error.into()))?;
        put_in(&mut index, image);
        let place = path.join("index.json");
        let file = Unfinished::create(&place, true)?;
        write_file(file.path(), index.to_string().as_bytes())?;
        file.finish()
    }
}

/// The index of a layout.
fn read_index(path: &Path) -> Result<Value> {
    let failed = |error| Error::host(path, error);
    let mut bytes = Vec::new();
    let file = regular::open(path).map_err(failed)?;
    file.take(INDEX_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    let index: Value = Some(bytes)
        .filter(|bytes| bytes.len() as u64 <= INDEX_MAX)
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    match index.get("manifests") {
        Some(Value::Array(_)) => Ok(index),
        _ => {
            let why = "is no index of container images: give a new directory";
            Err(Error::source(path.escaped(), why))
        }
    }
}

/// Puts an image in, and takes out those with its name.
fn put_in(index: &mut Value, image: Value) {
    let name = |of: &Value| of.get("annotations").and_then(|all| all.get(NAME)).cloned();
    let own = name(&image);
    let Some(manifests) = index.get_mut("manifests").and_then(Value::as_array_mut) else { return };
    let place = manifests.iter().position(|of| name(of) == own).unwrap_or(manifests.len());
    manifests.retain(|of| name(of) != own);
    manifests.insert(place.min(manifests.len()), image);
}

/// Writes what makes a directory with blobs a layout of one image.
///
/// # Errors
/// It cannot be written.
fn write_layout(to: &Path, image: Value) -> Result<()> {
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [image],
    });
    write_file(&to.join("index.json"), index.to_string().as_bytes())?;
    write_file(
        &to.join("oci-layout"),
        json!({ "imageLayoutVersion": "1.0.0" }).to_string().as_bytes(),
    )
}

/// Writes a file.
///
/// # Errors
/// It cannot be written.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(|error| Error::host(path, error))
}

/// What says the name of an image.
pub(super) fn named(tag: &str) -> Value {
    json!({ "annotations": { NAME: tag } })
}

/// Lets others in, as the umask allows it for new directories.
fn set_open(directory: &Path) -> Result<()> {
    let failed = |error| Error::host(directory, error);
    let below = directory.join("blobs");
    let permissions = fs::metadata(&below).map_err(failed)?.permissions();
    fs::set_permissions(directory, permissions).map_err(failed)
}
