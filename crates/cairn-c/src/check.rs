//! The check of a volume.

#![allow(unsafe_code, reason = "names that the linker sees; unsafe blocks are in `raw`")]

use std::sync::Arc;

use crate::failure::{count, Failure};
use crate::raw::Text;
use crate::volume::image_of;

/// Checks the volume in `image`, which nobody has open for writing and which is only read. Gives
/// the number of defects. If there are any, cairn_last_error() has the first of them.
#[no_mangle]
pub extern "C" fn cairn_check(image: Text) -> i64 {
    count(None, || {
        let report = cairn::check(&image_of(&image)?, &[], Arc::new(()))?.report;
        if let Some(first) = report.findings.first() {
            Failure::new(libc::EUCLEAN, first.to_string()).keep();
        }
        Ok(report.count())
    })
}
