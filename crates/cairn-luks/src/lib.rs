//! Disks encrypted with LUKS 1 and 2: a device over the one that has the header, opened with a
//! passphrase.
//!
//! The formats are those of cryptsetup's specifications. Headers are only read: keyslots are made
//! and changed with cryptsetup. A header says what it costs to try a passphrase; what would take
//! more than [`Limits`] is refused with the value. Keys and passphrases are overwritten when they
//! are dropped, and compared in constant time. What is encrypted is not authenticated: whoever can
//! write the device can change sectors unseen, as with dm-crypt.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod af;
mod cipher;
mod device;
mod error;
mod hash;
mod header;
mod kdf;
mod luks1;
mod luks2;
mod passphrase;
mod read;
mod unlock;
mod xts;

pub use device::{Luks, Options};
pub use error::{Error, Result};
pub use header::{Info, inspect, recognise};
pub use kdf::Limits;
pub use passphrase::Passphrase;
