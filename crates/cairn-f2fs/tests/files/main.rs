//! Contents of files on writable volumes, compared with models and judged by fsck.f2fs.

mod background;
mod contention;
mod cost;
mod crash;
mod crash_cleaning;
mod disabled;
mod disabled_reuse;
mod durability;
mod faults;
mod fiemap;
mod fsx;
mod full;
mod held;
mod lent;
mod long_chain;
mod merged_crash;
mod merging;
mod options;
mod policy;
mod reserving_ahead;
mod resize;
mod shift;
mod support;
mod trimmed;
mod tune;
mod worn;
