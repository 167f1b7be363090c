//! Network block devices (NBD): a [`Client`] that is a block device, and a [`server`] for any block
//! device.
//!
//! The protocol is that of <https://github.com/NetworkBlockDevice/nbd> (doc/proto.md): fixed
//! newstyle negotiation, simple and structured replies, and the extended headers of the branch
//! `extension-ext-header`.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod address;
pub mod client;
mod clock;
mod extent;
mod failure;
pub mod server;
#[cfg(test)]
mod tests;
mod transport;
mod wire;

pub use address::{Address, AddressError, Place, TlsWish};
pub use cairn_block::Extent;
pub use client::{Client, ConnectOptions, WAITING};
pub use wire::Violation;
