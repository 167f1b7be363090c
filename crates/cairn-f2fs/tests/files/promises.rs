//! What sequential writers are promised ahead: see the questions themselves.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_testkit::oracle::{Subject, promises};
use cairn_vfs::FileSystem;

use crate::support::{judge, open, volume};

/// Nodes of the largest files here.
const NODES: u64 = 40;

struct Kind {
    megabytes: u64,
    options: &'static str,
}

impl Subject for Kind {
    fn name(&self) -> String {
        format!("{} MiB ({})", self.megabytes, self.options)
    }

    fn make(&self) -> Arc<MemoryDevice> {
        volume(self.megabytes << 20, &[])
    }

    fn open(&self, device: &Arc<MemoryDevice>) -> Arc<dyn FileSystem> {
        open(device.clone(), self.options)
    }

    fn judge(&self, device: &MemoryDevice) {
        judge(device);
    }
}

#[test]
fn sequential_calls_of_any_size_ask_less_than_once_a_mib() {
    for options in ["cache=256M", "cache=256M,mode=lfs"] {
        promises::sequential_calls_of_any_size_ask_less_than_once_a_mib(&Kind { megabytes: 256, options });
    }
}

#[test]
fn only_who_writes_in_a_row_is_promised_ahead() {
    promises::only_who_writes_in_a_row_is_promised_ahead(&Kind { megabytes: 64, options: "nobuffered_iomap" });
}

#[test]
fn what_is_not_used_takes_no_space() {
    promises::what_is_not_used_takes_no_space(&Kind { megabytes: 96, options: "" }, NODES);
}

#[test]
fn nobody_fails_for_what_another_was_promised() {
    promises::nobody_fails_for_what_another_was_promised(&Kind { megabytes: 64, options: "" }, NODES);
}

#[test]
fn contending_writers_fill_the_volume_to_the_last_block() {
    promises::contending_writers_fill_the_volume_to_the_last_block(&Kind { megabytes: 64, options: "" }, NODES);
}
