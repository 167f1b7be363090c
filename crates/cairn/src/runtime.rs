//! Where time, randomness and threads come from: [`crate::open_on`] takes a [`Runtime`].

pub use cairn_base::runtime::Runtime;
pub use cairn_base::runtime::threads::Threads;
