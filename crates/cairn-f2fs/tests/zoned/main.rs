//! F2FS on devices with sequential zones. All rules of zones are enforced.

mod contention;
mod crash;
mod host;
mod kernel;
mod support;
