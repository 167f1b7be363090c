//! Takes a ring from a thread that one request has kept for a tick.
//!
//! The watch sleeps while no requests arrive, and is woken by the first one ([`Bell`]).

use std::sync::Arc;

use super::bell::Bell;
use super::queue::{Look, Queue};
use crate::wire::Areas;

pub(super) fn watch(bell: &Bell, queues: &[Arc<Queue>], areas: &Areas) {
    let mut seen = vec![0; queues.len()];
    while bell.tick() {
        let mut quiet = true;
        for (queue, seen) in queues.iter().zip(&mut seen) {
            let begun = queue.begun();
            match queue.look(*seen) {
                Look::Kept => quiet = false,
                Look::Moves => quiet &= begun == *seen,
            }
            *seen = begun;
        }
        if quiet {
            let still = || queues.iter().zip(&seen).all(|(queue, seen)| queue.begun() == *seen);
            bell.doze(still, || areas.trim());
        }
    }
}
