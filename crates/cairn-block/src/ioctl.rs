//! Device controls that have no safe binding: discarding, zones, loop devices.

use std::ffi::c_void;
use std::fs::File;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, Opcode, Setter, Updater, ioctl, opcode};
use zerocopy::FromZeros;

/// `BLKROGET` of `linux/fs.h`: `_IO(0x12, 94)`.
const BLKROGET: Opcode = opcode::none(0x12, 94);
/// `BLKDISCARD` of `linux/fs.h`: `_IO(0x12, 119)`.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// Whether the system refuses writes to a block device. It can be opened for writing all the same.
pub(crate) fn is_read_only(file: &File) -> rustix::io::Result<bool> {
    // SAFETY: BLKROGET writes one int through its pointer argument; `Getter` passes a pointer to
    // one, alive during the call. On a file that is no block device the kernel answers ENOTTY.
    let value = unsafe { ioctl(file, Getter::<BLKROGET, i32>::new()) }?;
    Ok(value != 0)
}

/// Discards a byte range of a block device.
pub(crate) fn discard(file: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64, offset and length, through its pointer argument and writes
    // no memory; `Setter` passes a pointer to an array of exactly these, alive during the call. On
    // a file that is no block device the kernel answers ENOTTY.
    unsafe { ioctl(file, Setter::<BLKDISCARD, [u64; 2]>::new([offset, len])) }
}

/// `struct blk_zone` of `linux/blkzoned.h`; places and lengths are sectors of 512 bytes.
#[derive(Clone, Copy, Debug, Default, FromZeros)]
#[repr(C)]
pub(crate) struct BlkZone {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) wp: u64,
    pub(crate) kind: u8,
    pub(crate) cond: u8,
    pub(crate) non_seq: u8,
    pub(crate) reset: u8,
    pub(crate) resv: [u8; 4],
    pub(crate) capacity: u64,
    pub(crate) reserved: [u8; 24],
}

/// The head of `struct blk_zone_report`.
#[derive(Clone, Copy, Debug, Default, FromZeros)]
#[repr(C)]
pub(crate) struct BlkZoneReportHead {
    pub(crate) sector: u64,
    pub(crate) nr_zones: u32,
    pub(crate) flags: u32,
}

/// Zones asked for at once.
pub(crate) const ZONES_AT_ONCE: usize = 128;

/// `struct blk_zone_report` with room for [`ZONES_AT_ONCE`] zones.
#[derive(Clone, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct BlkZoneReport {
    pub(crate) head: BlkZoneReportHead,
    pub(crate) zones: [BlkZone; ZONES_AT_ONCE],
}

const _: () = assert!(size_of::<BlkZone>() == 64 && size_of::<BlkZoneReportHead>() == 16);
const _: () = assert!(size_of::<BlkZoneReport>() == 16 + 64 * ZONES_AT_ONCE);

/// `BLKREPORTZONE`: `_IOWR(0x12, 130, struct blk_zone_report)`.
const BLKREPORTZONE: Opcode = opcode::read_write::<BlkZoneReportHead>(0x12, 130);
/// `BLKRESETZONE`: `_IOW(0x12, 131, struct blk_zone_range)`.
const BLKRESETZONE: Opcode = opcode::write::<[u64; 2]>(0x12, 131);
/// `BLKFINISHZONE`: `_IOW(0x12, 136, struct blk_zone_range)`.
const BLKFINISHZONE: Opcode = opcode::write::<[u64; 2]>(0x12, 136);

/// Zones from the one that holds `sector` on; the head says how many were found.
pub(crate) fn report_zones(file: &File, sector: u64) -> rustix::io::Result<Box<BlkZoneReport>> {
    let mut report = BlkZoneReport::new_box_zeroed().expect("memory for a report");
    report.head = BlkZoneReportHead { sector, nr_zones: ZONES_AT_ONCE as u32, flags: 0 };
    // SAFETY: BLKREPORTZONE reads the head and writes the head and at most `nr_zones` zones behind
    // it, for which the structure has room; all bit patterns are valid values of its integers.
    unsafe { ioctl(file, Updater::<BLKREPORTZONE, BlkZoneReport>::new(&mut report))? };
    Ok(report)
}

/// Resets the zones in a range of sectors.
pub(crate) fn reset_zones(file: &File, sector: u64, sectors: u64) -> rustix::io::Result<()> {
    // SAFETY: BLKRESETZONE reads `struct blk_zone_range`, two u64, through its pointer argument and
    // writes no memory.
    unsafe { ioctl(file, Setter::<BLKRESETZONE, [u64; 2]>::new([sector, sectors])) }
}

/// Finishes the zones in a range of sectors.
pub(crate) fn finish_zones(file: &File, sector: u64, sectors: u64) -> rustix::io::Result<()> {
    // SAFETY: as for BLKRESETZONE.
    unsafe { ioctl(file, Setter::<BLKFINISHZONE, [u64; 2]>::new([sector, sectors])) }
}

/// What a loop device shows: the head of `struct loop_info64` of `linux/loop.h`, and as much room
/// as the rest takes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LoopStatus {
    /// Device and inode number of the file behind it.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// Number of the block device behind it, or 0.
    pub(crate) rdevice: u64,
    rest: [u64; 26],
}

const _: () = assert!(size_of::<LoopStatus>() == 232);

/// `LOOP_GET_STATUS64` of `linux/loop.h`; its number does not tell the size.
const LOOP_GET_STATUS64: Opcode = 0x4C05;

/// Reads the backing file of a loop device, or of the loop device of a partition.
fn sys_paths(number: u64) -> [String; 2] {
    let base =
        format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    [format!("{base}/loop"), format!("{base}/../loop")]
}

/// The backing file of the loop device, or of the loop device of the partition.
pub(crate) fn loop_status(file: &File) -> rustix::io::Result<LoopStatus> {
    // Other devices may take the number for something else.
    let number = rustix::fs::fstat(file)?.st_rdev;
    if !sys_paths(number).iter().any(|path| std::path::Path::new(path).exists()) {
        return Err(rustix::io::Errno::NOTTY);
    }
    // SAFETY: of a loop device, which the path in /sys shows it to be, LOOP_GET_STATUS64 writes
    // `struct loop_info64`, whose size is asserted above, and which is integers alone.
    unsafe { ioctl(file, Getter::<LOOP_GET_STATUS64, LoopStatus>::new()) }
}

/// `LOOP_CTL_GET_FREE` of `linux/loop.h`.
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;
/// `LOOP_CONFIGURE` of `linux/loop.h`.
const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LO_FLAGS_READ_ONLY: u32 = 1;
/// The device is removed when nobody has it open.
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_config` of `linux/loop.h`, with `struct loop_info64` in it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LoopConfig {
    fd: u32,
    block_size: u32,
    /// Device, inode and number of the device behind it: the kernel finds them out.
    unused: [u64; 3],
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    /// Names, a key, two numbers; and what is reserved.
    rest: [u64; 30],
}

const _: () = assert!(size_of::<LoopConfig>() == 304);

impl LoopConfig {
    /// A device of `len` bytes of this file from `offset` on; without `len`, up to its end.
    pub(crate) fn new(fd: u32, offset: u64, len: Option<u64>, read_only: bool) -> Self {
        Self {
            fd,
            block_size: 0,
            unused: [0; 3],
            offset,
            size_limit: len.unwrap_or(0),
            number: 0,
            encryption: [0; 2],
            flags: LO_FLAGS_AUTOCLEAR | if read_only { LO_FLAGS_READ_ONLY } else { 0 },
            rest: [0; 30],
        }
    }
}

/// The number of a loop device that is free, or new. `control`: `/dev/loop-control`.
pub(crate) fn free_loop(control: &File) -> rustix::io::Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument, accesses no memory of the caller, and returns
    // the number. On another file the kernel answers ENOTTY.
    unsafe { ioctl(control, NumberOf::<LOOP_CTL_GET_FREE>) }
}

/// Gives a free loop device its file.
pub(crate) fn configure_loop(device: &File, config: &LoopConfig) -> rustix::io::Result<()> {
    // SAFETY: LOOP_CONFIGURE reads `struct loop_config`, whose size is asserted above, through its
    // pointer argument and writes no memory. The caller opened the device by its name in /dev.
    unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(*config)) }
}

/// A control without an argument whose result is a number.
struct NumberOf<const OPCODE: Opcode>;

// SAFETY: no pointer is passed, so the kernel accesses no memory.
unsafe impl<const OPCODE: Opcode> Ioctl for NumberOf<OPCODE> {
    type Output = u32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        u32::try_from(out).map_err(|_| Errno::RANGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_linux() {
        // From `linux/blkzoned.h` with the encoding of `asm-generic/ioctl.h`.
        let numbers = [BLKREPORTZONE, BLKRESETZONE, BLKFINISHZONE].map(u64::from);
        assert_eq!(numbers, [0xc010_1282, 0x4010_1283, 0x4010_1288]);
    }

    #[test]
    fn what_is_no_zoned_device_says_so() {
        let file = tempfile::tempfile().unwrap();
        assert!(report_zones(&file, 0).is_err());
        assert!(reset_zones(&file, 0, 8).is_err() && finish_zones(&file, 0, 8).is_err());
    }
}
