//! The way to the bytes of a file or block device: through the system's page cache, or past it.
//!
//! Everything goes through the page cache unless the image's name says `?io=direct`. Large writes
//! and batches of reads are faster past it, small writes to random places are not.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::file::{DirectFile, FileDevice};

use crate::error::{Cause, Error, Result};
use crate::image::{ImageSpec, Transfers};

/// A device, and what `cairn info` tells of the way to it.
type Opened = (Arc<dyn BlockDevice>, Option<String>);

/// A file or block device that is open, in the way that its name says.
pub(crate) fn over(image: &ImageSpec, file: FileDevice) -> Result<Opened> {
    if image.transfers != Transfers::Direct {
        // Of a regular file it is usual.
        let told = file.is_block_device().then(|| "through the page cache".to_owned());
        return Ok((Arc::new(file), told));
    }
    let direct = DirectFile::over(file)
        .map_err(|refused| Error::new(image, Cause::Open(refused.why)))?
        .with_depth();
    let told = match direct.depth() {
        Ok(depth) => format!("direct, up to {depth} requests at once"),
        Err(why) => {
            let why = cairn_block::error::plain(why);
            format!("direct, one request at a time: io_uring is refused ({why})")
        }
    };
    Ok((Arc::new(direct), Some(told)))
}
