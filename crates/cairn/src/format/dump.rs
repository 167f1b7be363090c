//! Dumps and rescues: what is asked for, in the words of a format.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_check::Fields;
use cairn_check::salvage::Salvage;
use cairn_ext4::SuperblockChoice;
use cairn_ext4::dump as of_ext4;

use super::{Format, ext4, f2fs};
use crate::error::Cause;
use crate::structure::{Copies, Structure, only};

/// Shows a structure.
pub(crate) fn dump(
    format: Format,
    device: Arc<dyn BlockDevice>,
    copies: Copies,
    structure: &Structure,
) -> Result<Fields, Cause> {
    match format {
        Format::Ext4 => {
            let what = ext4_structure(structure)?;
            of_ext4::dump(device, ext4_copies(copies)?, &what).map_err(ext4::cause)
        }
        Format::F2fs => f2fs::dump(device, copies, structure),
    }
}

/// Shows the journal.
pub(crate) fn journal(
    format: Format,
    device: Arc<dyn BlockDevice>,
    copies: Copies,
) -> Result<Fields, Cause> {
    match format {
        Format::Ext4 => of_ext4::show_journal(device, ext4_copies(copies)?).map_err(ext4::cause),
        Format::F2fs => f2fs::journal(device, copies),
    }
}

/// Opens a volume to rescue files from.
pub(crate) fn rescue(
    format: Format,
    device: Arc<dyn BlockDevice>,
    runtime: &Arc<dyn Runtime>,
    copies: Copies,
) -> Result<Box<dyn Salvage>, Cause> {
    match format {
        Format::Ext4 => {
            cairn_ext4::rescue::open(device, ext4_copies(copies)?, runtime).map_err(ext4::cause)
        }
        Format::F2fs => f2fs::rescue(device, copies),
    }
}

fn ext4_copies(copies: Copies) -> Result<SuperblockChoice, Cause> {
    if copies.pack.is_some() {
        return Err(Cause::Option("ext4 has no checkpoint packs: choose none".into()));
    }
    Ok(match (copies.superblock, copies.group) {
        (Some(block), _) => SuperblockChoice::Block(block),
        (None, Some(group)) => SuperblockChoice::Group(group),
        (None, None) => SuperblockChoice::Best,
    })
}

fn ext4_structure(structure: &Structure) -> Result<of_ext4::What, Cause> {
    use of_ext4::What as W;
    const HAS: &str = "superblock, groups, block, inode, extents, htree, xattrs";
    let of = |what| Err(only(what, "F2FS", HAS));
    Ok(match structure {
        Structure::Superblock => W::Superblock,
        Structure::Groups(group) => W::Groups(*group),
        Structure::Block(block) => W::Block(*block),
        Structure::Inode(word) => W::Inode(word.clone()),
        Structure::Extents(word) => W::Extents(word.clone()),
        Structure::Htree(word) => W::Htree(word.clone()),
        Structure::Xattrs(word) => W::Xattrs(word.clone()),
        Structure::Checkpoint => return of("checkpoint"),
        Structure::Nodes(_) => return of("nodes"),
        Structure::Nat(_) => return of("nat"),
        Structure::Sit(_) => return of("sit"),
        Structure::Segments => return of("segments"),
        Structure::Summary(_) => return of("summary"),
    })
}
