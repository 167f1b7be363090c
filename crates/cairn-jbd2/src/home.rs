//! Writes blocks to their home locations, in large sorted batches.

use bytes::Bytes;
use cairn_base::Pba;
use cairn_block::{Batch, BlockDevice, Durability, Request, Result};
use cairn_cache::block::Image;

/// Most blocks of a batch.
const BATCH: usize = 1024;

/// Writes blocks, which are in order of address. Contiguous blocks share a request. Does not flush.
pub(crate) fn write(
    device: &dyn BlockDevice,
    block_size: u32,
    blocks: impl Iterator<Item = (Pba, Image)>,
) -> Result<()> {
    let mut requests: Vec<Request> = Vec::new();
    let mut in_batch = 0;
    let mut next = None;
    for (pba, image) in blocks {
        if in_batch == BATCH {
            submit(device, std::mem::take(&mut requests))?;
            (in_batch, next) = (0, None);
        }
        let image = Bytes::from_owner(image);
        match requests.last_mut() {
            Some(Request::Write { bufs, .. }) if next == Some(pba) => bufs.push(image),
            _ => requests.push(Request::Write {
                offset: pba.get() * u64::from(block_size),
                bufs: vec![image],
            }),
        }
        next = Some(Pba(pba.get() + 1));
        in_batch += 1;
    }
    if requests.is_empty() { Ok(()) } else { submit(device, requests) }
}

fn submit(device: &dyn BlockDevice, requests: Vec<Request>) -> Result<()> {
    device.submit(Batch { requests, durability: Durability::default() }).wait().map(drop)
}
