//! `Ext4`, compared with the oracle model, a vector of bytes, e2fsck and the kernel, under seeded
//! sequences, contention, damage and bad input.
//!
//! `CAIRN_DEEP=1` runs more seeds; a failure prints the seed and the last operations.

mod acl_sizes;
mod backups;
mod bad_input;
#[path = "../common/checked.rs"]
mod checked;
mod checkpoint_options;
mod contention;
mod e2fsprogs;
mod exchange;
mod extra_isize;
mod fast_commit;
mod features_in_use;
mod fsx;
mod full;
mod hostile;
mod inline_holes;
mod journals;
mod logged_data;
mod names;
mod options;
mod regressions;
mod remount;
mod reserving_ahead;
mod resize;
mod resized_descriptors;
mod resized_system_files;
mod resized_then_checked;
mod resized_to_least;
mod second_mount;
mod sequence;
mod shapes;
mod shared_file;
mod shift;
mod statfs;
mod stripes;
mod support;
mod system_zone;
mod trim;
mod tune;
mod tune_faults;
mod visitor;
