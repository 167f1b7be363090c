//! Reading volumes that f2fs-tools made: whole trees, every feature.

mod chain;
mod compressed;
mod features;
mod replay;
mod support;
mod trees;
