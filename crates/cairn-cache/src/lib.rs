//! The caches of a volume: metadata buffers ([`block`]) and file folios ([`mod@file`]), with the
//! mappings of files ([`mapper`], [`status`]), write-back ([`writeback`]), a record of what is on
//! the medium ([`durability`]), and one memory [`budget`].

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod block;
pub mod budget;
pub mod durability;
pub mod file;
pub mod mapper;
pub mod options;
pub mod status;
pub mod writeback;
