//! Damage to zones that once stopped everybody, or was not seen.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_f2fs::format::log::AllocType;
use cairn_f2fs::format::{Log, SegNo, bits};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::opened::open;
use crate::sealed::Sealed;
use crate::target::target;
use crate::volume::{End, Kind};
use crate::zones::assert_no_zone_is_left;

/// A volume that was closed well, with its checkpoint changed.
fn changed(change: impl FnOnce(&mut Sealed<'_>)) -> Arc<MemoryDevice> {
    let target = target(Kind::Short, End::Closed);
    let image = Arc::new(target.device.fork());
    let mut sealed = Sealed::find(&image, &target.layout).unwrap();
    change(&mut sealed);
    sealed.write();
    image
}

/// Logs go through several zones, and leave none behind that counts as active.
#[track_caller]
fn zones_are_left_as_they_must(image: Arc<MemoryDevice>) {
    let fs = open(image, "");
    let ino = fs.create(fs.root(), b"often", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    for part in 0..1500_u64 {
        fs.write(ino, (part % 10) << 20, &[1; 12_000], IoFlags::empty()).unwrap();
        fs.fsync(ino, 0, false).unwrap();
    }
    fs.sync().unwrap();
    assert_no_zone_is_left(&fs);
    assert!(fs.volume().store().unwrap().segments.stats.logs_moved.get() > 0);
    fs.unmount().unwrap();
}

#[test]
fn logs_leave_zones_that_are_in_use_behind_them() {
    let image = changed(|sealed| {
        for log in Log::ALL {
            // A block that nobody points to, in the next segment of the log's zone.
            let next = SegNo(sealed.checkpoint.log(log).segno.get() ^ 1);
            let mut more = false;
            sealed.change_entry(next, |entry| {
                entry.log = log;
                more = !bits::set(&mut entry.valid_map, 7);
            });
            sealed.checkpoint.valid_block_count += u64::from(more);
            sealed.checkpoint.valid_node_count += u32::from(more && log.is_node());
        }
    });
    zones_are_left_as_they_must(image);
}

#[test]
fn logs_that_fill_holes_leave_their_zones() {
    let image = changed(|sealed| {
        // Summaries of data are in the compact form, which has no room for this.
        Log::NODE.into_iter().for_each(|log| sealed.checkpoint.logs[log.index()].alloc = AllocType::Ssr);
    });
    zones_are_left_as_they_must(image);
}

#[test]
fn logs_do_not_share_a_zone() {
    let image = changed(|sealed| {
        let segno = sealed.checkpoint.log(Log::HotData).segno.get();
        assert!(segno.is_multiple_of(2), "the log has not come to the second segment of its zone");
        let log = &mut sealed.checkpoint.logs[Log::ColdData.index()];
        (log.segno, log.blkoff) = (SegNo(segno + 1), 0);
    });
    zones_are_left_as_they_must(image);
}
