//! The oracle mounted through the kernel: every kind of call that a program can make.

mod calls;
mod together;

use crate::fixture::{Mounted, require_mounting, ways};

/// The tests of this file, over each way to mount.
pub(super) fn each(test: impl Fn(&Mounted)) {
    require_mounting();
    for options in ways() {
        let mounted = Mounted::with(&options);
        test(&mounted);
        mounted.finish();
    }
}
