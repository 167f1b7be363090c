//! Images are built from all kinds of sources, and judged by fsck, by the kernel and by what other
//! programs unpack.

mod archives;
mod away;
mod back;
mod disks;
mod hostile;
mod layers;
mod manifests;
mod many;
mod members;
mod odd_members;
mod others;
mod outputs;
mod sparse;
mod support;
mod trees;
