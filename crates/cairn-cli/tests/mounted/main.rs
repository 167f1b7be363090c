//! ext4 and F2FS images mounted by the `cairn` program and used through the kernel: test suites of
//! other projects, real load, killed daemons, full volumes. e2fsck or fsck.f2fs judges the image
//! after each mount.
//!
//! Needs root, `/dev/fuse` and loop devices, and the tools that `scripts/install-deps` installs; a
//! test without one of them fails and names it. `CAIRN_DEEP=1` runs longer.

mod allocate;
mod beside;
mod block_devices;
mod blocks;
mod book;
mod checked;
mod databases;
mod demo;
mod disabled;
mod errors;
mod exports;
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
mod noxattr;
mod object_volumes;
mod options;
mod overlay;
mod private;
mod privileges;
mod protected;
mod recorded;
mod requests;
mod reserved;
mod ring;
mod running;
mod second_device;
mod space;
mod start;
mod streams;
mod suites;
mod synchronous;
mod times;
mod transports;
mod trees;
mod unchecked;
mod user;
mod ways;
