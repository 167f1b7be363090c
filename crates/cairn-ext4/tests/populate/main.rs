//! Volumes filled by mkfs, judged by e2fsck, the kernel and Cairn's own mount.

#[path = "../common/checked.rs"]
mod checked;
mod host;
mod limits;
mod shapes;
mod shared;
mod support;
mod trees;
