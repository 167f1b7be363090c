//! Writes a tree as a container image with one layer, in an OCI layout.
//!
//! Names of files are digests of their contents, so the layout follows from the tree alone. It has
//! no date. The platform is the one that programs in the tree are for.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use cairn_base::names::Escaped;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::compression::{BUFFER, Compression, compressed};
use super::layout::{named, write_file};
use super::tar;
use crate::error::{Error, Result};
use crate::node::{Kind, Node, RegularFile};
use crate::tree::Tree;

/// Where programs of a system are.
const PROGRAMS: [&[u8]; 8] =
    [b"usr/bin", b"bin", b"usr/sbin", b"sbin", b"usr/local/bin", b"usr/lib", b"lib", b""];
/// Most files of a directory that are looked at.
const LOOKS: usize = 64;

/// How a layout is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OciOptions {
    /// The name of the image in the layout.
    pub tag: Option<String>,
    /// The platform, such as `linux/arm64/v8`, in place of the one that programs tell.
    pub platform: Option<String>,
}

/// Writes the blobs of an image. Returns its descriptor.
///
/// # Errors
/// The tree has a name that means something else in a layer, or tells no platform; or the blobs
/// cannot be written.
pub(super) fn write(
    tree: &Tree,
    blobs: &Path,
    compression: Compression,
    options: &OciOptions,
) -> Result<Value> {
    check_names(tree)?;
    let platform = match &options.platform {
        Some(name) => parse_platform(name)?,
        None => platform_of(tree)?,
    };
    let (layer, diff_id) = write_layer(tree, blobs, compression)?;
    let mut run = json!({});
    if tree.find(b"bin/sh").or_else(|| tree.find(b"usr/bin/sh")).is_some() {
        run = json!({ "Cmd": ["/bin/sh"] });
    }
    let mut config = json!({
        "config": run,
        "history": [{ "created_by": "cairn export" }],
        "rootfs": { "type": "layers", "diff_ids": [diff_id] },
    });
    merge(&mut config, &platform);
    let config = write_blob(blobs, &config, "application/vnd.oci.image.config.v1+json")?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
    });
    let mut manifest = write_blob(blobs, &manifest, MANIFEST)?;
    merge(&mut manifest, &json!({ "platform": platform }));
    if let Some(tag) = &options.tag {
        merge(&mut manifest, &named(tag));
    }
    Ok(manifest)
}

/// The media type of a manifest.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Adds the members of one object to another.
fn merge(to: &mut Value, from: &Value) {
    if let (Some(to), Some(from)) = (to.as_object_mut(), from.as_object()) {
        to.extend(from.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
}

/// In a layer these names remove files of the layers below.
fn check_names(tree: &Tree) -> Result<()> {
    tree.each_name(&mut |path, _, _| {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if name.starts_with(b".wh.") {
            let why = "a name with .wh. means a removed file in a container image: exclude it";
            return Err(Error::source(format!("/{}", path.escaped()), why));
        }
        Ok(())
    })
}

/// Writes a document under its digest. Returns its descriptor.
fn write_blob(blobs: &Path, document: &Value, kind: &str) -> Result<Value> {
    let bytes = document.to_string().into_bytes();
    let digest = hex(&Sha256::digest(&bytes));
    write_file(&blobs.join(&digest), &bytes)?;
    Ok(descriptor(kind, &digest, bytes.len() as u64))
}

fn descriptor(kind: &str, digest: &str, size: u64) -> Value {
    json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": size })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the layer. Returns its descriptor, and the digest of the archive in it.
fn write_layer(tree: &Tree, blobs: &Path, compression: Compression) -> Result<(Value, String)> {
    let unnamed = blobs.join("layer");
    let failed = |error| Error::host(&unnamed, error);
    let file = File::create_new(&unnamed).map_err(failed)?;
    let mut file = Summed::new(BufWriter::with_capacity(BUFFER, file));
    let mut diff_id = String::new();
    compressed(compression, &mut file, &failed, &mut |to| {
        let mut plain = Summed::new(to);
        tar::write(tree, &mut plain, &failed, tar::Lists::AsAttributes)?;
        diff_id = format!("sha256:{}", hex(&plain.digest.finalize()));
        Ok(())
    })?;
    let (digest, size) = (hex(&file.digest.finalize()), file.len);
    let named: PathBuf = blobs.join(&digest);
    fs::rename(&unnamed, &named).map_err(|error| Error::host(&named, error))?;
    let end = match compression {
        Compression::None => "",
        Compression::Gzip => "+gzip",
        Compression::Zstd => "+zstd",
    };
    let kind = format!("application/vnd.oci.image.layer.v1.tar{end}");
    Ok((descriptor(&kind, &digest, size), diff_id))
}

/// Takes the digest of what is written.
struct Summed<W> {
    to: W,
    digest: Sha256,
    len: u64,
}

impl<W> Summed<W> {
    fn new(to: W) -> Self {
        Self { to, digest: Sha256::new(), len: 0 }
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.digest.update(bytes.get(..count).unwrap_or_default());
        self.len = self.len.saturating_add(count as u64);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn parse_platform(name: &str) -> Result<Value> {
    let words: Vec<&str> = name.split('/').collect();
    match words.as_slice() {
        [os, architecture] if !os.is_empty() && !architecture.is_empty() => {
            Ok(json!({ "os": os, "architecture": architecture }))
        }
        [os, architecture, variant] if !words.contains(&"") => {
            Ok(json!({ "os": os, "architecture": architecture, "variant": variant }))
        }
        _ => Err(Error::Usage(format!("platform {name}: give OS/ARCH, such as linux/amd64"))),
    }
}

/// The platform of the first program.
fn platform_of(tree: &Tree) -> Result<Value> {
    for directory in PROGRAMS {
        let Some(Node { kind: Kind::Directory(entries), .. }) = tree.find(directory) else {
            continue;
        };
        let files = entries.iter().filter_map(|(_, id)| match &tree.node(*id)?.kind {
            Kind::Regular(file) => Some(file),
            _ => None,
        });
        for file in files.take(LOOKS) {
            if let Some(architecture) = architecture(tree, file)? {
                return parse_platform(&format!("linux/{architecture}"));
            }
        }
    }
    let why = "no program in the tree tells for which processors it is: name a platform, such as \
               linux/amd64";
    Err(Error::Usage(why.into()))
}

/// The name of the processors that a program is for, by its ELF header.
fn architecture(tree: &Tree, file: &RegularFile) -> Result<Option<&'static str>> {
    let mut start = [0; 20];
    if file.data.first().is_none_or(|data| data.start > 0 || data.end < start.len() as u64) {
        return Ok(None);
    }
    tree.read(file, 0, &mut start)?;
    let [0x7f, b'E', b'L', b'F', class, order, .., low, high] = start else { return Ok(None) };
    let is_little = order == 1;
    let machine = match is_little {
        true => u16::from_le_bytes([low, high]),
        false => u16::from_be_bytes([low, high]),
    };
    Ok(match (machine, class, is_little) {
        (3, ..) => Some("386"),
        (8, 1, true) => Some("mipsle"),
        (8, 1, false) => Some("mips"),
        (8, 2, true) => Some("mips64le"),
        (8, 2, false) => Some("mips64"),
        (21, _, true) => Some("ppc64le"),
        (21, _, false) => Some("ppc64"),
        (22, ..) => Some("s390x"),
        (40, ..) => Some("arm"),
        (62, ..) => Some("amd64"),
        (183, ..) => Some("arm64"),
        (243, 2, _) => Some("riscv64"),
        (258, 2, _) => Some("loong64"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_have_two_or_three_words() {
        assert_eq!(parse_platform("linux/arm64/v8").unwrap()["variant"], "v8");
        for wrong in ["linux", "linux/", "/amd64", "a/b/c/d", "a//c"] {
            assert!(parse_platform(wrong).unwrap_err().to_string().contains("OS/ARCH"), "{wrong}");
        }
    }
}
