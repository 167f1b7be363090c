//! `check`, judged by e2fsck: it finds nothing on sound volumes, and what e2fsck finds on damaged
//! ones.
//!
//! `CAIRN_DEEP=1` runs more seeds.

mod attributes;
mod called_free;
#[path = "../common/checked.rs"]
mod checked;
mod checksums;
mod clean;
mod damaged_fast_commits;
mod damaged_log;
mod faults;
mod features;
mod file_types;
mod foreign;
mod forms;
mod full;
mod hostile;
mod injected;
mod lies;
mod list_bits;
mod lost_bits;
mod lost_features;
mod lost_log;
mod lost_table;
mod lost_writes;
mod map_bits;
mod marked;
mod mmp;
mod one_bit;
mod quota;
mod reads;
mod records;
#[path = "../../../cairn-check/tests/common/repair_faults.rs"]
mod repair_faults;
mod repaired;
mod reserved;
mod seeds;
mod shared;
mod sizes;
mod support;
mod swept;
mod unclean;
mod values;
mod whiteouts;
mod wrong_nodes;
