//! [`resize`]: a larger disk.

use std::sync::Arc;

use cairn_block::BlockDevice;

use super::clear::Clearing;
use super::error::{Error, Result};
use super::format::header::MOST_L1;
use super::header_io;
use super::host::index;
use super::image::Image;
use super::open::{self, Options};

/// Makes the disk of the image that `device` holds `size` bytes large. The new part reads as zeros,
/// also where the backing file is longer than the disk was. After a power cut the disk has the old
/// size or the new one.
///
/// # Errors
/// [`Error::Refused`] for a smaller disk, one that is too large, or one of version 2 with
/// snapshots, which have no size of their own; else as [`super::open`].
pub fn resize(device: Arc<dyn BlockDevice>, size: u64, options: &Options<'_>) -> Result<()> {
    let options = Options { write: true, ..*options };
    let image = open::image(device.clone(), &options)?;
    let (old, cluster) = (image.header.size, image.cluster());
    check(&image, size)?;
    let entries = size.div_ceil(cluster * cluster / 8);
    if entries > u64::from(image.header.l1_entries) {
        image.move_l1(entries)?;
    }
    // The header has changed.
    drop(image);
    let image = open::image(device, &options)?;
    let below = image.backing.as_ref().map_or(0, |backing| backing.geometry().size);
    if below > old {
        image.clear(old..below.min(size), Clearing::Zero)?;
    }
    image.flush()?;
    header_io::change(&image.host, |header| header.size = size.into())?;
    Ok(image.host.flush()?)
}

fn check(image: &Image, size: u64) -> Result<()> {
    let (header, cluster) = (&image.header, image.cluster());
    let refused = |why: String| Err(Error::Refused(why));
    if size < header.size {
        return refused(format!(
            "the disk has {} bytes, and does not shrink to {size}: use qemu-img resize --shrink",
            header.size
        ));
    }
    if size.div_ceil(cluster * cluster / 8) * 8 > MOST_L1 || i64::try_from(size).is_err() {
        return refused(format!(
            "a disk of {size} bytes is too large for clusters of {cluster}: convert it to one with \
             larger ones"
        ));
    }
    if header.version < 3 && header.snapshots > 0 {
        let why = "a qcow2 image of version 2 with snapshots keeps its size: make it one of \
            version 3 with qemu-img amend -o compat=1.1";
        return refused(why.to_owned());
    }
    Ok(())
}

impl Image {
    /// Copies the L1 table to a place with room for `entries`.
    fn move_l1(&self, entries: u64) -> Result<()> {
        let (old, cluster) = (self.header.l1_offset, self.cluster());
        let old_len = u64::from(self.header.l1_entries) * 8;
        let clusters = (entries * 8).div_ceil(cluster);
        let mut writer = self.writer()?;
        let place = writer.refcounts.extend(clusters)? * cluster;
        let mut table = self.host.read(old, old_len)?.to_vec();
        table.resize(index(clusters * cluster), 0);
        self.host.write(place, table.into())?;
        // The refcounts, with the table.
        self.flush_as(&mut writer)?;
        header_io::change(&self.host, |header| {
            header.l1_table_offset = place.into();
            header.l1_size = u32::try_from(entries).expect("at most 32 MiB of table").into();
        })?;
        self.host.flush()?;
        writer.freed.extend(old / cluster..(old + old_len).div_ceil(cluster));
        self.release_left(&mut writer)
    }
}
