//! F2FS on devices whose zones must be written in order, with every rule of theirs enforced.

mod contention;
mod crash;
mod host;
mod kernel;
mod support;
