//! Contents of files on volumes that are written: against models, judged by fsck.f2fs.

mod contention;
mod cost;
mod crash;
mod faults;
mod fsx;
mod full;
mod promises;
mod shift;
mod support;
