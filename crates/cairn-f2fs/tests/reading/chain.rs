//! A writer of chains of fsynced nodes.

use std::sync::Arc;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::F2fs;
use cairn_f2fs::format::node::Marks;
use cairn_f2fs::format::units::{BLOCK_SIZE, BlockAddr, Nid};
use cairn_f2fs::format::{Checkpoint, Layout, Log, NodeFooter};

use crate::support::open;

/// An image, and a writer of the chain behind its checkpoint.
pub struct Chain {
    pub device: Arc<MemoryDevice>,
    pub layout: Layout,
    pub checkpoint: Checkpoint,
    pub next: BlockAddr,
    /// The address of data, far from all blocks in use.
    data: u32,
}

impl Chain {
    /// Starts after the checkpoint of a valid image.
    pub fn new(device: Arc<MemoryDevice>) -> Self {
        let volume = open(device.clone()).unwrap();
        let disk = volume.disk();
        let (layout, checkpoint) = (*disk.layout, disk.checkpoint.checkpoint.clone());
        let warm = checkpoint.log(Log::WarmNode);
        let data = layout.main + (layout.main_segments - 3) * 512;
        Self { device, layout, checkpoint, next: layout.address(warm.segno, warm.blkoff), data }
    }

    /// Appends a node to the chain.
    pub fn node(
        &mut self,
        mut block: Vec<u8>,
        nid: u32,
        ino: u32,
        offset: u32,
        marks: Marks,
    ) -> BlockAddr {
        let at = self.next;
        self.next = BlockAddr(at.get() + 1);
        let footer = NodeFooter {
            nid: Nid(nid),
            ino: Nid(ino),
            marks: marks | Marks::COLD,
            offset,
            cp_ver: self.checkpoint.node_version(),
            next_blkaddr: self.next,
        };
        footer.write(&mut block);
        self.device.write_at(at.bytes(), block).unwrap();
        at
    }

    /// A block of data, filled with one byte.
    pub fn data(&mut self, byte: u8) -> BlockAddr {
        self.block(vec![byte; BLOCK_SIZE])
    }

    /// A block of data.
    pub fn block(&mut self, bytes: Vec<u8>) -> BlockAddr {
        let addr = BlockAddr(self.data);
        self.data += 1;
        self.device.write_at(addr.bytes(), bytes).unwrap();
        addr
    }

    /// Opens the current image.
    pub fn open(&self) -> Arc<F2fs> {
        open(self.device.clone()).unwrap()
    }
}
