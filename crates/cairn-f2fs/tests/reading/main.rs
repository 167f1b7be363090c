//! Reading volumes that f2fs-tools made: whole trees, every feature, damage.

mod chain;
mod compressed;
mod features;
mod hostile;
mod replay;
mod support;
mod trees;
