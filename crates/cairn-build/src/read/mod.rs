//! Sources: what each is, and how it is put into an assembly.

mod directory;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::assembly::Assembly;
use crate::error::{Error, Result};
use crate::rules::Rules;
use crate::store::Limits;
use crate::tree::Tree;

/// A source as it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name.
    pub name: OsString,
}

/// Puts the sources over each other, later ones over earlier ones. `spool` is the directory for the
/// contents of streams.
///
/// # Errors
/// A source cannot be read, is damaged, or holds what no image can hold.
pub fn assemble(sources: &[Source], rules: Rules, limits: Limits, spool: PathBuf) -> Result<Tree> {
    let mut assembly = Assembly::new(rules, limits, spool);
    for source in sources {
        assembly.next_layer();
        read(&mut assembly, source)?;
    }
    Ok(assembly.finish())
}

fn read(assembly: &mut Assembly, source: &Source) -> Result<()> {
    let path = Path::new(&source.name);
    let metadata = std::fs::metadata(path).map_err(|error| Error::host(path, error))?;
    if metadata.is_dir() {
        return directory::read(assembly, path);
    }
    Err(Error::source(path.display(), "not a directory"))
}
