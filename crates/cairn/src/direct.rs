//! The way to the bytes of a file or block device: through the system's page cache, or past it.
//!
//! Of a block device, large transfers go past the page cache and small ones through it, unless the
//! image's name says something else (`?io=`). A file is used through the page cache.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::file::{DirectFile, FileDevice, Indirect, WRITERS};

use crate::error::{Cause, Error, Result};
use crate::image::{ImageSpec, Transfers};

/// A device, and what `cairn info` tells of the way to it.
type Opened = (Arc<dyn BlockDevice>, Option<String>);

/// A file or block device that is open, in the way that its name says.
pub(crate) fn over(image: &ImageSpec, file: FileDevice) -> Result<Opened> {
    match image.transfers {
        Transfers::Direct => direct(image, file),
        Transfers::Buffered => Ok(buffered(file, None)),
        Transfers::Unsaid | Transfers::Auto if file.is_block_device() => Ok(mixed(file)),
        Transfers::Unsaid | Transfers::Auto => Ok(buffered(file, None)),
    }
}

fn buffered(file: FileDevice, why: Option<String>) -> Opened {
    // Of a regular file it is usual.
    let told = file.is_block_device().then(|| {
        let why = why.map(|why| format!(": direct transfers are refused ({why})"));
        format!("through the page cache{}", why.unwrap_or_default())
    });
    (Arc::new(file), told)
}

fn direct(image: &ImageSpec, file: FileDevice) -> Result<Opened> {
    let direct = DirectFile::over(file)
        .map_err(|refused| Error::new(image, Cause::Open(refused.why)))?
        .with_depth();
    let told = match direct.depth() {
        Ok(depth) => format!("direct, up to {depth} requests at once"),
        Err(why) => format!("direct, one request at a time: {}", refused(why)),
    };
    Ok((Arc::new(direct), Some(told)))
}

/// Where direct transfers are refused, it is the page cache for all.
fn mixed(file: FileDevice) -> Opened {
    let opened = DirectFile::over(file).and_then(|direct| direct.with_depth().with_page_cache());
    let direct = match opened {
        Ok(direct) => direct,
        Err(refused) => {
            let Indirect { device, why } = *refused;
            return buffered(device, Some(why.to_string()));
        }
    };
    let reads = match direct.depth() {
        Ok(depth) => format!("up to {depth} reads"),
        Err(why) => format!("one read ({})", refused(why)),
    };
    let told = format!(
        "large transfers direct, {reads} and {WRITERS} writes at once; others through the page \
         cache"
    );
    (Arc::new(direct), Some(told))
}

/// Why there is no io_uring.
fn refused(why: &std::io::Error) -> String {
    format!("io_uring is refused ({})", cairn_block::error::plain(why))
}
