//! Container images as sources: OCI layouts, and the archives of `docker save`. Their layers are
//! put over each other in order, each with its whiteouts.
//!
//! Names in their indexes are digests or relative paths, and are checked before they name a file.
//! The digest of each file is compared.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::digest::Digest;
use super::layers::{self, Known, Layer};
use super::stream::Stream;
use super::tar;
use crate::assembly::Assembly;
use crate::error::{Error, Result};
use crate::path::MemberPath;
use crate::regular;

/// Largest index, manifest or configuration.
const JSON_MAX: u64 = 8 << 20;
/// Indexes that lead to further indexes.
const DEPTH_MAX: usize = 4;

/// An OCI index, or the list of manifests of Docker.
#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

/// An OCI manifest.
#[derive(Deserialize)]
struct Manifest {
    layers: Vec<Descriptor>,
    config: Option<Descriptor>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Deserialize)]
struct Platform {
    os: String,
    architecture: String,
    #[serde(default)]
    variant: String,
}

/// An image in `manifest.json` of `docker save`.
#[derive(Deserialize)]
struct Saved {
    #[serde(rename = "Layers")]
    layers: Vec<String>,
    #[serde(rename = "Config")]
    config: Option<String>,
}

/// What an image's configuration says of its layers.
#[derive(Default, Deserialize)]
struct Configuration {
    #[serde(default)]
    rootfs: Rootfs,
}

#[derive(Default, Deserialize)]
struct Rootfs {
    /// The digests of decompressed layers.
    #[serde(default)]
    diff_ids: Vec<String>,
}

impl Platform {
    fn name(&self) -> String {
        let slash = if self.variant.is_empty() { "" } else { "/" };
        format!("{}/{}{slash}{}", self.os, self.architecture, self.variant)
    }

    /// True if the name is this platform, or this platform without its variant.
    fn is(&self, name: &str) -> bool {
        name == self.name() || name == format!("{}/{}", self.os, self.architecture)
    }
}

/// What names an image in an index.
const NAME: &str = "org.opencontainers.image.ref.name";

impl Descriptor {
    fn tag(&self) -> Option<&str> {
        self.annotations.get(NAME).map(String::as_str)
    }
}

/// Where the files of a container image are.
enum Blobs {
    /// In a directory of the host.
    Directory(PathBuf),
    /// In an archive: the store, the offset and the length of each.
    Archive(BTreeMap<Vec<u8>, (u32, u64, u64)>),
}

/// A container image.
struct Container<'a> {
    assembly: &'a mut Assembly,
    source: &'a str,
    blobs: Blobs,
}

/// True if the directory is an OCI layout.
#[must_use]
pub fn is_layout(directory: &Path) -> bool {
    directory.join("oci-layout").is_file() && directory.join("index.json").is_file()
}

/// The layout and the tag that `oci:DIR:TAG` names; `None` for a name of another form.
pub(super) fn reference(name: &OsStr) -> Option<(PathBuf, Option<&str>)> {
    let rest = name.as_bytes().strip_prefix(b"oci:")?;
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let colon = rest.iter().rposition(|byte| *byte == b':');
    let split = colon.and_then(|at| Some((rest.get(..at)?, rest.get(at + 1..)?)));
    match split.filter(|_| !is_layout(&path(rest))) {
        Some((directory, tag)) => Some((path(directory), Some(str::from_utf8(tag).ok()?))),
        None => Some((path(rest), None)),
    }
}

/// Puts an image of an OCI layout in.
///
/// # Errors
/// The layout is damaged, has no image of the tag and the platform, or a layer cannot be put in.
pub(super) fn layout(
    assembly: &mut Assembly,
    source: &str,
    (directory, tag): (&Path, Option<&str>),
    platform: Option<&str>,
) -> Result<()> {
    let blobs = Blobs::Directory(directory.to_owned());
    Container { assembly, source, blobs }.index(tag, platform)
}

/// True if the members at the top of a tar archive are those of a container image.
pub(super) fn is_container(names: &[Vec<u8>]) -> bool {
    let has = |name: &[u8]| names.iter().any(|known| known == name);
    let is_saved = |name: &Vec<u8>| name.starts_with(b"blobs/") || name.ends_with(b"/layer.tar");
    (has(b"manifest.json") || (has(b"oci-layout") && has(b"index.json")))
        && names.iter().any(is_saved)
}

/// True if an archive whose first member has this name may be that of a container image.
pub(super) fn may_begin(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 5] = [b"blobs", b"oci-layout", b"index", b"manifest", b"repositories"];
    /// Digits of a digest.
    const DIGEST: usize = 64;
    let first = name.split(|byte| matches!(byte, b'/' | b'.')).next().unwrap_or_default();
    let is_digest = first.len() == DIGEST && first.iter().all(u8::is_ascii_hexdigit);
    is_digest || NAMES.contains(&first)
}

/// Puts the image of an archive in: of `docker save`, or an OCI layout in a tar archive.
///
/// # Errors
/// As [`layout`].
pub(super) fn archive(
    assembly: &mut Assembly,
    source: &str,
    stream: Stream,
    platform: Option<&str>,
) -> Result<()> {
    let mut stage = assembly.stage();
    let read = tar::read(&mut stage, source, stream, false);
    let files = stage.stored_files();
    assembly.unstage(stage);
    read?;
    let is_saved = files.contains_key(&b"manifest.json"[..]);
    let mut container = Container { assembly, source, blobs: Blobs::Archive(files) };
    if is_saved { container.saved() } else { container.index(None, platform) }
}

/// The tags of images, for messages.
fn tags<'a>(manifests: impl IntoIterator<Item = &'a Descriptor>) -> String {
    manifests.into_iter().filter_map(Descriptor::tag).collect::<Vec<_>>().join(", ")
}

impl Container<'_> {
    fn failed(&self, name: &str, why: impl ToString) -> Error {
        Error::member(self.source, name.as_bytes(), why.to_string())
    }

    fn json<T: DeserializeOwned>(&mut self, name: &str, bytes: &[u8]) -> Result<T> {
        serde_json::from_slice(bytes).map_err(|error| self.failed(name, error))
    }

    /// A file of the image, decompressed if it is compressed; or as it is.
    fn open(&mut self, name: &str) -> Result<(Arc<File>, u32, u64, u64)> {
        let path = MemberPath::parse(name.as_bytes()).map_err(|why| self.failed(name, why))?;
        match &self.blobs {
            Blobs::Archive(files) => {
                let found = files.get(&path.bytes()).copied();
                let file = found.and_then(|(store, ..)| self.assembly.stores.file(store));
                let (found, file) = found.zip(file).ok_or_else(|| self.failed(name, "missing"))?;
                Ok((file, found.0, found.1, found.2))
            }
            Blobs::Directory(directory) => {
                let path = directory.join(name);
                let file = regular::open(&path).map_err(|error| Error::host(&path, error))?;
                let metadata = file.metadata().map_err(|error| Error::host(&path, error))?;
                let file = Arc::new(file);
                let store = self.assembly.stores.add(file.clone());
                Ok((file, store, 0, metadata.len()))
            }
        }
    }

    fn bytes(&mut self, name: &str) -> Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let (file, _, at, len) = self.open(name)?;
        let len = Some(len).filter(|len| *len <= JSON_MAX);
        let len = len.ok_or_else(|| self.failed(name, "too large for an index or a manifest"))?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let read = file.read_exact_at(&mut bytes, at);
        read.map_err(|error| self.failed(name, error))?;
        Ok(bytes)
    }

    /// The bytes of an index or a manifest. Its digest is compared.
    fn blob(&mut self, of: &Descriptor) -> Result<(String, Vec<u8>)> {
        let digest = self.digest(of)?;
        let name = digest.blob();
        let bytes = self.bytes(&name)?;
        self.compare(&name, &digest, &bytes)?;
        Ok((name, bytes))
    }

    fn digest(&self, of: &Descriptor) -> Result<Digest> {
        Digest::parse(&of.digest).map_err(|why| self.failed(&of.digest, why))
    }

    fn compare(&self, name: &str, digest: &Digest, mut bytes: &[u8]) -> Result<()> {
        match digest.difference(&mut bytes).map_err(|error| self.failed(name, error))? {
            Some(why) => Err(self.failed(name, why)),
            None => Ok(()),
        }
    }

    /// The configuration, which some layouts leave out. Without one of an image, nothing is known.
    fn configuration(&mut self, of: &Descriptor) -> Result<Configuration> {
        let name = self.digest(of)?.blob();
        let is_there = match &self.blobs {
            Blobs::Archive(files) => files.contains_key(name.as_bytes()),
            Blobs::Directory(directory) => directory.join(&name).exists(),
        };
        if !is_there {
            return Ok(Configuration::default());
        }
        let (name, bytes) = self.blob(of)?;
        match of.media_type.contains("image") {
            true => self.json(&name, &bytes),
            false => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
        }
    }

    /// The image of the index.
    fn index(&mut self, tag: Option<&str>, platform: Option<&str>) -> Result<()> {
        let bytes = self.bytes("index.json")?;
        let mut index: Index = self.json("index.json", &bytes)?;
        if let Some(tag) = tag {
            let tags = tags(&index.manifests);
            index.manifests.retain(|of| of.tag() == Some(tag));
            if index.manifests.is_empty() {
                let why = format!("has no image with the tag {tag}; it has: {tags}");
                return Err(self.failed("index.json", why));
            }
        }
        for _ in 0..DEPTH_MAX {
            let chosen = self.choose(&index.manifests, platform)?;
            let (name, bytes) = self.blob(&chosen)?;
            if chosen.media_type.contains("index") || chosen.media_type.contains("manifest.list") {
                index = self.json(&name, &bytes)?;
                continue;
            }
            let manifest: Manifest = self.json(&name, &bytes)?;
            let of = match &manifest.config {
                Some(config) => self.configuration(config)?,
                None => Configuration::default(),
            };
            let unpacked = self.unpacked(&name, of, manifest.layers.len())?;
            let layers = manifest.layers.iter().zip(unpacked).map(|(layer, unpacked)| {
                let digest = self.digest(layer)?;
                let name = digest.blob();
                Ok((name, Some(layer.size), Known { stored: Some(digest), unpacked }))
            });
            let layers = layers.collect::<Result<Vec<_>>>()?;
            return self.layers(layers);
        }
        Err(self.failed("index.json", "indexes lead to indexes without end"))
    }

    /// The only manifest, or that of the platform. Those without a real platform hold attestations.
    fn choose(&self, manifests: &[Descriptor], platform: Option<&str>) -> Result<Descriptor> {
        let is_image =
            |of: &&Descriptor| of.platform.as_ref().is_none_or(|platform| platform.os != "unknown");
        let images: Vec<&Descriptor> = manifests.iter().filter(is_image).collect();
        let fits = |of: &&&Descriptor| match (&of.platform, platform) {
            (Some(known), Some(wanted)) => known.is(wanted),
            _ => true,
        };
        let fitting: Vec<&&Descriptor> = images.iter().filter(fits).collect();
        let names = || {
            let names = images.iter().filter_map(|of| of.platform.as_ref().map(Platform::name));
            names.collect::<Vec<_>>().join(", ")
        };
        match fitting.as_slice() {
            [one] => Ok((**one).clone()),
            [] => Err(self.failed(
                "index.json",
                format!("has no image for this platform; it has: {}", names()),
            )),
            several => {
                // Images of one tag differ by their platforms.
                let differing: BTreeSet<_> = several.iter().filter_map(|of| of.tag()).collect();
                let tags = tags(several.iter().map(|of| **of));
                let count = several.len();
                let why = match differing.len() {
                    0 | 1 => format!("has {count} images: choose one by its platform: {}", names()),
                    _ => format!("has {count} images: choose one, as oci:DIR:TAG: {tags}"),
                };
                Err(self.failed("index.json", why))
            }
        }
    }

    /// The image in `manifest.json`.
    fn saved(&mut self) -> Result<()> {
        let bytes = self.bytes("manifest.json")?;
        let images: Vec<Saved> = self.json("manifest.json", &bytes)?;
        let [image] = images.as_slice() else {
            let why = format!("has {} images: save one alone", images.len());
            return Err(self.failed("manifest.json", why));
        };
        let mut of = Configuration::default();
        if let Some(name) = &image.config {
            let bytes = self.bytes(name)?;
            if let Some(digest) = Digest::of_name(name) {
                self.compare(name, &digest, &bytes)?;
            }
            of = self.json(name, &bytes)?;
        }
        let unpacked = self.unpacked("manifest.json", of, image.layers.len())?;
        let layers = image.layers.iter().zip(unpacked).map(|(name, unpacked)| {
            (name.clone(), None, Known { stored: Digest::of_name(name), unpacked })
        });
        self.layers(layers.collect())
    }

    /// The digests of so many decompressed layers, if the configuration of the manifest has them.
    fn unpacked(
        &self,
        manifest: &str,
        of: Configuration,
        layers: usize,
    ) -> Result<Vec<Option<Digest>>> {
        let known = of.rootfs.diff_ids;
        if known.is_empty() {
            return Ok(vec![None; layers]);
        }
        if known.len() != layers {
            let why = format!("has {layers} layers, and its configuration {}", known.len());
            return Err(self.failed(manifest, why));
        }
        let parsed = known
            .iter()
            .map(|digest| Digest::parse(digest).map(Some).map_err(|why| self.failed(digest, why)));
        parsed.collect()
    }

    /// Puts layers in, by their names, their sizes, and what else is known of them.
    fn layers(&mut self, names: Vec<(String, Option<u64>, Known)>) -> Result<()> {
        let mut layers = Vec::new();
        for (name, size, known) in names {
            let (file, store, at, len) = self.open(&name)?;
            if let Some(size) = size.filter(|size| *size != len) {
                return Err(self.failed(&name, format!("has {len} bytes, not {size}")));
            }
            let source = format!("{}: {name}", self.source);
            layers.push(Layer { source, file, store, at, len, known });
        }
        layers::read(self.assembly, layers)
    }
}
