//! The check of a volume.

#![allow(unsafe_code, reason = "names that the linker sees; unsafe blocks are in `raw`")]

use std::ffi::{c_char, c_int, c_void, CString};
use std::ops::ControlFlow;
use std::sync::Arc;

use cairn::checking::Report;
use cairn::CheckProgress;

use crate::failure::{count, Failure};
use crate::raw::Text;
use crate::volume::image_of;

/// Checks the volume in `image`, which nobody has open for writing and which is only read. Gives
/// the number of defects. If there are any, cairn_last_error() has the first of them.
#[no_mangle]
pub extern "C" fn cairn_check(image: Text) -> i64 {
    count(None, || defects(&cairn::check(&image_of(&image)?, &[], Arc::new(()))?.report))
}

/// How far a check is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What is checked, such as "inodes"; valid during the call.
    pub what: *const c_char,
    /// Steps of the phase that are done.
    pub done: u64,
    /// Steps of the phase.
    pub total: u64,
    /// The number of the phase, from 1; 0 before the first.
    pub phase: u32,
    /// Number of phases.
    pub phases: u32,
}

/// Called by cairn_check_watched() with what the caller gave as `context`. Ends the check with
/// another result than 0. It must return, not jump.
pub type Watch = Option<extern "C" fn(progress: &Progress, context: *mut c_void) -> c_int>;

/// As cairn_check(), and calls `watch` in the calling thread when the check has come further, at
/// least ten times a second. If that ends the check, the result is -ECANCELED.
#[no_mangle]
pub extern "C" fn cairn_check_watched(image: Text, watch: Watch, context: *mut c_void) -> i64 {
    count(None, || {
        let watch = watch.ok_or_else(|| Failure::invalid("watch is NULL: give a function"))?;
        let each = &mut |CheckProgress { phase, done }: CheckProgress| {
            let what = CString::new(phase.what).unwrap_or_default();
            let (total, phases) = (phase.total, phase.of);
            let now = Progress { what: what.as_ptr(), done, total, phase: phase.number, phases };
            match watch(&now, context) {
                0 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        };
        defects(&cairn::check_watched(&image_of(&image)?, &[], each)?.report)
    })
}

/// The number of defects; the first is kept for cairn_last_error().
fn defects(report: &Report) -> Result<u64, Failure> {
    if report.cancelled {
        return Err(Failure::new(libc::ECANCELED, "the check was ended before its end"));
    }
    if let Some(first) = report.findings.first() {
        Failure::new(libc::EUCLEAN, first.to_string()).keep();
    }
    Ok(report.count())
}
