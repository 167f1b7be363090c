//! Whether FUSE over io_uring can be used here.
//!
//! This is checked before INIT: if Cairn agrees to rings and then registers none, the kernel lets
//! every caller wait for ever.

use std::fs;
use std::io;

use cairn_base::memory;
use cairn_block::uring;

use crate::options::MountOptions;

/// The parameter of the fuse module that allows it.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Why there are no rings, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum NoRing {
    /// The kernel is older than 6.14, or was built without it.
    #[error(
        "this kernel has no FUSE over io_uring: use Linux 6.14 or newer, or leave transport=ring \
         out"
    )]
    Kernel,
    /// It is switched off.
    #[error(
        "FUSE over io_uring is switched off: as root, `echo Y > {PARAMETER}` (or \
         `fuse.enable_uring=1` on the kernel's command line), or leave transport=ring out"
    )]
    Off,
    /// The kernel refuses an io_uring to this process.
    #[error(
        "io_uring is refused ({0}): as root, `sysctl kernel.io_uring_disabled=0`, allow it in the \
         container's seccomp profile, or leave transport=ring out"
    )]
    Refused(io::Error),
    /// The kernel did not offer it at INIT.
    #[error(
        "the kernel did not offer FUSE over io_uring: mount again, or leave transport=ring out"
    )]
    NotOffered,
    /// The rings could not be made.
    #[error("FUSE over io_uring cannot be set up ({0}): mount again, or leave transport=ring out")]
    Failed(io::Error),
}

/// Whether `transport=auto` takes rings: for mounts with what `build` sets, where the kernel offers
/// them. Small files cost less through rings, and streams are slower while other programs keep the
/// processors busy. With a limit of the address space each entry takes too much of it.
pub(crate) fn pays(options: &MountOptions) -> bool {
    let builds = options.no_open && options.private && !options.writeback_cache;
    builds && memory::address_limit().is_none() && probe().is_ok()
}

/// Checks it.
///
/// # Errors
/// What is missing.
pub(crate) fn probe() -> Result<(), NoRing> {
    let value = fs::read_to_string(PARAMETER).map_err(|_| NoRing::Kernel)?;
    if value.trim() != "Y" {
        return Err(NoRing::Off);
    }
    uring::probe().map_err(NoRing::Refused)
}
