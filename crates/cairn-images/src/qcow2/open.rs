//! [`open`]: from the device that holds an image to the disk.

use std::sync::Arc;

use cairn_block::{BlockDevice, ErrorKind};

use super::device::Qcow2;
use super::error::{Error, Result, What};
use super::format::header::{self, Header, V3_LEN};
use super::header_io;
use super::host::Host;
use super::image::Image;
use super::metadata::Metadata;
use super::refcounts::Refcounts;
use super::snapshots;
use super::tables::Tables;

/// Images that may back each other.
pub const MOST_IMAGES: u32 = 64;

/// The backing file as an image names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingName {
    /// Its path; a relative one begins in the folder of the image.
    pub name: String,
    /// Its format, as QEMU calls it (`raw`, `qcow2`), if the image says so. Without it the format
    /// follows from the contents.
    pub format: Option<String>,
    /// For [`Options::depth`], if it is a qcow2 image.
    pub depth: u32,
}

/// How to open an image.
pub struct Options<'a> {
    /// To write it, too. It is changed at once only where the format demands that.
    pub write: bool,
    /// Opens a backing file, for reading.
    pub backing: &'a dyn Fn(&BackingName) -> cairn_block::Result<Arc<dyn BlockDevice>>,
    /// Images that this one backs, one by the other: 0, or [`BackingName::depth`].
    pub depth: u32,
}

/// Opens the disk in the image that `device` holds. If it is to be written, the device should be
/// [growable](BlockDevice::as_growable); else the image cannot become larger than it.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Unsupported`]; [`Error::Backing`] and [`Error::Chain`] of what is
/// below; [`Error::Refused`] to write what is marked as damaged; [`Error::Device`].
pub fn open(device: Arc<dyn BlockDevice>, options: &Options<'_>) -> Result<Qcow2> {
    image(device, options).map(Qcow2::new)
}

pub(super) fn image(device: Arc<dyn BlockDevice>, options: &Options<'_>) -> Result<Image> {
    if options.depth >= MOST_IMAGES {
        return Err(Error::Chain(options.depth));
    }
    let host = Arc::new(Host::new(device));
    let header = read_header(&host)?;
    if options.write {
        refuse_writing(&host, &header)?;
    }
    let backing = backing(&header, options)?;
    let metadata = Arc::new(Metadata::new());
    let tables = Tables::load(host.clone(), &header)?;
    let refcounts = if options.write {
        claim(&host, &header, &metadata, &tables)?;
        Some(Refcounts::load(host.clone(), metadata.clone(), &header)?)
    } else {
        None
    };
    let image = Image::new(host, header, backing, metadata, tables, refcounts);
    if options.write {
        image.settle()?;
    }
    Ok(image)
}

pub(super) fn read_header(host: &Host) -> Result<Header> {
    let head = host.read(0, V3_LEN as u64)?;
    let bytes = host.read(0, header::cluster_of(&head)?)?;
    let header = header::decode(&bytes, host.len())?;
    let (unit, cluster) = (u64::from(host.device().geometry().logical_block), header.cluster());
    if unit > cluster {
        return Err(Error::Refused(format!(
            "the qcow2 image has clusters of {cluster} bytes, and its device blocks of {unit}: \
             convert it to one with larger clusters"
        )));
    }
    Ok(header)
}

fn refuse_writing(host: &Host, header: &Header) -> Result<()> {
    if host.device().geometry().read_only {
        let why = "the device that holds the qcow2 image is read-only: open the image read-only";
        return Err(cairn_block::Error::new(ErrorKind::ReadOnly, "open", why).into());
    }
    if header.is_corrupt() {
        let why = "the qcow2 image is marked as damaged: repair it with qemu-img check -r all, or \
            open it read-only";
        return Err(Error::Refused(why.to_owned()));
    }
    Ok(())
}

fn backing(header: &Header, options: &Options<'_>) -> Result<Option<Arc<dyn BlockDevice>>> {
    let Some((name, format)) = &header.backing else { return Ok(None) };
    if name.starts_with("json:") {
        let what = format!("names its backing file by options, {name:?}");
        return Err(Error::unsupported(
            what,
            "give its path with qemu-img rebase -u -F FORMAT -b NAME IMAGE",
        ));
    }
    let path = name.strip_prefix("file:").unwrap_or(name).to_owned();
    let wanted = BackingName { name: path, format: format.clone(), depth: options.depth + 1 };
    (options.backing)(&wanted).map(Some).map_err(|source| Error::backing(name, source))
}

/// Learns where the tables are. Tables that overlap would be overwritten one by the other.
fn claim(host: &Host, header: &Header, metadata: &Metadata, tables: &Tables) -> Result<()> {
    let cluster = header.cluster();
    metadata.claim(What::Header, 0, cluster, cluster)?;
    metadata.claim(What::L1, header.l1_offset, u64::from(header.l1_entries) * 8, cluster)?;
    for offset in tables.l2_offsets() {
        metadata.claim(What::L2, offset?, cluster, cluster)?;
    }
    let (snapshots, len) = snapshots::list(host, header)?;
    metadata.claim(What::Snapshots, header.snapshots_offset, len, cluster)?;
    for one in snapshots {
        let len = u64::from(one.l1_entries) * 8;
        metadata.claim(What::SnapshotL1, one.l1_offset, len, cluster)?;
    }
    Ok(())
}

impl Image {
    /// Before the first write: marks that only hold while nothing changes go, and refcounts that
    /// were not kept are counted.
    fn settle(&self) -> Result<()> {
        if self.header.is_dirty() {
            self.rebuild()?;
        }
        if self.header.is_dirty() || self.header.autoclear != 0 {
            header_io::change(&self.host, |raw| {
                let still = raw.incompatible_features.get() & !header::DIRTY;
                raw.incompatible_features = still.into();
                raw.autoclear_features = 0.into();
            })?;
            self.host.flush()?;
        }
        Ok(())
    }
}
