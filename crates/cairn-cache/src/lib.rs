//! The cache: metadata buffers ([`block`]), file folios ([`mod@file`]), mappings ([`mapper`], [`status`]), write-back ([`writeback`]),
//! what is on the medium ([`durability`]), and one memory [`budget`] for all of them.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod block;
pub mod budget;
pub mod durability;
pub mod file;
pub mod mapper;
pub mod options;
pub mod status;
pub mod writeback;
