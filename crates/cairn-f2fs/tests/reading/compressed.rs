//! Compressed files. f2fs-tools make none, so the clusters are compressed here.

use cairn_f2fs::format::inode::{Advise, FileFlags, Inode};
use cairn_f2fs::format::node::Marks;
use cairn_f2fs::format::units::{BLOCK_SIZE, BlockAddr, Nid};
use cairn_f2fs::format::{Features, checksum};
use cairn_vfs::{FileKind, FileSystem, IoFlags, Seek};

use crate::chain::Chain;
use crate::support::{MIB, image};

const CLUSTER: usize = 4 * BLOCK_SIZE;
const FEATURES: Features = Features::EXTRA_ATTR.union(Features::COMPRESSION);

/// LZO with one run of literals.
fn lzo(data: &[u8]) -> Vec<u8> {
    let run = data.len() - 18;
    [&[0], vec![0; run / 255].as_slice(), &[(run % 255) as u8], data, &[17, 0, 0]].concat()
}

fn pack(algorithm: u8, data: &[u8]) -> Vec<u8> {
    match algorithm {
        1 => lz4_flex::block::compress(data),
        2 => zstd::encode_all(data, 3).unwrap(),
        // LZO-RLE: a version, a run of literals, and runs of zeros.
        _ => {
            let zeros = data.iter().rev().take_while(|byte| **byte == 0).count();
            let (head, mut left) = (&data[..data.len() - zeros], zeros);
            let mut packed = vec![17, 1];
            packed.extend_from_slice(&lzo(head)[..lzo(head).len() - 3]);
            while left >= 4 {
                let count = (left - 4).min(2047);
                packed.extend([0x18 | (count & 7) as u8, 0xfc, 0xff, (count >> 3) as u8]);
                left -= count + 4;
            }
            assert_eq!(left, 0, "runs of zeros end with the cluster");
            packed.extend([17, 0, 0]);
            packed
        }
    }
}

/// Three packed clusters, one that is not packed, a hole, and a packed one that the end of the file
/// cuts.
fn contents() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(11);
    let mut bytes = Vec::new();
    for cluster in 0..6 {
        let mut piece = vec![0; CLUSTER];
        match cluster {
            3 => random.fill(&mut piece),
            4 => {}
            _ => piece.iter_mut().take(5000).for_each(|byte| *byte = random.u8(b'a'..b'e')),
        }
        bytes.extend(piece);
    }
    bytes.truncate(5 * CLUSTER + 6000);
    bytes
}

/// Writes the file; returns the volume's chain.
fn volume(algorithm: u8, with_checksum: bool, damage: impl Fn(&mut Vec<u8>)) -> Chain {
    let mut chain = Chain::new(image(64 * MIB, &["-O", "extra_attr,compression"], None));
    let data = contents();
    let mut inode = Inode::new(FileKind::Regular, 0o644, FEATURES, 36);
    inode.flags.insert(FileFlags::COMPR);
    // Compressed data may end behind the end of the file. Roll-forward would keep it.
    inode.advise.insert(Advise::KEEP_SIZE);
    (inode.name, inode.pino, inode.size) = (b"packed"[..].into(), Nid::ROOT, data.len() as u64);
    let extra = inode.extra.as_mut().unwrap();
    (extra.compress_algorithm, extra.log_cluster_size) = (algorithm, 2);
    extra.compress_flag = u16::from(with_checksum);
    let mut block = vec![0; BLOCK_SIZE];
    inode.encode_into(&mut block);
    for (index, piece) in data.chunks(CLUSTER).enumerate() {
        let mut whole = piece.to_vec();
        whole.resize(CLUSTER, 0);
        let pointers = match index {
            3 => whole.chunks(BLOCK_SIZE).map(|part| chain.block(part.to_vec())).collect(),
            4 => vec![BlockAddr::NULL; 4],
            _ => packed_cluster(&mut chain, &pack(algorithm, &whole), &damage),
        };
        for (slot, addr) in (4 * index as u32..).zip(pointers) {
            inode.set_data_pointer(&mut block, slot, addr);
        }
    }
    chain.node(block, 900, 900, 0, Marks::FSYNC | Marks::DENT);
    chain
}

fn packed_cluster(
    chain: &mut Chain,
    packed: &[u8],
    damage: &impl Fn(&mut Vec<u8>),
) -> Vec<BlockAddr> {
    let mut bytes = (packed.len() as u32).to_le_bytes().to_vec();
    bytes.extend(checksum::crc32(checksum::MAGIC, packed).to_le_bytes());
    bytes.extend([0; 16]);
    bytes.extend_from_slice(packed);
    damage(&mut bytes);
    bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
    let mut pointers = vec![BlockAddr::COMPRESS];
    pointers.extend(bytes.chunks(BLOCK_SIZE).map(|part| chain.block(part.to_vec())));
    assert!(pointers.len() <= 4, "packing saves a block");
    pointers.resize(4, BlockAddr::NULL);
    pointers
}

#[test]
fn every_algorithm_is_unpacked() {
    let right = contents();
    for algorithm in [1, 2, 3] {
        for with_checksum in [false, true] {
            let volume = volume(algorithm, with_checksum, |_| {}).open();
            let file = volume.lookup(volume.root(), b"packed").unwrap();
            let mut whole = vec![0xff; right.len() + 10];
            assert_eq!(
                volume.read(file.ino, 0, &mut whole, IoFlags::empty()).unwrap(),
                right.len()
            );
            assert!(whole[..right.len()] == right[..], "algorithm {algorithm}");
            let mut random = fastrand::Rng::with_seed(3);
            for _ in 0..100 {
                let at = random.usize(..right.len());
                let mut piece = vec![0; random.usize(1..40_000)];
                let len = volume.read(file.ino, at as u64, &mut piece, IoFlags::DIRECT).unwrap();
                assert_eq!(len, piece.len().min(right.len() - at));
                assert_eq!(piece[..len], right[at..at + len]);
            }
            let (data, hole) = (3 * CLUSTER as u64 + 5, 4 * CLUSTER as u64 + 5);
            assert_eq!(volume.seek(file.ino, 5, Seek::Hole).unwrap(), 4 * CLUSTER as u64);
            assert_eq!(volume.seek(file.ino, data, Seek::Data).unwrap(), data);
            assert_eq!(volume.seek(file.ino, hole, Seek::Data).unwrap(), 5 * CLUSTER as u64);
            let mut packed = Vec::new();
            volume
                .extents(file.ino, 0, u64::MAX, true, &mut |extent| {
                    packed
                        .extend((extent.flags & 8 != 0).then_some(extent.logical / CLUSTER as u64));
                    true
                })
                .unwrap();
            assert_eq!(packed, [0, 1, 2, 5]);
        }
    }
}

#[test]
fn damaged_clusters_are_errors() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(bool, Change, &str); 4] = [
        (
            false,
            |bytes| bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes()),
            "longer than its blocks",
        ),
        (false, |bytes| bytes[..4].copy_from_slice(&20_u32.to_le_bytes()), "LZ4 data is damaged"),
        (true, |bytes| bytes[4] ^= 1, "checksum"),
        (false, |bytes| bytes[24..60].fill(0xff), "LZ4 data is damaged"),
    ];
    for (with_checksum, change, reason) in changes {
        let volume = volume(1, with_checksum, change).open();
        let file = volume.lookup(volume.root(), b"packed").unwrap();
        let error =
            volume.read(file.ino, 0, &mut [0; 100], IoFlags::empty()).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        let mut plain = vec![0; CLUSTER];
        volume.read(file.ino, 3 * CLUSTER as u64, &mut plain, IoFlags::empty()).unwrap();
        assert_eq!(
            plain,
            contents()[3 * CLUSTER..4 * CLUSTER],
            "other clusters are not touched by it"
        );
    }
}
