//! The oracle model mounted through the kernel: Cairn's own tests, and test suites of other
//! projects.

mod answers;
mod fixture;
mod hooked;
mod operations;
mod suites;
mod transport;
