//! A walk through a tree.

#![allow(unsafe_code, reason = "names that the linker sees; unsafe blocks are in `raw`")]

use std::ffi::{c_char, c_int, c_void, CString};
use std::ops::ControlFlow;

use crate::failure::{enter, Failure};
use crate::metadata::Metadata;
use crate::raw::Text;
use crate::volume::{given, stops, Volume};

/// Called by cairn_walk() for each file, with the path below the start ("" for the start), which
/// is valid during the call, and with what the caller gave as `context`. Ends the walk with
/// another result than 0. It must return, not jump.
pub type Visit =
    Option<extern "C" fn(path: *const c_char, metadata: &Metadata, context: *mut c_void) -> c_int>;

/// Visits a file and everything below it, a directory before its entries. Symbolic links are not
/// followed. Gives what `visit` has ended the walk with, or 0.
#[no_mangle]
pub extern "C" fn cairn_walk(
    volume: Option<&Volume>,
    path: Text,
    visit: Visit,
    context: *mut c_void,
) -> c_int {
    let mut ended = 0;
    let status = enter(stops(volume), || {
        let visit = visit.ok_or_else(|| Failure::invalid("visit is NULL: give a function"))?;
        let path = path.get("path")?;
        let each = &mut |below: &[u8], found: &cairn::fs::Metadata| {
            // Names have no NUL.
            let below = CString::new(below).unwrap_or_default();
            ended = visit(below.as_ptr(), &Metadata::from(found), context);
            match ended {
                0 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        };
        given(volume)?.open.walk(path, each).map_err(Failure::at(path))
    });
    if status == 0 {
        ended
    } else {
        status
    }
}
