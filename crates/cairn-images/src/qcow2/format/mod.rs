//! The bytes of an image: decoded and validated, without I/O.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

pub(super) mod entry;
pub(super) mod header;
pub(super) mod refcount;
pub(super) mod snapshot;
