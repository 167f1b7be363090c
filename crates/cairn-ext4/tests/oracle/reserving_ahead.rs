//! Space that sequential writers reserve ahead: the checks of [`reserving_ahead`] for ext4.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_testkit::oracle::{Subject, reserving_ahead};
use cairn_vfs::FileSystem;

use crate::support::{judge, open, volume};

struct Kind {
    megabytes: u64,
    options: &'static str,
}

impl Subject for Kind {
    fn name(&self) -> String {
        format!("{} MiB ({})", self.megabytes, self.options)
    }

    fn make(&self) -> Arc<MemoryDevice> {
        volume(self.megabytes << 20, &["-t", "ext4", "-b", "4096"])
    }

    fn open(&self, device: &Arc<MemoryDevice>) -> Arc<dyn FileSystem> {
        open(device, self.options)
    }

    fn judge(&self, device: &MemoryDevice) {
        judge(device);
    }
}

#[test]
fn sequential_calls_of_any_size_ask_less_than_once_a_mib() {
    reserving_ahead::sequential_calls_of_any_size_ask_less_than_once_a_mib(&Kind {
        megabytes: 256,
        options: "cache=256M",
    });
}

#[test]
fn only_sequential_writers_reserve_ahead() {
    reserving_ahead::only_sequential_writers_reserve_ahead(&Kind {
        megabytes: 64,
        options: "nobuffered_iomap",
    });
}

#[test]
fn what_is_not_used_takes_no_space() {
    reserving_ahead::what_is_not_used_takes_no_space(&Kind { megabytes: 64, options: "" }, 0);
}

#[test]
fn no_writer_fails_for_the_reservation_of_another() {
    reserving_ahead::no_writer_fails_for_the_reservation_of_another(
        &Kind { megabytes: 40, options: "" },
        0,
    );
}

#[test]
fn contending_writers_fill_the_volume_to_the_last_block() {
    reserving_ahead::contending_writers_fill_the_volume_to_the_last_block(
        &Kind { megabytes: 40, options: "" },
        0,
    );
}
