//! The further devices of an F2FS volume that spans several.
//!
//! The volume's superblock contains their paths, but the maker of the image chose these. They must
//! not make Cairn open, or even write, other files of the user. So only the last component of a
//! path counts: a file or device beside the image. It is opened for reading, and used only if it is
//! recognised: it has the size of the volume's device, does not begin like a volume or a
//! partitioned disk of its own, and holds the volume's inodes at their addresses
//! (`cairn_f2fs::devices::recognise`), or nothing if the volume has nothing there. Only then is
//! it opened for writing. The user has to name a device that is not recognised. A device that the
//! user named is refused only if it belongs to another volume.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_block::BlockDevice;

use crate::device::open_one;
use crate::error::{Cause, Error, Result};
use crate::format;
use crate::format::f2fs::DeviceCheck;
use crate::image::ImageSpec;
use crate::recognise::recognise;

/// Opens all devices of a volume whose first device is open.
pub(crate) fn open(
    image: &ImageSpec,
    first: Arc<dyn BlockDevice>,
    named: &[PathBuf],
    write: bool,
) -> Result<Arc<dyn BlockDevice>> {
    let error = |cause| Error::new(image, cause);
    let names = format::other_devices(&*first).map_err(error)?;
    if named.is_empty() && names.is_empty() {
        return Ok(first);
    }
    if !named.is_empty() && named.len() != names.len() {
        return Err(error(Cause::Option(miscounted(names.len(), named.len()))));
    }
    let paths = match named {
        [] => names
            .iter()
            .map(|name| beside(image.file(), name))
            .collect::<Result<_, _>>()
            .map_err(error)?,
        _ => named.to_vec(),
    };
    let devices = open_all(&first, &paths, false)?;
    let checks = format::recognise(devices.clone()).map_err(error)?;
    for ((path, device), found) in paths.iter().zip(devices.iter().skip(1)).zip(checks) {
        check(path, &**device, found, !named.is_empty()).map_err(error)?;
    }
    if !write {
        return format::assemble(devices).map_err(error);
    }
    // The readers' locks are released first.
    drop(devices);
    format::assemble(open_all(&first, &paths, true)?).map_err(error)
}

fn open_all(
    first: &Arc<dyn BlockDevice>,
    paths: &[PathBuf],
    write: bool,
) -> Result<Vec<Arc<dyn BlockDevice>>> {
    let others = paths.iter().map(|path| open_one(&ImageSpec::whole(path), write));
    std::iter::once(Ok(first.clone())).chain(others).collect()
}

fn miscounted(wanted: usize, named: usize) -> String {
    match wanted {
        0 => "the volume has no further devices: name none".into(),
        _ => format!(
            "the volume has {wanted} further devices, but {named} are named: name each, in their \
             order"
        ),
    }
}

/// The default path of a device: beside the image.
fn beside(image: Option<&Path>, name: &Path) -> Result<PathBuf, Cause> {
    let directory = image.and_then(Path::parent);
    let found = directory.zip(name.file_name()).map(|(directory, name)| directory.join(name));
    match found {
        Some(found) if found.exists() => Ok(found),
        _ => Err(Cause::FurtherDevice {
            path: name.to_owned(),
            why: "which is not beside the image".into(),
        }),
    }
}

fn check(
    path: &Path,
    device: &dyn BlockDevice,
    found: DeviceCheck,
    named: bool,
) -> Result<(), Cause> {
    let refuse = |why: String| Err(Cause::FurtherDevice { path: path.to_owned(), why });
    match found {
        DeviceCheck::Foreign => refuse("but that does not contain the volume's nodes".into()),
        DeviceCheck::Resized { size, used } if size < used || !named => {
            refuse(format!("but that has {size} bytes instead of {used}"))
        }
        _ if named => Ok(()),
        DeviceCheck::Unknown => {
            refuse("and its contents do not show whether it belongs to the volume".into())
        }
        DeviceCheck::Recognised | DeviceCheck::Blank | DeviceCheck::Resized { .. } => {
            match stands_alone(device)? {
                Some(what) => refuse(format!("but that contains {what}")),
                None => Ok(()),
            }
        }
    }
}

/// The error for a device that is no part of the volume.
fn stands_alone(device: &dyn BlockDevice) -> Result<Option<String>, Cause> {
    let format = format::probe(device).unwrap_or(None);
    Ok(format
        .map(|format| format!("an {format} volume"))
        .or_else(|| recognise(device).map(|hint| hint.what.to_owned())))
}
