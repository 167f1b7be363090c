//! The header with its extensions.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::qcow2::error::{Damage, Error, Result, What};

/// `QFI\xfb`.
pub(in crate::qcow2) const MAGIC: u32 = 0x5146_49fb;
/// Bytes that every header has.
pub(in crate::qcow2) const V2_LEN: usize = 72;
/// Bytes of a header of version 3 without what later versions added.
pub(in crate::qcow2) const V3_LEN: usize = 104;
/// As QEMU: larger ones would cost too much memory.
pub(in crate::qcow2) const MOST_L1: u64 = 32 << 20;
/// As QEMU.
pub(in crate::qcow2) const MOST_REFCOUNT_TABLE: u64 = 8 << 20;
/// As QEMU.
pub(in crate::qcow2) const MOST_SNAPSHOTS: u32 = 65_536;
const MOST_BACKING_NAME: u32 = 1023;

/// Bits of `incompatible_features`.
pub(in crate::qcow2) const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const DATA_FILE: u64 = 1 << 2;
const COMPRESSION: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
const KNOWN: u64 = DIRTY | CORRUPT | DATA_FILE | COMPRESSION | EXTENDED_L2;

const BACKING_FORMAT: u32 = 0xe279_2aca;
const FEATURE_NAMES: u32 = 0x6803_f857;

/// The whole header as versions 2 and 3 have it; a header of version 2 ends before
/// `incompatible_features`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::qcow2) struct RawHeader {
    pub(in crate::qcow2) magic: U32,
    pub(in crate::qcow2) version: U32,
    pub(in crate::qcow2) backing_file_offset: U64,
    pub(in crate::qcow2) backing_file_size: U32,
    pub(in crate::qcow2) cluster_bits: U32,
    pub(in crate::qcow2) size: U64,
    pub(in crate::qcow2) crypt_method: U32,
    pub(in crate::qcow2) l1_size: U32,
    pub(in crate::qcow2) l1_table_offset: U64,
    pub(in crate::qcow2) refcount_table_offset: U64,
    pub(in crate::qcow2) refcount_table_clusters: U32,
    pub(in crate::qcow2) nb_snapshots: U32,
    pub(in crate::qcow2) snapshots_offset: U64,
    pub(in crate::qcow2) incompatible_features: U64,
    pub(in crate::qcow2) compatible_features: U64,
    pub(in crate::qcow2) autoclear_features: U64,
    pub(in crate::qcow2) refcount_order: U32,
    pub(in crate::qcow2) header_length: U32,
}

const _: () = assert!(size_of::<RawHeader>() == V3_LEN);

/// How clusters are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qcow2) enum Compression {
    /// Raw deflate.
    Zlib,
    /// A frame of zstd.
    Zstd,
}

/// The validated header.
#[derive(Clone, Debug)]
pub(in crate::qcow2) struct Header {
    pub(in crate::qcow2) version: u32,
    pub(in crate::qcow2) cluster_bits: u32,
    /// Bytes of the disk.
    pub(in crate::qcow2) size: u64,
    pub(in crate::qcow2) l1_entries: u32,
    pub(in crate::qcow2) l1_offset: u64,
    pub(in crate::qcow2) refcount_table_offset: u64,
    pub(in crate::qcow2) refcount_table_clusters: u32,
    pub(in crate::qcow2) refcount_order: u32,
    pub(in crate::qcow2) snapshots: u32,
    pub(in crate::qcow2) snapshots_offset: u64,
    pub(in crate::qcow2) incompatible: u64,
    pub(in crate::qcow2) autoclear: u64,
    pub(in crate::qcow2) compression: Compression,
    /// The name of the backing file and its format, if it has one.
    pub(in crate::qcow2) backing: Option<(String, Option<String>)>,
}

impl Header {
    /// Bytes of a cluster.
    pub(in crate::qcow2) fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Refcounts may be wrong.
    pub(in crate::qcow2) fn is_dirty(&self) -> bool {
        self.incompatible & DIRTY != 0
    }

    /// Somebody has found the image damaged.
    pub(in crate::qcow2) fn is_corrupt(&self) -> bool {
        self.incompatible & CORRUPT != 0
    }
}

fn rule(field: &'static str, value: u64, holds: bool, rule: &'static str) -> Result<()> {
    if holds { Ok(()) } else { Err(Damage::Header { field, value, rule }.into()) }
}

/// Bytes of a cluster of the image that begins with these bytes: those that [`decode`] needs.
pub(in crate::qcow2) fn cluster_of(bytes: &[u8]) -> Result<u64> {
    let raw = raw(bytes)?;
    Ok(1 << raw.cluster_bits.get())
}

/// A length as one of memory.
fn size(len: U32) -> usize {
    usize::try_from(len.get()).unwrap_or(usize::MAX)
}

fn raw(bytes: &[u8]) -> Result<RawHeader> {
    // A file may end within a header of version 3.
    let mut raw = RawHeader::new_zeroed();
    raw.as_mut_bytes().iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
    let field = |value: U32| u64::from(value.get());
    rule("magic", field(raw.magic), raw.magic.get() == MAGIC, "not that of qcow2, 0x514649fb")?;
    if !(2..=3).contains(&raw.version.get()) {
        let what = format!("has version {}", raw.version.get());
        return Err(Error::unsupported(what, "convert it with qemu-img convert -O qcow2"));
    }
    let bits = raw.cluster_bits.get();
    rule("cluster_bits", u64::from(bits), (9..=21).contains(&bits), "not from 9 to 21")?;
    Ok(raw)
}

/// The header in the first cluster of a file that has `end` bytes.
pub(in crate::qcow2) fn decode(bytes: &[u8], end: u64) -> Result<Header> {
    let raw = raw(bytes)?;
    let version = raw.version.get();
    let is_3 = version >= 3;
    let length = if is_3 { size(raw.header_length) } else { V2_LEN };
    let fits = length <= bytes.len() && length.is_multiple_of(8);
    let least = !is_3 || length >= V3_LEN;
    let range = "not a multiple of 8 from 104 to the size of a cluster";
    let told = u64::from(raw.header_length.get());
    rule("header_length", told, fits && least, range)?;
    let extensions = extensions(bytes, length, &raw)?;
    let incompatible = if is_3 { raw.incompatible_features.get() } else { 0 };
    refuse(&raw, incompatible, &extensions)?;
    let order = if is_3 { raw.refcount_order.get() } else { 4 };
    rule("refcount_order", u64::from(order), order <= 6, "more than 6")?;
    let header = Header {
        version,
        cluster_bits: raw.cluster_bits.get(),
        size: raw.size.get(),
        l1_entries: raw.l1_size.get(),
        l1_offset: raw.l1_table_offset.get(),
        refcount_table_offset: raw.refcount_table_offset.get(),
        refcount_table_clusters: raw.refcount_table_clusters.get(),
        refcount_order: order,
        snapshots: raw.nb_snapshots.get(),
        snapshots_offset: raw.snapshots_offset.get(),
        incompatible,
        autoclear: if is_3 { raw.autoclear_features.get() } else { 0 },
        compression: compression(bytes, length, incompatible)?,
        backing: backing(bytes, &raw, extensions.backing_format)?,
    };
    check_tables(&header, end)?;
    Ok(header)
}

fn check_tables(header: &Header, end: u64) -> Result<()> {
    let unit = header.cluster();
    let most = "more than 2^63 - 1";
    rule("size", header.size, i64::try_from(header.size).is_ok(), most)?;
    // One L2 table leads to a cluster's worth of entries, each to a cluster.
    let per_l1 = unit.saturating_mul(unit / 8);
    let needed = header.size.div_ceil(per_l1);
    let entries = u64::from(header.l1_entries);
    let l1_len = entries.saturating_mul(8);
    rule("l1_size", entries, l1_len <= MOST_L1, "more than a table of 32 MiB has")?;
    rule("l1_size", entries, entries >= needed, "too few for the size of the disk")?;
    let region = |what, offset: u64, len: u64| -> Result<()> {
        if !offset.is_multiple_of(unit) {
            return Err(Damage::Unaligned { what, offset, unit }.into());
        }
        match offset.checked_add(len) {
            Some(to) if to <= end => Ok(()),
            _ => Err(Damage::Beyond { what, offset, len, end }.into()),
        }
    };
    region(What::L1, header.l1_offset, l1_len)?;
    let clusters = u64::from(header.refcount_table_clusters);
    let field = "refcount_table_clusters";
    rule(field, clusters, clusters > 0, "none")?;
    rule(field, clusters, clusters.saturating_mul(unit) <= MOST_REFCOUNT_TABLE, "more than 8 MiB")?;
    // The file may end within the last cluster.
    let least = clusters.saturating_sub(1).saturating_mul(unit).saturating_add(8);
    region(What::RefcountTable, header.refcount_table_offset, least)?;
    let count = header.snapshots;
    rule("nb_snapshots", u64::from(count), count <= MOST_SNAPSHOTS, "more than 65536")?;
    if count > 0 {
        region(What::Snapshots, header.snapshots_offset, u64::from(count).saturating_mul(40))?;
    }
    Ok(())
}

/// Refuses by name what is not done here.
fn refuse(raw: &RawHeader, incompatible: u64, extensions: &Extensions) -> Result<()> {
    let advice = "convert it with qemu-img convert -O qcow2";
    let unknown = incompatible & !KNOWN;
    let what = if unknown != 0 {
        let bit = unknown.trailing_zeros();
        let known = extensions.names.iter().find(|(of, _)| u32::from(*of) == bit);
        let name = known.map_or(String::new(), |(_, name)| format!(" ({name})"));
        format!("has the incompatible feature bit {bit}{name}")
    } else if raw.crypt_method.get() == 1 {
        "is encrypted with AES".to_owned()
    } else if raw.crypt_method.get() == 2 {
        "is encrypted with LUKS inside".to_owned()
    } else if raw.crypt_method.get() != 0 {
        format!("has the encryption method {}", raw.crypt_method.get())
    } else if incompatible & DATA_FILE != 0 {
        "keeps its data in an external data file".to_owned()
    } else if incompatible & EXTENDED_L2 != 0 {
        "has extended L2 entries (subclusters)".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::unsupported(what, advice))
}

fn compression(bytes: &[u8], length: usize, incompatible: u64) -> Result<Compression> {
    let kind = if length > V3_LEN { bytes.get(V3_LEN).copied().unwrap_or(0) } else { 0 };
    let flagged = incompatible & COMPRESSION != 0;
    let agrees = "not what the incompatible feature bit 3 says";
    rule("compression_type", u64::from(kind), flagged == (kind != 0), agrees)?;
    match kind {
        0 => Ok(Compression::Zlib),
        1 => Ok(Compression::Zstd),
        other => {
            let what = format!("has the compression type {other}");
            Err(Error::unsupported(what, "convert it with qemu-img convert -O qcow2"))
        }
    }
}

#[derive(Default)]
struct Extensions {
    backing_format: Option<String>,
    /// Bit and name of incompatible features.
    names: Vec<(u8, String)>,
}

/// The extensions from `at` on. They end before the name of the backing file, or with the cluster.
fn extensions(bytes: &[u8], at: usize, raw: &RawHeader) -> Result<Extensions> {
    let end = match raw.backing_file_offset.get() {
        0 => bytes.len(),
        offset => usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len()),
    };
    let mut rest = bytes.get(at..end).unwrap_or_default();
    let mut found = Extensions::default();
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let [a, b, c, d, e, f, g, h] = *head;
        let (kind, len) = (u32::from_be_bytes([a, b, c, d]), U32::from_bytes([e, f, g, h]));
        if kind == 0 {
            break;
        }
        let Some(data) = after.get(..size(len)) else {
            let value = u64::from(len.get());
            let rule = "longer than the space for header extensions";
            return Err(Damage::Header { field: "length of an extension", value, rule }.into());
        };
        match kind {
            BACKING_FORMAT => found.backing_format = Some(text(data)),
            FEATURE_NAMES => found.names = names(data),
            _ => {}
        }
        rest = after.get(data.len().next_multiple_of(8)..).unwrap_or_default();
    }
    Ok(found)
}

fn names(data: &[u8]) -> Vec<(u8, String)> {
    let of_incompatible = |entry: &[u8; 48]| match entry {
        [0, bit, name @ ..] => Some((*bit, text(name))),
        _ => None,
    };
    data.as_chunks::<48>().0.iter().filter_map(of_incompatible).collect()
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

fn backing(
    bytes: &[u8],
    raw: &RawHeader,
    format: Option<String>,
) -> Result<Option<(String, Option<String>)>> {
    let (offset, len) = (raw.backing_file_offset.get(), raw.backing_file_size);
    if offset == 0 {
        return Ok(None);
    }
    let most = "more than 1023";
    let told = u64::from(len.get());
    rule("backing_file_size", told, len.get() <= MOST_BACKING_NAME, most)?;
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let name = start.checked_add(size(len)).and_then(|end| bytes.get(start..end));
    let Some(name) = name else {
        let rule = "not in the first cluster";
        return Err(Damage::Header { field: "backing_file_offset", value: offset, rule }.into());
    };
    match std::str::from_utf8(name) {
        Ok(name) => Ok(Some((name.to_owned(), format))),
        Err(_) => {
            let name = String::from_utf8_lossy(name).into_owned();
            let what = format!("has a backing file whose name is not UTF-8, {name:?}");
            Err(Error::unsupported(
                what,
                "name it anew with qemu-img rebase -u -F FORMAT -b NAME IMAGE",
            ))
        }
    }
}
