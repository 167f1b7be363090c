//! Changes of a volume's superblock, as tune2fs makes them for ext4: label, UUID, and the lists of
//! extensions by which new files are placed.
//!
//! Both superblocks are written, the second one first: a crash leaves one that is whole.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_vfs::FileSystem;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::format::features::Features;
use crate::format::superblock::Superblock;
use crate::options::MountOptions;
use crate::volume::F2fs;

/// What changes. By default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TuneOptions {
    /// Label, at most 511 UTF-16 units.
    pub label: Option<String>,
    /// UUID.
    pub uuid: Option<Uuid>,
    /// Extensions of files that are written once, to add, or with `^` to remove.
    pub cold: Vec<String>,
    /// Extensions of files that change often.
    pub hot: Vec<String>,
}

/// Changes a volume, which is recovered if it was not unmounted cleanly.
///
/// # Errors
/// [`Error::Option`] if the volume cannot have what is asked for; it is damaged or cannot be
/// recovered; the device failed.
pub fn tune(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &TuneOptions,
) -> Result<()> {
    let volume = F2fs::open(device, runtime, &MountOptions::default())?;
    let changed = match volume.read_only_reason() {
        Some(reason) => Err(Error::Option(format!("it cannot be written: {reason}"))),
        None => changed(&volume.disk.superblock, options),
    };
    let written = changed.and_then(|changed| {
        volume.disk.change_superblock(|superblock| {
            superblock.volume_name = changed.volume_name;
            superblock.uuid = changed.uuid;
            superblock.extension_count = changed.extension_count;
            superblock.hot_ext_count = changed.hot_ext_count;
            superblock.extension_list = changed.extension_list;
            true
        })
    });
    let closed = volume.unmount();
    written?;
    Ok(closed?)
}

fn changed(superblock: &Superblock, options: &TuneOptions) -> Result<Superblock> {
    let mut superblock = superblock.clone();
    if let Some(label) = &options.label
        && !superblock.set_label(label)
    {
        return Err(Error::Option("the label is too long: give at most 511 UTF-16 units".into()));
    }
    if let Some(uuid) = options.uuid {
        let what = [
            (Features::INODE_CHECKSUM, "checksums of inodes follow from it"),
            (Features::ENCRYPT, "keys of encrypted files follow from it"),
        ];
        let follows = what.iter().find(|(feature, _)| superblock.features.contains(*feature));
        if let Some((_, why)) = follows
            && superblock.uuid != *uuid.as_bytes()
        {
            return Err(Error::Option(format!(
                "the UUID cannot be changed, because {why}: make a new volume of that \
                 UUID with the same files"
            )));
        }
        superblock.uuid = *uuid.as_bytes();
    }
    if options.cold.is_empty() && options.hot.is_empty() {
        return Ok(superblock);
    }
    let (cold, hot) = superblock.extensions();
    let cold = edited(&cold, &options.cold)?;
    let hot = edited(&hot, &options.hot)?;
    if superblock.set_extensions(&cold, &hot) {
        return Ok(superblock);
    }
    Err(Error::Option(format!(
        "{} extensions, or one of more than 7 bytes, do not fit: there is room for 64, remove some",
        cold.len() + hot.len()
    )))
}

/// A list after additions and removals.
fn edited(list: &[&[u8]], wishes: &[String]) -> Result<Vec<Vec<u8>>> {
    let mut list: Vec<Vec<u8>> = list.iter().map(|extension| extension.to_vec()).collect();
    for wish in wishes {
        let (name, on) = wish.strip_prefix('^').map_or((wish.as_str(), true), |name| (name, false));
        let name = name.trim_start_matches('.').to_ascii_lowercase();
        let known = list.iter().position(|extension| *extension == name.as_bytes());
        match (on, known) {
            _ if name.is_empty() => {
                return Err(Error::Option("an extension is empty: give some letters".into()));
            }
            (true, None) => list.push(name.into_bytes()),
            (true, Some(_)) => {}
            (false, Some(index)) => drop(list.remove(index)),
            (false, None) => {
                return Err(Error::Option(format!("the extension {name} is not in the list")));
            }
        }
    }
    Ok(list)
}
