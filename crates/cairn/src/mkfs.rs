//! Making a volume: creates the image file if absent, then lets the format write itself.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions as FileOptions};
use uuid::Uuid;

use crate::error::{Cause, Error, Result};
use crate::format::{self, Format};
use crate::image::{ImageSpec, Part};
use crate::volume::open_device;

/// Parameters of a new volume.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Format.
    pub format: Format,
    /// Label, at most 16 bytes.
    pub label: Option<String>,
    /// UUID; random if absent.
    pub uuid: Option<Uuid>,
    /// Features to add, or with `^` to leave out, relative to the defaults; in mke2fs's words.
    pub features: Vec<String>,
    /// Bytes a block; chosen by size if absent.
    pub block_size: Option<u32>,
    /// Size of the image file in bytes: needed to create one, and resizes one that is there.
    pub size: Option<u64>,
}

impl MkfsOptions {
    /// The defaults of `format`.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self { format, label: None, uuid: None, features: Vec::new(), block_size: None, size: None }
    }
}

/// Makes a volume in `image`, replacing what is there.
///
/// # Errors
/// The image cannot be created or is in use, the parameters do not fit, or the device fails.
pub fn mkfs(image: &ImageSpec, options: &MkfsOptions) -> Result<()> {
    let device = device_for(image, options)?;
    let runtime = Threads::new();
    let made = match options.format {
        Format::Ext4 => format::make_ext4(device, options, &*runtime),
    };
    made.map_err(|cause| Error::new(image, cause))
}

fn device_for(image: &ImageSpec, options: &MkfsOptions) -> Result<Arc<dyn BlockDevice>> {
    let error = |cause| Error::new(image, cause);
    let Some(size) = options.size else {
        if !image.path.exists() {
            let hint = "the image does not exist: give its size, as in --size 1G";
            return Err(error(Cause::Option(hint.into())));
        }
        return open_device(image, true);
    };
    if image.part != Part::Whole {
        let hint = "--size sets the size of a whole image; a partition has the size its table says";
        return Err(error(Cause::Option(hint.into())));
    }
    let options = FileOptions { write: true, lock: true, create_size: Some(size) };
    let device = FileDevice::open(&image.path, options).map_err(|source| error(source.into()))?;
    Ok(Arc::new(device))
}
