//! The parts of checkpointing: what each of them changes. Crash tests run with all combinations
//! ([`crate::crash`]).

use std::sync::Arc;

use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_cache::block::BufferCache;
use cairn_jbd2::{CheckpointParts, Journal};

use crate::fixture::{self, commit_blocks, features, format, stamp};

fn journal(parts: CheckpointParts) -> (Arc<BufferCache>, Arc<Journal>) {
    let device: Arc<dyn BlockDevice> = Arc::new(format(features::REVOKE, 0, 1));
    let (buffers, journal) =
        fixture::open(&device, Simulated::new(1)).expect("an empty journal opens");
    journal.set_checkpoint_parts(parts);
    (buffers, journal)
}

#[test]
fn without_across_a_checkpoint_writes_the_oldest_transaction_alone() {
    for (parts, written) in [
        (CheckpointParts::all(), 12),
        (CheckpointParts::all() - CheckpointParts::ACROSS, 3),
        (CheckpointParts::empty(), 3),
    ] {
        let (buffers, journal) = journal(parts);
        for number in 0..4 {
            commit_blocks(&buffers, &journal, 3 * number..3 * number + 3, number);
        }
        journal.checkpoint(fixture::LOG_BLOCKS / 4).expect("the device works");
        assert_eq!(journal.stats().checkpoint_blocks.get(), written, "{parts:?}");
    }
}

#[test]
fn without_supersede_a_newer_transaction_is_closed_first() {
    for (parts, transactions) in [(CheckpointParts::all(), 1), (CheckpointParts::empty(), 2)] {
        let (buffers, journal) = journal(parts);
        commit_blocks(&buffers, &journal, 0..1, 1);
        {
            let handle = journal.start(1).expect("the device works");
            let buffer = buffers.get(cairn_base::Pba(fixture::HOME)).expect("the device works");
            handle.get_write_access(&buffer).expect("the device works").copy_from_slice(&stamp(2));
        }
        journal.checkpoint(1).expect("the device works");
        assert_eq!(journal.stats().transactions.get(), transactions, "{parts:?}");
    }
}

#[test]
fn without_commits_a_full_log_is_emptied_by_checkpoints_alone() {
    for parts in [CheckpointParts::all(), CheckpointParts::empty()] {
        let (buffers, journal) = journal(parts);
        // Each supersedes the last, so commits can free the log without a checkpoint.
        for number in 0..1000 {
            commit_blocks(&buffers, &journal, 0..1, number);
        }
        let waits = journal.report().get("forced_checkpoints").cloned();
        let waited = !matches!(waits, Some(cairn_base::stats::Value::U64(0)));
        assert_eq!(waited, parts.is_empty(), "{parts:?}: {waits:?}");
    }
}
