//! Volumes of mkfs.f2fs, written through the filesystem trait and judged by fsck.f2fs and by what
//! is read back.

mod directories;
mod kernel;
mod names;
mod oracle;
mod remount;
mod support;
