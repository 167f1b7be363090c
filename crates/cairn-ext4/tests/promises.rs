//! What sequential writers are promised ahead: see the questions themselves.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_ext4::{Ext4, MountOptions};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{assert_clean, mke2fs};
use cairn_testkit::oracle::{Subject, promises};
use cairn_vfs::FileSystem;

struct Kind {
    megabytes: u64,
    options: &'static str,
}

impl Subject for Kind {
    fn name(&self) -> String {
        format!("{} MiB ({})", self.megabytes, self.options)
    }

    fn make(&self) -> Arc<MemoryDevice> {
        let file = tempfile::NamedTempFile::new().unwrap();
        mke2fs(file.path(), self.megabytes << 20, &["-t", "ext4", "-b", "4096"]);
        Arc::new(read_image(file.path()).unwrap())
    }

    fn open(&self, device: &Arc<MemoryDevice>) -> Arc<dyn FileSystem> {
        let options = MountOptions::parse(self.options).unwrap();
        Ext4::open(device.clone(), Arc::new(Threads::new()), &options).unwrap()
    }

    fn judge(&self, device: &MemoryDevice) {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_image(device, file.path()).unwrap();
        assert_clean(file.path());
    }
}

#[test]
fn sequential_calls_of_any_size_ask_less_than_once_a_mib() {
    promises::sequential_calls_of_any_size_ask_less_than_once_a_mib(&Kind { megabytes: 256, options: "cache=256M" });
}

#[test]
fn only_who_writes_in_a_row_is_promised_ahead() {
    promises::only_who_writes_in_a_row_is_promised_ahead(&Kind { megabytes: 64, options: "nobuffered_iomap" });
}

#[test]
fn what_is_not_used_takes_no_space() {
    promises::what_is_not_used_takes_no_space(&Kind { megabytes: 64, options: "" }, 0);
}

#[test]
fn nobody_fails_for_what_another_was_promised() {
    promises::nobody_fails_for_what_another_was_promised(&Kind { megabytes: 40, options: "" }, 0);
}

#[test]
fn contending_writers_fill_the_volume_to_the_last_block() {
    promises::contending_writers_fill_the_volume_to_the_last_block(&Kind { megabytes: 40, options: "" }, 0);
}
