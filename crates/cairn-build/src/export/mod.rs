//! [`export`]: an image, or whatever else can be a source, as a tar archive, a directory or a
//! container image.
//!
//! The archive has the form of pax, its members stand in the order of the tree, and all that it
//! holds follows from the tree: the same source gives the same bytes.

mod compression;
mod directory;
mod dump;
mod inherited;
mod layout;
mod left;
mod oci;
mod tar;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

pub use self::compression::Compression;
use self::compression::{BUFFER, compressed};
pub use self::inherited::remove_inherited_lists;
use self::layout::Layout;
pub use self::left::Left;
pub use self::oci::OciOptions;
use crate::error::{Error, Result};
use crate::node::Kind;
use crate::output::{self, Unfinished, UnfinishedDirectory};
use crate::read::{Source, assemble};
use crate::rules::Rules;
use crate::store::Limits;
use crate::tree::Tree;

/// Where a tree goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A tar archive; `-` is standard output.
    Archive {
        /// Its name.
        path: PathBuf,
        /// How it is compressed.
        compression: Compression,
    },
    /// A new or an empty directory of the host.
    Directory {
        /// Its name.
        path: PathBuf,
        /// A file that states what the directory cannot keep, for `--manifest` of a build.
        manifest: Option<PathBuf>,
    },
    /// An OCI layout: a new or an empty directory, or one with other images.
    Oci {
        /// The directory.
        path: PathBuf,
        /// How its layer is compressed.
        compression: Compression,
        /// What else is said of the image.
        options: OciOptions,
    },
}

/// What to export.
#[derive(Debug)]
pub struct ExportOptions {
    /// Where it goes.
    pub target: Target,
    /// Sources, later ones over earlier ones.
    pub sources: Vec<Source>,
    /// Changes of attributes, and what is left out.
    pub rules: Rules,
    /// Replaces an archive and a manifest that exist.
    pub overwrite: bool,
}

/// Writes the archive or the directory. It gets its name when it is whole. Returns what it could
/// not keep.
///
/// # Errors
/// A source cannot be read or is damaged, or the target cannot be written.
pub fn export(options: ExportOptions) -> Result<Left> {
    let ExportOptions { target, sources, rules, overwrite } = options;
    match target {
        Target::Archive { path, compression } => {
            archive(&path, compression, &sources, rules, overwrite)
        }
        Target::Directory { path, manifest } => {
            let output = UnfinishedDirectory::create(&path)?;
            let dump = manifest.map(|path| Unfinished::create(&path, overwrite)).transpose()?;
            let dumped = dump.iter().flat_map(Unfinished::own);
            let rules = Rules { own: output.own().into_iter().chain(dumped).collect(), ..rules };
            let spool = output::directory(output.path());
            let tree = assemble(&sources, rules, Limits::UNBOUNDED, spool)?;
            let left = directory::write(&tree, output.path())?;
            if let Some(dump) = &dump {
                let failed = |error| Error::host(dump.path(), error);
                let mut to = BufWriter::with_capacity(BUFFER, dump.file());
                dump::write(&tree, &mut to, &failed)?;
                to.flush().map_err(failed)?;
            }
            // Where the directory is, so is its list.
            dump.map_or(Ok(()), Unfinished::finish)?;
            output.finish()?;
            Ok(left)
        }
        Target::Oci { path, compression, options } => {
            let output = Layout::open(&path, options.tag.as_deref())?;
            let rules = Rules { own: output.directory().own(), ..rules };
            let tree = assemble(&sources, rules, Limits::UNBOUNDED, output.spool())?;
            let image = oci::write(&tree, &output.blobs()?, compression, &options)?;
            output.finish(image)?;
            Ok(without_sockets(&tree))
        }
    }
}

/// What a tar archive leaves out.
fn without_sockets(tree: &Tree) -> Left {
    let sockets = tree.nodes().iter().filter(|node| matches!(node.kind, Kind::Socket)).count();
    Left { sockets: sockets as u64, ..Left::default() }
}

fn archive(
    path: &Path,
    compression: Compression,
    sources: &[Source],
    rules: Rules,
    overwrite: bool,
) -> Result<Left> {
    let limits = Limits::UNBOUNDED;
    if output::is_stdout(path) {
        let tree = assemble(sources, rules, limits, std::env::temp_dir())?;
        let failed = |error| Error::host(output::STDOUT, error);
        write(&tree, compression, io::stdout().lock(), &failed)?;
        return Ok(without_sockets(&tree));
    }
    let output = Unfinished::create(path, overwrite)?;
    let rules = Rules { own: output.own(), ..rules };
    let tree = assemble(sources, rules, limits, output::directory(path))?;
    let failed = |error| Error::host(path, error);
    let file: File = output.file().try_clone().map_err(failed)?;
    write(&tree, compression, file, &failed)?;
    output.finish()?;
    Ok(without_sockets(&tree))
}

/// Writes an archive.
fn write(
    tree: &Tree,
    compression: Compression,
    to: impl Write,
    failed: &dyn Fn(io::Error) -> Error,
) -> Result<()> {
    let mut to = BufWriter::with_capacity(BUFFER, to);
    compressed(compression, &mut to, failed, &mut |to| {
        tar::write(tree, to, failed, tar::Lists::AsText)
    })
}
