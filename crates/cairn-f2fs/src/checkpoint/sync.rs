//! The synchronisation primitives of [`super::queue`]. The model checker compiles the queue with
//! primitives of its own instead of this module.

use cairn_base::ranked_lock::{self, Rank};
pub(super) use cairn_base::runtime::Event;

/// A leaf lock: no other lock is taken, and nothing is waited for, with it held.
pub(super) type Mutex<T> = ranked_lock::Mutex<T>;

/// A lock around `value`.
pub(super) const fn mutex<T>(value: T) -> Mutex<T> {
    ranked_lock::Mutex::new(Rank::Leaf, value)
}
