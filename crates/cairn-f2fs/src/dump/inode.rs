//! An inode, its nodes, its pointers and its attributes.

use cairn_check::{Detail, Fields};
use cairn_vfs::Timestamp;

use super::tables::put_entry;
use crate::error::{Error, Result};
use crate::format::Inode;
use crate::format::inode::{InlineFlags, checksums};
use crate::format::node::{NodeFooter, XATTR_OFFSET};
use crate::format::path::NodeKind;
use crate::format::units::{BLOCK_SIZE, BlockAddr, Nid};
use crate::format::xattr::{self, NODE_BYTES};
use crate::raw::RawVolume;
use crate::raw::tree::{Below, Pointer, Visitor, walk};

/// Most nodes, extents and faults that are shown.
const MOST: usize = 1 << 20;

fn unreadable(why: String) -> Error {
    Error::Option(format!("{why}: look at its address with `nat`"))
}

/// Adds what a footer says.
pub(super) fn put_footer(fields: &mut Fields, footer: &NodeFooter) {
    let marks = footer.marks.iter_names().map(|(name, _)| name.to_ascii_lowercase());
    let one = Fields::new()
        .with("nid", footer.nid.get())
        .with("ino", footer.ino.get())
        .with("ofs", footer.offset)
        .with("marks", marks.collect::<Vec<_>>())
        .with("cp_ver", Detail::Hex(footer.cp_ver))
        .with("next_blkaddr", footer.next_blkaddr.get());
    fields.put("footer", one);
}

/// All fields of an inode.
///
/// # Errors
/// There is none, or its block cannot be read.
pub(super) fn show(volume: &RawVolume, ino: Nid) -> Result<Fields> {
    let (addr, image) = volume.node(ino).map_err(unreadable)?;
    let mut fields = Fields::new().with("inode", ino.get());
    if let Ok((_, entry)) = volume.nat(ino) {
        let mut nat = Fields::new();
        put_entry(&mut nat, entry);
        fields.put("nat", nat);
    }
    fields.put("block", addr.get());
    fields.put("byte", addr.bytes());
    if let Some(valid) = volume.is_valid(addr) {
        fields.put("valid", valid);
    }
    let footer = NodeFooter::read(&image);
    put_footer(&mut fields, &footer);
    if !footer.is_inode() {
        fields.put("error", format!("it is a node of inode {}", footer.ino));
        return Ok(fields);
    }
    if let Some((stored, computed)) = checksums(&image, &volume.layout) {
        fields.checksum(stored, computed);
    }
    match Inode::decode(&image, ino, volume.layout.features) {
        Ok(record) => put_record(volume, ino, &record, &image, &mut fields),
        Err(error) => {
            fields.put("error", error.to_string());
            fields.put("bytes", Detail::Bytes(image.to_vec()));
        }
    }
    Ok(fields)
}

fn time(stamp: Timestamp) -> Fields {
    Fields::new().with("time", Detail::Time(stamp.seconds)).with("nanoseconds", stamp.nanoseconds)
}

fn put_record(volume: &RawVolume, ino: Nid, record: &Inode, image: &[u8], fields: &mut Fields) {
    let mode = record.kind.mode_bits() | u32::from(record.permissions);
    let lower = |names: Vec<&'static str>| -> Vec<String> {
        names.into_iter().map(str::to_ascii_lowercase).collect()
    };
    fields.put("type", record.kind.words());
    fields.put("i_mode", Detail::Text(format!("{mode:06o}")));
    fields.put("i_advise", lower(record.advise.iter_names().map(|(name, _)| name).collect()));
    fields.put("i_inline", lower(record.inline.iter_names().map(|(name, _)| name).collect()));
    fields.put("i_uid", record.uid);
    fields.put("i_gid", record.gid);
    fields.put("i_links", record.links);
    fields.put("i_size", record.size);
    fields.put("i_blocks", record.blocks);
    fields.put("i_atime", time(record.atime));
    fields.put("i_ctime", time(record.ctime));
    fields.put("i_mtime", time(record.mtime));
    fields.put("i_generation", record.generation);
    fields.put("i_current_depth", record.current_depth);
    fields.put("i_xattr_nid", record.xattr_nid.get());
    fields.put("i_flags", Detail::Hex(record.flags.bits().into()));
    fields.put("flags", lower(record.flags.iter_names().map(|(name, _)| name).collect()));
    fields.put("i_pino", record.pino.get());
    fields.put("i_name", Detail::Name(record.name.to_vec()));
    fields.put("i_dir_level", record.dir_level);
    let hint = Fields::new()
        .with("fofs", record.ext.fofs)
        .with("blk_addr", record.ext.blk_addr.get())
        .with("len", record.ext.len);
    fields.put("i_ext", hint);
    if let Some(extra) = &record.extra {
        fields.put("i_extra_isize", extra.size);
        fields.put("i_inline_xattr_size", extra.inline_xattr_size);
        fields.put("i_projid", extra.projid);
        fields.put("i_crtime", time(extra.crtime));
        fields.put("i_compr_blocks", extra.compr_blocks);
        fields.put("i_compress_algorithm", extra.compress_algorithm);
        fields.put("i_log_cluster_size", extra.log_cluster_size);
        fields.put("i_compress_flag", extra.compress_flag);
    }
    fields.put("i_nid", record.nids.iter().map(|nid| nid.get()).collect::<Vec<_>>());
    if record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY) {
        let inline = image.get(record.inline_data_range()).unwrap_or_default();
        let len = usize::try_from(record.size).unwrap_or(usize::MAX).min(inline.len());
        fields.put("inline", Detail::Bytes(inline.get(..len).unwrap_or_default().to_vec()));
        return;
    }
    let mut shown = Shown::default();
    walk(volume, ino, (record, image), &mut shown);
    shown.flush();
    fields.put("extents", shown.extents);
    if !shown.faults.is_empty() {
        fields.put("errors", shown.faults);
    }
}

/// What a walk shows: nodes, and pointers as extents.
#[derive(Default)]
struct Shown {
    nodes: Vec<Fields>,
    extents: Vec<Fields>,
    faults: Vec<Fields>,
    /// First file block, address, length.
    run: Option<(u64, BlockAddr, u64)>,
}

impl Shown {
    fn flush(&mut self) {
        let Some((start, addr, len)) = self.run.take() else { return };
        if self.extents.len() >= MOST {
            return;
        }
        let mut one = Fields::new().with("start", start).with("len", len);
        match addr {
            BlockAddr::NEW => one.put("block", "new"),
            BlockAddr::COMPRESS => one.put("block", "compress"),
            addr => one.put("block", addr.get()),
        }
        self.extents.push(one);
    }
}

impl Visitor for Shown {
    fn node(&mut self, below: Below, addr: BlockAddr) {
        if self.nodes.len() < MOST {
            let kind = NodeKind::at(below.offset).map_or("unknown", kind_name);
            self.nodes.push(
                Fields::new()
                    .with("nid", below.nid.get())
                    .with("ofs", below.offset)
                    .with("kind", kind)
                    .with("block", addr.get()),
            );
        }
    }

    fn pointer(&mut self, pointer: Pointer) {
        if let Some((start, addr, len)) = &mut self.run {
            let goes_on = start.saturating_add(*len) == pointer.block;
            let behind = u64::from(addr.get()).saturating_add(*len);
            let next = if addr.is_address() {
                pointer.addr.is_address() && behind == u64::from(pointer.addr.get())
            } else {
                *addr == pointer.addr && *addr != BlockAddr::COMPRESS
            };
            if goes_on && next {
                *len = len.saturating_add(1);
                return;
            }
        }
        self.flush();
        self.run = Some((pointer.block, pointer.addr, 1));
    }

    fn fault(&mut self, below: Below, what: String) {
        if self.faults.len() < MOST {
            self.faults.push(
                Fields::new()
                    .with("nid", below.nid.get())
                    .with("ofs", below.offset)
                    .with("error", what),
            );
        }
    }
}

const fn kind_name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Inode => "inode",
        NodeKind::Direct => "direct",
        NodeKind::Indirect => "indirect",
        NodeKind::DoubleIndirect => "double indirect",
        NodeKind::Xattr => "xattr",
    }
}

fn sound(volume: &RawVolume, ino: Nid) -> Result<(BlockAddr, cairn_cache::block::Image, Inode)> {
    volume.inode(ino).map_err(|why| Error::Option(format!("{why}: look at it with `inode`")))
}

/// The nodes of an inode, and its contents as extents.
///
/// # Errors
/// The inode is damaged.
pub(super) fn nodes(volume: &RawVolume, ino: Nid) -> Result<Fields> {
    let (addr, image, record) = sound(volume, ino)?;
    let mut shown = Shown::default();
    shown.node(Below { nid: ino, ino, offset: 0 }, addr);
    if !record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY) {
        walk(volume, ino, (&record, &image), &mut shown);
        shown.flush();
    }
    if !record.xattr_nid.is_none() {
        let below = Below { nid: record.xattr_nid, ino, offset: XATTR_OFFSET };
        match volume.node(record.xattr_nid) {
            Ok((addr, _)) => shown.node(below, addr),
            Err(why) => shown.fault(below, why),
        }
    }
    let mut fields = Fields::new()
        .with("inode", ino.get())
        .with("i_size", record.size)
        .with("nodes", shown.nodes)
        .with("extents", shown.extents);
    if !shown.faults.is_empty() {
        fields.put("errors", shown.faults);
    }
    Ok(fields)
}

/// The attributes of an inode.
///
/// # Errors
/// The inode or they are damaged.
pub(super) fn xattrs(volume: &RawVolume, ino: Nid) -> Result<Fields> {
    let (_, image, record) = sound(volume, ino)?;
    let mut fields = Fields::new().with("inode", ino.get());
    let mut area = image.get(record.inline_xattr_range()).unwrap_or_default().to_vec();
    fields.put("inline_bytes", area.len());
    if !record.xattr_nid.is_none() {
        fields.put("i_xattr_nid", record.xattr_nid.get());
        match volume.node(record.xattr_nid) {
            Ok((_, node)) => {
                area.extend_from_slice(node.get(..NODE_BYTES.min(BLOCK_SIZE)).unwrap_or_default());
            }
            Err(why) => fields.put("error", why),
        }
    }
    let list = xattr::decode(&area, ino)?;
    let shown: Vec<Fields> = list
        .into_iter()
        .map(|one| {
            let name = one.full_name();
            let name =
                name.unwrap_or_else(|| [format!("{}:", one.index).as_bytes(), &one.name].concat());
            Fields::new()
                .with("name", Detail::Name(name))
                .with("e_name_index", one.index)
                .with("size", one.value.len())
                .with("value", Detail::Name(one.value))
        })
        .collect();
    fields.put("xattrs", shown);
    Ok(fields)
}
