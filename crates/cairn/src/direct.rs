//! Which files and block devices are used directly, and which through the page cache of the system.
//!
//! A block device is used directly. Cairn caches what it reads and collects what it writes itself,
//! so that the system would do both a second time, and a flush would write what it has collected.
//! A regular file goes through the page cache: its filesystem may have no direct transfers, and
//! other programs read it. So does a block device where the system refuses io_uring: the page cache
//! has many blocks in flight, single direct transfers have one.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::file::{DirectFile, FileDevice};

use crate::error::{Cause, Error, Result};
use crate::image::{ImageSpec, Transfers};

/// A device, and what `cairn info` tells of the way to it.
type Opened = (Arc<dyn BlockDevice>, Option<String>);

/// A file or block device that is open, in the way that suits it or its name says.
pub(crate) fn over(image: &ImageSpec, file: FileDevice) -> Result<Opened> {
    let is_asked_for = match image.transfers {
        Transfers::ByDevice if file.is_block_device() => false,
        Transfers::Direct => true,
        Transfers::ByDevice | Transfers::Buffered => return Ok(buffered(file, "")),
    };
    let direct = match DirectFile::over(file) {
        Ok(direct) => direct.with_depth(),
        Err(refused) if is_asked_for => return Err(Error::new(image, Cause::Open(refused.why))),
        Err(refused) => return Ok(buffered(refused.device, &format!(": {}", refused.why))),
    };
    let refused = match direct.depth() {
        Ok(depth) => {
            let told = format!("direct, up to {depth} requests at once");
            return Ok((Arc::new(direct), Some(told)));
        }
        Err(why) => format!("io_uring is refused ({})", cairn_block::error::plain(why)),
    };
    match is_asked_for {
        true => Ok((Arc::new(direct), Some(format!("direct, one request at a time: {refused}")))),
        false => Ok(buffered(direct.into_buffered(), &format!(": {refused}"))),
    }
}

fn buffered(file: FileDevice, why: &str) -> Opened {
    // Of a regular file it is usual.
    let told = file.is_block_device().then(|| format!("through the page cache{why}"));
    (Arc::new(file), told)
}
