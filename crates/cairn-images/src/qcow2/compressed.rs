//! Compressed clusters.

use std::sync::Arc;

#[cfg(feature = "compression")]
use flate2::{Decompress, FlushDecompress};

use super::error::{Damage, Result, What};
use super::format::header::Compression;
use super::host::index;
use super::image::Image;
use crate::zstd_frame;

/// The largest window of zstd that is taken, as a power of two: four times the largest cluster.
const WINDOW_LOG: u32 = 23;

impl Image {
    /// The cluster whose compressed bytes are the `len` at `host`, of which the file may end before
    /// the last.
    pub(super) fn decode(&self, host: u64, len: u64) -> Result<Arc<[u8]>> {
        if let Some(known) = self.decoded.lock().get(host) {
            return Ok(known);
        }
        let end = self.host.len();
        if host >= end {
            return Err(Damage::Beyond { what: What::Compressed, offset: host, len, end }.into());
        }
        let packed = self.host.read(host, len.min(end - host))?;
        let cluster = index(self.cluster());
        let decoded = match self.header.compression {
            Compression::Zlib => inflate(&packed, cluster),
            Compression::Zstd => zstd_frame::decode(&packed, cluster, WINDOW_LOG),
        };
        let failed = |reason| Damage::Compressed { offset: host, len, reason };
        let decoded: Arc<[u8]> = decoded.map_err(failed)?.into();
        self.decoded.lock().put(host, decoded.clone());
        Ok(decoded)
    }
}

#[cfg(not(feature = "compression"))]
fn inflate(_: &[u8], _: usize) -> Result<Vec<u8>, String> {
    Err(zstd_frame::MISSING.into())
}

/// Decodes raw deflate, which gives exactly `cluster` bytes.
#[cfg(feature = "compression")]
fn inflate(packed: &[u8], cluster: usize) -> Result<Vec<u8>, String> {
    let mut out = vec![0; cluster];
    let mut state = Decompress::new(false);
    // Its bytes end with the sector, not with the stream.
    let done = state.decompress(packed, &mut out, FlushDecompress::Finish);
    done.map_err(|error| error.to_string())?;
    match state.total_out() {
        got if got == cluster as u64 => Ok(out),
        got => Err(format!("it gives {got} bytes instead of {cluster}")),
    }
}

#[cfg(all(test, feature = "compression"))]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn only_a_whole_cluster_is_taken() {
        let mut packed =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&[7; 4096]).unwrap();
        let mut packed = packed.finish().unwrap();
        packed.extend([0xff; 40]);
        assert_eq!(inflate(&packed, 4096).unwrap(), [7; 4096]);
        assert!(inflate(&packed, 8192).unwrap_err().contains("4096 bytes instead of 8192"));
        assert!(inflate(&[0xff; 100], 4096).is_err());
    }
}
