//! Dumps and rescues: what is asked for, in the words of a format.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_check::Fields;
use cairn_check::salvage::Salvage;
use cairn_ext4::SuperblockChoice;
use cairn_ext4::dump as of_ext4;
use cairn_f2fs::dump as of_f2fs;

use super::{Format, ext4, f2fs};
use crate::error::Cause;
use crate::structure::{Copies, Structure};

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
        Format::F2fs => {
            let what = f2fs_structure(structure)?;
            of_f2fs::dump(device, f2fs_copies(copies)?, &what).map_err(f2fs::cause)
        }
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
        Format::F2fs => of_f2fs::show_journal(device, f2fs_copies(copies)?).map_err(f2fs::cause),
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
        Format::F2fs => cairn_f2fs::rescue::open(device, f2fs_copies(copies)?).map_err(f2fs::cause),
    }
}

fn ext4_copies(copies: Copies) -> Result<SuperblockChoice, Cause> {
    if copies.pack.is_some() {
        return Err(Cause::Option("ext4 has no checkpoint packs: leave --pack out".into()));
    }
    Ok(match (copies.superblock, copies.group) {
        (Some(block), _) => SuperblockChoice::Block(block),
        (None, Some(group)) => SuperblockChoice::Group(group),
        (None, None) => SuperblockChoice::Best,
    })
}

fn f2fs_copies(copies: Copies) -> Result<cairn_f2fs::Choice, Cause> {
    if copies.group.is_some() {
        let why = "F2FS has superblocks in blocks 0 and 1: give --superblock 1 instead of --backup";
        return Err(Cause::Option(why.into()));
    }
    Ok(cairn_f2fs::Choice { superblock: copies.superblock, pack: copies.pack })
}

fn only(what: &str, of: &str, has: &str) -> Cause {
    Cause::Option(format!("{what} is a structure of {of}: this volume has {has}"))
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

fn f2fs_structure(structure: &Structure) -> Result<of_f2fs::What, Cause> {
    use of_f2fs::What as W;
    const HAS: &str =
        "superblock, checkpoint, block, inode, nodes, extents, xattrs, nat, sit, segments, summary";
    let of = |what| Err(only(what, "ext4", HAS));
    Ok(match structure {
        Structure::Superblock => W::Superblock,
        Structure::Checkpoint => W::Checkpoint,
        Structure::Block(block) => W::Block(*block),
        Structure::Inode(word) => W::Inode(word.clone()),
        Structure::Nodes(word) | Structure::Extents(word) => W::Nodes(word.clone()),
        Structure::Xattrs(word) => W::Xattrs(word.clone()),
        Structure::Nat(nid) => W::Nat(*nid),
        Structure::Sit(segno) => W::Sit(*segno),
        Structure::Segments => W::Segments,
        Structure::Summary(segno) => W::Summary(*segno),
        Structure::Groups(_) => return of("groups"),
        Structure::Htree(_) => return of("htree"),
    })
}
