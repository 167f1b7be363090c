//! [`create`]: an empty image.

use std::sync::Arc;

use bytes::Bytes;
use cairn_block::{BlockDevice, Request};
use zerocopy::IntoBytes;

use super::error::{Error, Result};
use super::format::header::{MAGIC, MOST_L1, MOST_REFCOUNT_TABLE, RawHeader, V3_LEN};
use super::format::refcount;
use super::host::{Host, index};

/// Refcounts of 16 bits, as `qemu-img create` makes them.
pub(super) const ORDER: u32 = 4;

/// What to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Bytes of the disk.
    pub size: u64,
    /// Bytes of a cluster: a power of two from 512 to 2 MiB.
    pub cluster_size: u32,
}

impl CreateOptions {
    /// A disk of this many bytes, in clusters of 64 KiB.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self { size, cluster_size: 64 << 10 }
    }
}

/// Where the parts of a new image begin, in clusters.
pub(super) struct Layout {
    pub(super) table: u64,
    pub(super) blocks: u64,
    pub(super) l1: u64,
    pub(super) end: u64,
    pub(super) l1_entries: u64,
}

/// The entries of the L1 table, if the image can be.
pub(super) fn check(options: &CreateOptions) -> Result<u64> {
    let cluster = u64::from(options.cluster_size);
    if !cluster.is_power_of_two() || !(512..=2 << 20).contains(&cluster) {
        return Err(Error::Refused(format!(
            "clusters of {cluster} bytes cannot be: give a power of two from 512 to 2097152"
        )));
    }
    let l1_entries = options.size.div_ceil(cluster * cluster / 8).max(1);
    if l1_entries * 8 > MOST_L1 || i64::try_from(options.size).is_err() {
        return Err(Error::Refused(format!(
            "a disk of {} bytes is too large for clusters of {cluster}: give larger clusters",
            options.size
        )));
    }
    Ok(l1_entries)
}

fn layout(options: &CreateOptions) -> Result<Layout> {
    let cluster = u64::from(options.cluster_size);
    let l1_entries = check(options)?;
    let l1 = (l1_entries * 8).div_ceil(cluster);
    let per_block = (cluster * 8) >> ORDER;
    let mut blocks = 1_u64;
    loop {
        let table = (blocks * 8).div_ceil(cluster);
        let end = 1 + table + blocks + l1;
        if end <= blocks * per_block {
            if table * cluster > MOST_REFCOUNT_TABLE {
                let why = "the refcounts of the new qcow2 image need more than 8 MiB of table: \
                    give larger clusters";
                return Err(Error::Refused(why.to_owned()));
            }
            let (l1, blocks) = (1 + table + blocks, 1 + table);
            return Ok(Layout { table: 1, blocks, l1, end, l1_entries });
        }
        blocks = end.div_ceil(per_block);
    }
}

/// Makes an empty image of version 3 on a device, which is as large as the image grows, or
/// [growable](BlockDevice::as_growable). What the device holds is lost.
///
/// # Errors
/// [`Error::Refused`] for sizes that cannot be; [`Error::Device`].
pub fn create(device: Arc<dyn BlockDevice>, options: &CreateOptions) -> Result<()> {
    let layout = layout(options)?;
    let host = Host::new(device);
    let cluster = u64::from(options.cluster_size);
    if host.unit() > cluster {
        return Err(Error::Refused(format!(
            "clusters of {cluster} bytes are smaller than the device's blocks: give larger ones"
        )));
    }
    host.ensure(layout.end * cluster)?;
    // The tables first: without a header they mean nothing.
    let mut tables = vec![0; index((layout.end - 1) * cluster)];
    let of = |number: u64| index((number - 1) * cluster);
    for (entry, block) in (layout.blocks..layout.l1).enumerate() {
        let at = of(layout.table) + entry * 8;
        tables[at..at + 8].copy_from_slice(&(block * cluster).to_be_bytes());
    }
    let counts = &mut tables[of(layout.blocks)..of(layout.l1)];
    for number in 0..layout.end {
        refcount::set(counts, ORDER, index(number), 1);
    }
    let old_header = Bytes::from(vec![0; index(cluster)]);
    host.write(0, old_header)?;
    host.flush()?;
    host.submit(vec![Request::Write { offset: cluster, bufs: vec![tables.into()] }])?;
    host.flush()?;
    let mut first = vec![0; index(cluster)];
    first[..V3_LEN].copy_from_slice(header(options, &layout).as_bytes());
    host.write(0, first.into())?;
    Ok(host.flush()?)
}

pub(super) fn header(options: &CreateOptions, layout: &Layout) -> RawHeader {
    let cluster = u64::from(options.cluster_size);
    let word = |value: u64| u32::try_from(value).expect("tables are small").into();
    RawHeader {
        magic: MAGIC.into(),
        version: 3.into(),
        backing_file_offset: 0.into(),
        backing_file_size: 0.into(),
        cluster_bits: options.cluster_size.trailing_zeros().into(),
        size: options.size.into(),
        crypt_method: 0.into(),
        l1_size: word(layout.l1_entries),
        l1_table_offset: (layout.l1 * cluster).into(),
        refcount_table_offset: (layout.table * cluster).into(),
        refcount_table_clusters: word(layout.blocks - layout.table),
        nb_snapshots: 0.into(),
        snapshots_offset: 0.into(),
        incompatible_features: 0.into(),
        compatible_features: 0.into(),
        autoclear_features: 0.into(),
        refcount_order: ORDER.into(),
        header_length: word(V3_LEN as u64),
    }
}
