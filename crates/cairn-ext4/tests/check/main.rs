//! `check`, judged by e2fsck: it finds nothing on sound volumes, and what e2fsck finds on damaged
//! ones.
//!
//! `CAIRN_DEEP=1` runs more seeds.

#[path = "../common/checked.rs"]
mod checked;
mod checksums;
mod clean;
mod foreign;
mod hostile;
mod injected;
mod repaired;
mod support;
