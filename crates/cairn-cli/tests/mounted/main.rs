//! ext4 and F2FS images mounted by the `cairn` program and used through the kernel: suites that
//! others wrote, real load, killed daemons, full volumes. After each mount e2fsck or fsck.f2fs has
//! the last word.
//!
//! Needs root, `/dev/fuse` and loop devices, and the tools that `scripts/install-deps` installs; a
//! test that misses one fails and says which. `CAIRN_DEEP=1` runs longer.

mod beside;
mod databases;
mod errors;
mod fixture;
mod frozen;
mod fstab;
mod idmapped;
mod ioctls;
mod kills;
mod label;
mod leaving;
mod limits;
mod live;
mod load;
mod locks;
mod memory;
mod options;
mod overlay;
mod privileges;
mod protected;
mod recorded;
mod reserved;
mod second_device;
mod space;
mod start;
mod suites;
mod synchronous;
mod times;
mod trees;
mod unchecked;
mod user;
