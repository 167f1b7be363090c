//! Commits: [`leader`] decides who commits, [`transaction`] writes the transaction to the log, and
//! [`daemon`] commits by age.

pub(crate) mod daemon;
mod leader;
mod transaction;
