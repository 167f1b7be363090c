//! The oracle model mounted through the kernel: our own operations, and suites that others wrote.

mod fixture;
mod operations;
mod suites;
