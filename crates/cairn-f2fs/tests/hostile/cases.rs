//! Damage to zones that once stopped all operations, or was not detected.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::zoned::{ZoneCondition, ZoneLayout, open_image};
use cairn_f2fs::format::log::AllocType;
use cairn_f2fs::format::{Log, SegNo, bits};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::opened::open;
use crate::sealed::Sealed;
use crate::target::{Target, target};
use crate::tour;
use crate::volume::{End, Kind, sound};
use crate::zones::{self, assert_no_zone_is_left};

/// An unmounted volume with a changed checkpoint.
fn changed(change: impl FnOnce(&mut Sealed<'_>)) -> Arc<MemoryDevice> {
    let target = target(Kind::Short, End::Closed);
    let image = Arc::new(target.device.fork());
    let mut sealed = Sealed::find(&image, &target.layout).unwrap();
    change(&mut sealed);
    sealed.write();
    image
}

/// Logs use several zones, and no zone without a log is active.
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
    assert!(fs.store().unwrap().segments.stats.logs_moved.get() > 0);
    fs.unmount().unwrap();
}

#[test]
fn logs_leave_zones_that_are_in_use_behind_them() {
    let image = changed(|sealed| {
        for log in Log::ALL {
            // A block without a pointer to it, in the next segment of the log's zone.
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
        Log::NODE
            .into_iter()
            .for_each(|log| sealed.checkpoint.logs[log.index()].alloc = AllocType::Ssr);
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

fn with_pointers(
    target: &Target,
    kind: Kind,
    change: impl FnOnce(&mut [u64], &ZoneLayout),
) -> Arc<MemoryDevice> {
    let image = Arc::new(target.device.fork());
    let layout = kind.zones().unwrap();
    let mut pointers = zones::read(&image, &layout);
    change(&mut pointers, &layout);
    zones::write(&image, &layout, &pointers);
    image
}

/// Cairn does not finish zones after the volume: without six active zones of its own the volume is
/// read-only.
#[test]
fn active_zones_behind_the_volume_count() {
    let kind = Kind::Zoned;
    let target = target(kind, End::Cut);
    let image = with_pointers(&target, kind, |pointers, _| *pointers.last_mut().unwrap() = 4096);
    let error = crate::open(image.clone(), "").err().unwrap().to_string();
    assert!(error.contains("1 of the 6") && error.contains("finish or reset"), "{error}");
    crate::open(image, "ro").unwrap();
}

#[test]
fn a_volume_with_a_failed_zone_is_only_read() {
    let kind = Kind::Zoned;
    let target = target(kind, End::Cut);
    let image = with_pointers(&target, kind, |pointers, layout| {
        pointers[layout.conventional as usize + 3] |= 1 << 62
    });
    let error = crate::open(image.clone(), "").err().unwrap().to_string();
    assert!(error.contains("has failed"), "{error}");
    crate::open(image, "ro").unwrap();
}

/// A zone may also fail while a log is in it. No call waits for writes that cannot succeed, and
/// readable data is still read.
#[test]
fn a_zone_that_fails_stops_the_volume() {
    let layout = Kind::Short.zones().unwrap();
    for condition in [ZoneCondition::ReadOnly, ZoneCondition::Offline] {
        for log in [Log::WarmData, Log::WarmNode] {
            let image: Arc<dyn BlockDevice> = sound(Kind::Short, End::Closed);
            let zoned = Arc::new(open_image(&image).unwrap().unwrap());
            let fs = open(zoned.clone(), "");
            let at = fs.store().unwrap().segments.next_address(log).bytes();
            zoned.fail_zone(at - at % layout.zone_size, condition).unwrap();
            let ino =
                fs.create(fs.root(), b"new", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
            fs.write(ino, 0, &[1; 12_000], IoFlags::empty()).unwrap();
            let error = fs.fsync(ino, 0, false).unwrap_err();
            assert!(error.to_string().contains("zone has failed"), "{error}");
            let errors = [fs.sync(), fs.unmount()].map(|outcome| outcome.unwrap_err().to_string());
            assert!(errors.iter().all(|error| error.contains("zone has failed")), "{errors:?}");
            drop(fs);
            if condition == ZoneCondition::ReadOnly {
                assert!(tour::of(&crate::open_on(zoned, "ro").unwrap()) > 400);
            }
        }
    }
}
