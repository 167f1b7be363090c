//! Writes an image as a qcow2 disk, from front to back.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use cairn_images::qcow2::{PACKED_CLUSTER, packed_head};

use crate::error::{Error, Result};
use crate::extents::next_data;

/// Writes the first `size` bytes of `image`. The bytes of the disk decide what is written, not the
/// holes of the file.
///
/// # Errors
/// The file cannot be read, or `to`, which is called `name`, not written.
pub(crate) fn write(image: &File, size: u64, to: &mut dyn Write, name: &Path) -> Result<()> {
    let failed = |error| Error::host(name, error);
    let mut cluster = Cluster { image, size, bytes: Vec::new() };
    let mut filled = Vec::new();
    let mut next = 0;
    while let Some(data) = next_data(image, next * PACKED_CLUSTER, size).map_err(failed)? {
        next = next.max(data.start / PACKED_CLUSTER);
        while next * PACKED_CLUSTER < data.end {
            if cluster.read(next).map_err(failed)?.iter().any(|byte| *byte != 0) {
                filled.push(next);
            }
            next += 1;
        }
    }
    let head = packed_head(size, &filled).map_err(|error| Error::Usage(error.to_string()))?;
    let mut to = BufWriter::with_capacity(1 << 20, to);
    to.write_all(&head).map_err(failed)?;
    for number in filled {
        to.write_all(cluster.read(number).map_err(failed)?).map_err(failed)?;
    }
    to.flush().map_err(failed)
}

/// Reads clusters, the last one with zeros behind the end.
struct Cluster<'a> {
    image: &'a File,
    size: u64,
    bytes: Vec<u8>,
}

impl Cluster<'_> {
    fn read(&mut self, number: u64) -> std::io::Result<&[u8]> {
        let at = number * PACKED_CLUSTER;
        let len = self.size.saturating_sub(at).min(PACKED_CLUSTER);
        self.bytes.clear();
        self.bytes.resize(PACKED_CLUSTER as usize, 0);
        let part = self.bytes.get_mut(..len as usize).unwrap_or_default();
        self.image.read_exact_at(part, at)?;
        Ok(&self.bytes)
    }
}
