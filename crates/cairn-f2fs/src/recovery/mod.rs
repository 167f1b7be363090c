//! Roll-forward: what was fsynced after the last checkpoint.
//!
//! fsync writes an inode's nodes to the warm node log and nothing else; each block names the next
//! block of the log. So the nodes written since the checkpoint form a chain ([`chain`]) that starts
//! where the checkpoint says that the log goes on. A read-only volume lays what the chain says over
//! the checkpoint in memory ([`overlay`]); one that is written takes it in ([`replay`]).

pub mod chain;
pub mod overlay;
pub mod replay;
