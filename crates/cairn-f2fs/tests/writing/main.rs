//! Volumes of mkfs.f2fs, written through the filesystem trait, judged by fsck.f2fs and read back.

mod directories;
mod features;
mod filled;
mod kernel;
mod names;
mod oracle;
mod remount;
mod support;
