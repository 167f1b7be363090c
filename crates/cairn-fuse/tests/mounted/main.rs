//! The oracle model mounted through the kernel: our own operations, and suites that others wrote.

mod fixture;
mod hooked;
mod operations;
mod suites;
