//! The store on images of mkfs.f2fs: everything is moved about for many checkpoints, read
//! again from disk, and judged by fsck.f2fs; with failing devices, power cuts, and several threads.

mod crash;
mod faults;
mod hostile;
mod images;
mod kernel;
mod memory;
mod state;
mod threads;
mod volume;
