//! Entries of L1 and L2 tables.

use crate::qcow2::error::{Damage, What};

/// The cluster has a refcount of 1: it may be overwritten.
pub(in crate::qcow2) const COPIED: u64 = 1 << 63;
/// The place and the length of a compressed cluster.
const OFFSET_AND_LENGTH: u64 = (1 << 62) - 1;
const COMPRESSED: u64 = 1 << 62;
/// The cluster reads as zeros.
pub(in crate::qcow2) const ZERO: u64 = 1;
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const L1_RESERVED: u64 = !(COPIED | OFFSET);
const L2_RESERVED: u64 = !(COPIED | COMPRESSED | OFFSET | ZERO);
/// The unit of the length of compressed clusters.
pub(in crate::qcow2) const SECTOR: u64 = 512;

/// Where a cluster of the disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qcow2) enum Cluster {
    /// In the backing file, or zeros.
    Unallocated,
    /// Zeros; with a cluster of the file that is kept for it.
    Zero {
        /// Its offset, and whether nothing else uses it.
        kept: Option<(u64, bool)>,
    },
    /// At this offset.
    Data {
        /// In the file.
        host: u64,
        /// Nothing else uses it.
        copied: bool,
    },
    /// Compressed, in whole sectors of the file.
    Compressed {
        /// Where the bytes begin.
        host: u64,
        /// Bytes up to the end of the last sector.
        len: u64,
    },
}

fn aligned(what: What, offset: u64, cluster_bits: u32) -> Result<u64, Damage> {
    let unit = 1 << cluster_bits;
    if offset.is_multiple_of(unit) {
        Ok(offset)
    } else {
        Err(Damage::Unaligned { what, offset, unit })
    }
}

/// The L2 table of an entry of an L1 table, and whether nothing else uses it.
pub(in crate::qcow2) fn l1(
    entry: u64,
    index: u64,
    cluster_bits: u32,
) -> Result<Option<(u64, bool)>, Damage> {
    let bits = entry & L1_RESERVED;
    if bits != 0 {
        return Err(Damage::Reserved { what: What::L1, index, entry, bits });
    }
    match entry & OFFSET {
        0 => Ok(None),
        offset => Ok(Some((aligned(What::L2, offset, cluster_bits)?, entry & COPIED != 0))),
    }
}

/// What an entry of an L2 table says of the disk's cluster `index`.
pub(in crate::qcow2) fn l2(
    entry: u64,
    index: u64,
    cluster_bits: u32,
    version: u32,
) -> Result<Cluster, Damage> {
    if entry & COMPRESSED != 0 {
        // The length has the upper bits: as many as `cluster_bits` is above 8.
        let len_bits = cluster_bits.saturating_sub(8);
        let (host_mask, described) = (OFFSET_AND_LENGTH >> len_bits, entry & OFFSET_AND_LENGTH);
        let (host, more) = (described & host_mask, described >> host_mask.trailing_ones());
        let len = more.saturating_add(1).saturating_mul(SECTOR).saturating_sub(host % SECTOR);
        return Ok(Cluster::Compressed { host, len });
    }
    let zero_flag = if version < 3 { ZERO } else { 0 };
    let bits = entry & (L2_RESERVED | zero_flag);
    if bits != 0 {
        return Err(Damage::Reserved { what: What::L2, index, entry, bits });
    }
    let copied = entry & COPIED != 0;
    let host = aligned(What::Data, entry & OFFSET, cluster_bits)?;
    Ok(match (entry & ZERO != 0, host) {
        (true, 0) => Cluster::Zero { kept: None },
        (true, host) => Cluster::Zero { kept: Some((host, copied)) },
        (false, 0) => Cluster::Unallocated,
        (false, host) => Cluster::Data { host, copied },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_say_where_a_cluster_is() {
        let at = |entry| l2(entry, 7, 16, 3);
        assert_eq!(at(0), Ok(Cluster::Unallocated));
        assert_eq!(at(1), Ok(Cluster::Zero { kept: None }));
        assert_eq!(at(COPIED | 0x2_0000), Ok(Cluster::Data { host: 0x2_0000, copied: true }));
        assert_eq!(at(0x2_0001), Ok(Cluster::Zero { kept: Some((0x2_0000, false)) }));
        // 64 KiB: 54 bits of offset, 8 of the length.
        let entry = COMPRESSED | 2 << 54 | 0x1_0064;
        assert_eq!(at(entry), Ok(Cluster::Compressed { host: 0x1_0064, len: 3 * 512 - 0x64 }));
    }

    #[test]
    fn damaged_entries_are_named() {
        let what = What::L2;
        let reserved = Damage::Reserved { what, index: 7, entry: 0x1_0002, bits: 2 };
        assert_eq!(l2(0x1_0002, 7, 16, 3), Err(reserved));
        assert_eq!(
            l2(0x200, 7, 16, 3),
            Err(Damage::Unaligned { what: What::Data, offset: 0x200, unit: 65_536 })
        );
        assert!(l2(1, 7, 16, 2).is_err(), "no zero clusters in version 2");
        assert_eq!(l1(COPIED | 0x1_0000, 0, 16), Ok(Some((0x1_0000, true))));
        assert_eq!(l1(0, 0, 16), Ok(None));
        assert!(l1(1, 0, 16).is_err() && l1(0x8000, 0, 16).is_err());
    }
}
