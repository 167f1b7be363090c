//! Sizes of folios and slabs: a page of 4 KiB, doubled `order` times.

/// Smallest slab and folio, in bytes.
pub(crate) const PAGE: usize = 4096;
/// Number of sizes. Sizes are `PAGE << order`; the largest is 2 MiB.
pub(crate) const ORDERS: usize = 10;
/// Largest slab and folio, in bytes.
pub(crate) const MAX_SLAB: usize = PAGE << (ORDERS - 1);

/// The order of a slab size.
pub(crate) fn order_of(bytes: usize) -> usize {
    debug_assert!(
        bytes.is_power_of_two() && (PAGE..=MAX_SLAB).contains(&bytes),
        "{bytes} is no slab size"
    );
    (bytes / PAGE).trailing_zeros() as usize
}

/// Memory of a folio besides its contents: its descriptor, that of its slab, and its places in the
/// index of its file and in the clock's queue.
pub(crate) const DESCRIPTORS: usize = 320;

/// What a folio of `bytes`, or a free slab for one, is charged.
pub(crate) const fn charged(bytes: usize) -> u64 {
    (bytes + DESCRIPTORS) as u64
}
