//! Virtual and encrypted disks.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt, Error, ErrorKind};
use cairn_images::{qcow2, zst};
use cairn_luks::{Limits, Luks, Options, Passphrase};
use sha2::{Digest, Sha256};

/// Bytes of the device that holds a disk.
const DEVICE: u64 = 1 << 20;
/// Bytes of a disk that are used.
const USED: u64 = 256 << 10;
/// Bytes of the device with a LUKS header, whose data begins at 16 MiB.
const ENCRYPTED: u64 = 17 << 20;
const STEP: u64 = 32 << 10;

fn device(bytes: &[u8], size: u64) -> Arc<dyn BlockDevice> {
    let device = MemoryDevice::new(size.max(bytes.len() as u64));
    device.load(0, bytes);
    Arc::new(device)
}

fn has_text(error: &impl std::fmt::Display) {
    assert!(!error.to_string().is_empty(), "an error without a text");
}

/// Reads the beginning and the end.
fn read(disk: &dyn BlockDevice) {
    let size = disk.geometry().size;
    let starts = (0..size.min(USED)).step_by(STEP as usize).chain([size.saturating_sub(STEP)]);
    for at in starts {
        if let Err(error) = disk.read_at(at, STEP.min(size - at) as usize) {
            has_text(&error);
        }
    }
}

/// Opens an image for reading and for writing, and uses it. What was written is read again if the
/// image was sound enough to take it.
pub(super) fn qcow2(bytes: &[u8]) {
    let none = |_: &qcow2::BackingName| -> cairn_block::Result<Arc<dyn BlockDevice>> {
        Err(Error::new(ErrorKind::NotFound, "open", "there is no backing file"))
    };
    for write in [false, true] {
        let options = qcow2::Options { write, backing: &none, depth: 0 };
        match qcow2::open(device(bytes, DEVICE), &options) {
            Ok(disk) => {
                read(&disk);
                if write {
                    change(&disk);
                }
            }
            Err(error) => has_text(&error),
        }
    }
}

fn change(disk: &dyn BlockDevice) {
    let size = disk.geometry().size;
    for (number, at) in (0_u8..).zip((0..size.min(USED)).step_by(5 << 10)) {
        let len = (size - at).min(3 << 10);
        let done = match number % 5 {
            0 => disk.write_zeroes(at, len),
            1 => disk.discard(at, len),
            2 => disk.flush(),
            _ => disk.write_at(at, vec![number; len as usize]),
        };
        if let Err(error) = done {
            has_text(&error);
        }
    }
    if let Err(error) = disk.flush() {
        has_text(&error);
    }
}

/// Opens a compressed disk and reads it.
pub(super) fn zst(bytes: &[u8]) {
    match zst::open(Arc::new(MemoryDevice::from_image(bytes))) {
        Ok(disk) => read(&disk),
        Err(error) => has_text(&error),
    }
}

/// Reads a header and tries a passphrase, within small limits. The checksum of version 2 is put
/// right.
pub(super) fn luks(bytes: &[u8]) {
    let mut header = bytes.to_vec();
    if header.get(7) == Some(&2) && header.len() > 512 {
        header.resize(header.len().max(0x4000), 0);
        header[448..512].fill(0);
        let digest = Sha256::digest(&header[..0x4000]);
        header[448..480].copy_from_slice(&digest);
    }
    let device = device(&header, ENCRYPTED);
    match cairn_luks::inspect(&*device) {
        Ok(info) => assert!(info.offset < device.geometry().size, "data beyond the end"),
        Err(error) => return has_text(&error),
    }
    let limits = Limits { memory_kib: 1 << 10, passed_gib: 1, iterations: 1000 };
    let options = Options { write: false, limits };
    if let Err(error) = Luks::open(device, &Passphrase::new("x"), &options) {
        has_text(&error);
    }
}
