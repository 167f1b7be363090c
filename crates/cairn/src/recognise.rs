//! Recognises images of other formats by their signatures, to say what to do with them. Writes
//! nothing.

use cairn_block::BlockDevice;

use crate::bytes::read_bytes;
pub use crate::error::Hint;
use crate::partition;

/// The place of a signature.
#[derive(Clone, Copy)]
enum Place {
    /// Bytes from the start.
    Start(u64),
    /// Bytes from the end.
    End(u64),
}
use Place::{End, Start};

const OTHER: &str = "only ext2, ext3, ext4 and f2fs are supported";
const CONVERT: &str = "convert it first: qemu-img convert -O raw IMAGE disk.raw";
const RAID: &str = "assemble it first (mdadm --assemble), and give the device it makes";
const PARTITIONED: Hint =
    Hint { what: "a partitioned disk", advice: "name a partition as in 'IMAGE#1'" };

/// Signatures of formats that people try by mistake. The first that matches counts.
const SIGNATURES: &[(Place, &[u8], &str, &str)] = &[
    (Start(0), b"QFI\xfb", "a qcow2 image", CONVERT),
    (Start(0), b"KDMV", "a VMDK image", CONVERT),
    (Start(0), b"COWD", "a VMDK image", CONVERT),
    (Start(0), b"# Disk DescriptorFile", "the descriptor of a VMDK image", CONVERT),
    (Start(0), b"vhdxfile", "a VHDX image", CONVERT),
    (Start(0), b"conectix", "a VHD image", CONVERT),
    (Start(64), &[0x7f, 0x10, 0xda, 0xbe], "a VDI image", CONVERT),
    (
        Start(0),
        &[0x3a, 0xff, 0x26, 0xed],
        "an Android sparse image",
        "convert it first: cairn unsparse IMAGE disk.raw",
    ),
    (Start(0), &[0x1f, 0x8b], "gzip-compressed data", "unpack it first: gzip -dc IMAGE > disk.raw"),
    (
        Start(0),
        &[0xfd, b'7', b'z', b'X', b'Z', 0],
        "xz-compressed data",
        "unpack it first: xz -dc IMAGE > disk.raw",
    ),
    (
        Start(0),
        &[0x28, 0xb5, 0x2f, 0xfd],
        "zstd-compressed data",
        "unpack it first: zstd -dc IMAGE > disk.raw",
    ),
    (Start(0), b"BZh", "bzip2-compressed data", "unpack it first: bzip2 -dc IMAGE > disk.raw"),
    (
        Start(0),
        &[0x04, 0x22, 0x4d, 0x18],
        "lz4-compressed data",
        "unpack it first: lz4 -dc IMAGE > disk.raw",
    ),
    (Start(0), b"PK\x03\x04", "a zip archive", "unpack it first: unzip IMAGE"),
    (Start(257), b"ustar", "a tar archive", "make an image of it"),
    (
        Start(32_769),
        b"CD001",
        "an ISO 9660 image",
        "Cairn does not read it: mount it with Linux, or unpack it with bsdtar -xf",
    ),
    (
        Start(0),
        b"LUKS\xba\xbe",
        "an encrypted volume (LUKS)",
        "open it first with cryptsetup, and give the device it makes",
    ),
    (
        Start(512),
        b"LABELONE",
        "a physical volume of LVM",
        "activate it first (vgchange -ay), and give a logical volume",
    ),
    (Start(0), b"hsqs", "squashfs", OTHER),
    (Start(0), b"XFSB", "XFS", OTHER),
    (Start(3), b"NTFS    ", "NTFS", OTHER),
    (Start(3), b"EXFAT   ", "exFAT", OTHER),
    (Start(82), b"FAT32   ", "FAT", OTHER),
    (Start(54), b"FAT16   ", "FAT", OTHER),
    (Start(54), b"FAT12   ", "FAT", OTHER),
    (Start(1024), &[0xe2, 0xe1, 0xf5, 0xe0], "EROFS", OTHER),
    (Start(4086), b"SWAPSPACE2", "swap space", OTHER),
    (Start(65_600), b"_BHRfS_M", "Btrfs", OTHER),
    (Start(0), &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a RAID (md)", RAID),
    (Start(4096), &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a RAID (md)", RAID),
    (
        Start(4120),
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        "bcache",
        OTHER,
    ),
    (
        Start(4120),
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        "bcachefs",
        OTHER,
    ),
    (Start(1030), &[0x34, 0x34], "NILFS2", OTHER),
    (Start(1024), b"H+\x00\x04", "HFS+", OTHER),
    (Start(1024), b"HX\x00\x05", "HFS+", OTHER),
    (Start(32), b"NXSB", "APFS", OTHER),
    (Start(65_588), b"ReIsEr", "ReiserFS", OTHER),
    (Start(32_768), b"JFS1", "JFS", OTHER),
    (Start(32_769), b"BEA01", "UDF", OTHER),
    (Start(8192), b"OCFSV2", "OCFS2", OTHER),
    (Start(4096), b"OCFSV2", "OCFS2", OTHER),
    (Start(2048), b"OCFSV2", "OCFS2", OTHER),
    (Start(65_536), &[0x01, 0x16, 0x19, 0x70, 0, 0, 0, 1], "GFS2", OTHER),
    (Start(131_072), &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], "ZFS", OTHER),
    (Start(0), b"\x7fELF", "a program", OTHER),
    (End(512), b"conectix", "a VHD image", CONVERT),
];

/// What the device looks like, if it is known.
pub(crate) fn recognise(device: &dyn BlockDevice) -> Option<Hint> {
    if is_partitioned(device) {
        return Some(PARTITIONED);
    }
    let size = device.geometry().size;
    SIGNATURES.iter().find_map(|(place, bytes, what, advice)| {
        let at = match place {
            Start(at) => *at,
            End(before) => size.checked_sub(*before)?,
        };
        let found = read_bytes(device, at, bytes.len()).ok()??;
        (found == *bytes).then_some(Hint { what, advice })
    })
}

fn is_partitioned(device: &dyn BlockDevice) -> bool {
    matches!(partition::read(device), Ok(Some(table)) if !table.partitions.is_empty())
}

#[cfg(test)]
mod tests {
    use cairn_block::BlockDeviceExt;
    use cairn_block::memory::MemoryDevice;

    use super::*;

    #[test]
    fn every_signature_is_found_where_it_stands() {
        for (place, bytes, what, advice) in SIGNATURES {
            let device = MemoryDevice::new(1 << 20);
            let at = match place {
                Start(at) => *at,
                End(before) => (1 << 20) - before,
            };
            let mut whole = vec![0; 1 << 20];
            whole[usize::try_from(at).unwrap()..][..bytes.len()].copy_from_slice(bytes);
            device.write_at(0, whole).unwrap();
            assert_eq!(recognise(&device), Some(Hint { what, advice }));
        }
        assert_eq!(recognise(&MemoryDevice::new(1 << 20)), None);
        assert_eq!(recognise(&MemoryDevice::new(512)), None);
    }
}
