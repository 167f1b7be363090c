//! Volumes filled by mkfs, judged by e2fsck, the kernel and Cairn's own mount.

mod host;
mod limits;
mod made;
mod shapes;
mod shared;
mod support;
mod trees;
