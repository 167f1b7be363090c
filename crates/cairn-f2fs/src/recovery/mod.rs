//! Roll-forward: recovers what was fsynced after the last checkpoint.
//!
//! fsync writes an inode's nodes to the warm node log and nothing else; each block names the next
//! block of the log. So the nodes written since the checkpoint form a chain ([`chain`]) that starts
//! at the log's next block in the checkpoint; [`links`] says where a node names the wrong one,
//! and [`versions`] which inodes contradict the checkpoint. Others are [`unknown`] to it. A
//! read-only volume keeps the changes of the chain in memory ([`overlay`]); a writable one applies
//! them ([`replay`]). [`orphans`] deletes inodes without a name, before and after that. What
//! [`names`] cannot hash is not applied.

pub(crate) mod chain;
pub(crate) mod links;
pub(crate) mod names;
pub(crate) mod orphans;
pub(crate) mod overlay;
pub(crate) mod replay;
pub(crate) mod unknown;
pub(crate) mod versions;
