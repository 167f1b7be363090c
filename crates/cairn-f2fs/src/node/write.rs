//! Writes nodes: allocates blocks in the right log, sets each footer to the next block, writes one
//! batch, and changes the NAT.
//!
//! Roll-forward follows the warm node log from footer to footer, so it finds a node only if all
//! nodes before it in the chain are on the device. Batches are allocated one after the other and
//! are numbered. An fsync returns only when every earlier batch is on the device, too. If one
//! fails, the chain is broken, and every later batch fails.

use std::sync::Arc;

use cairn_base::sabotage::Safeguard;
use cairn_block::Bytes;

use super::block::{Node, Owner};
use super::nodes::Nodes;
use crate::blocks::Writes;
use crate::error::Result;
use crate::format::node::Marks;
use crate::format::path::NodeKind;
use crate::format::{BlockAddr, Layout, Log, NatEntry, Nid, NodeFooter, inode};
use crate::segment;

/// How many nodes are written at once when memory is short.
const BATCH: usize = 512;

/// Nodes that have their addresses and are being written.
#[must_use = "fsyncs wait until these are written"]
pub(crate) struct PlacedNodes {
    number: u64,
    /// The references keep the nodes in memory: until they are written, the device has other blocks
    /// at their addresses.
    _nodes: Vec<Arc<Node>>,
}

impl Nodes {
    /// Writes nodes to their logs in the given order, with these marks besides the one that files
    /// have anyway, and waits. Does not flush the device. Nodes that were removed meanwhile are
    /// left out.
    ///
    /// The caller holds the operation lock, shared or exclusively, and no other thread writes the
    /// same nodes.
    ///
    /// # Errors
    /// No segment has room, or the device failed: the volume must stop, as the NAT names blocks
    /// that were not written.
    pub fn write(&self, nodes: &[(Arc<Node>, Marks)]) -> Result<()> {
        if nodes.is_empty() {
            return Ok(());
        }
        let mut writes = Writes::new();
        let (number, placed) = {
            let mut order = self.chain.order.lock();
            let number = *order;
            *order += 1;
            self.chain.in_flight.lock().batches.insert(number);
            (number, self.place_all(nodes, &mut writes))
        };
        let in_order = nodes.iter().any(|(_, marks)| marks.contains(Marks::FSYNC));
        let outcome = placed.and_then(|()| writes.write(&*self.device));
        let chain = self.chain.finish(number, outcome.is_ok(), in_order);
        outcome?;
        self.stats.chain_waits.add(chain?.into());
        Ok(())
    }

    /// Gives nodes their addresses without marks, and adds them to `writes`. A checkpoint does so
    /// with all dirty nodes. They stay in memory as long as the result does. The caller holds the
    /// operation lock exclusively, and reports when they are written ([`Nodes::written`]).
    ///
    /// # Errors
    /// No segment has room: the volume must stop.
    pub(crate) fn place_plain(
        &self,
        nodes: &[Arc<Node>],
        writes: &mut Writes,
    ) -> Result<PlacedNodes> {
        let mut order = self.chain.order.lock();
        let number = *order;
        *order += 1;
        self.chain.in_flight.lock().batches.insert(number);
        let placed = PlacedNodes { number, _nodes: nodes.to_vec() };
        match self.place_together(nodes, writes) {
            Ok(()) => Ok(placed),
            Err(error) => {
                drop(order);
                self.written(placed, false);
                Err(error)
            }
        }
    }

    /// Ends the write of nodes of [`Nodes::place_plain`]. If it failed, the chain is broken.
    pub(crate) fn written(&self, placed: PlacedNodes, good: bool) {
        // Threads that wait for this batch get the failure; the caller has it already.
        let _reported = self.chain.finish(placed.number, good, false);
    }

    /// Writes nodes without marks, a bounded number at a time. The caller holds the operation lock
    /// exclusively.
    ///
    /// # Errors
    /// As [`Nodes::write`].
    pub(crate) fn write_plain(&self, nodes: &[Arc<Node>]) -> Result<()> {
        nodes.chunks(BATCH).try_for_each(|part| {
            let mut writes = Writes::new();
            let placed = self.place_plain(part, &mut writes)?;
            let outcome = writes.write(&*self.device);
            let number = placed.number;
            drop(placed);
            let chain = self.chain.finish(number, outcome.is_ok(), false);
            outcome?;
            chain.map(drop)
        })
    }

    /// Gives all nodes their addresses. The caller holds the chain.
    fn place_all(&self, nodes: &[(Arc<Node>, Marks)], writes: &mut Writes) -> Result<()> {
        let mut rest = nodes;
        while let Some((first, _)) = rest.first() {
            let log = first.log();
            let same = rest.iter().take_while(|(node, _)| node.log() == log).count();
            let (run, others) = rest.split_at(same);
            self.place_run(log, run, writes)?;
            rest = others;
        }
        Ok(())
    }

    /// Nodes of one log.
    fn place_run(&self, log: Log, nodes: &[(Arc<Node>, Marks)], writes: &mut Writes) -> Result<()> {
        for (node, marks) in nodes {
            let mut image = node.begin_write();
            if node.is_retired() {
                continue;
            }
            let owner = segment::Owner { nid: node.nid(), ..segment::Owner::default() };
            let placed =
                self.room().segments.place(log, &[owner]).inspect_err(|_| node.mark_dirty())?;
            let footer = NodeFooter {
                nid: node.nid(),
                ino: node.ino(),
                marks: *marks | file_mark(node),
                offset: node.offset(),
                cp_ver: self.version(),
                next_blkaddr: placed.next,
            };
            seal(&mut image, &footer, node.kind(), &self.layout);
            writes.push(placed.address.pba(), Bytes::from_owner(image.pin()));
            self.moved(node, placed.address)?;
            self.stats.written.add(1);
            self.stats.marked.add(u64::from(marks.contains(Marks::FSYNC)));
        }
        Ok(())
    }

    /// Gives nodes that no other thread can change their addresses, many at a time. The caller
    /// holds the chain, and the operation lock exclusively.
    fn place_together(&self, nodes: &[Arc<Node>], writes: &mut Writes) -> Result<()> {
        let live: Vec<&Arc<Node>> = nodes.iter().filter(|node| !node.is_retired()).collect();
        for run in live.chunk_by(|one, next| one.log() == next.log()) {
            let owner =
                |node: &&Arc<Node>| segment::Owner { nid: node.nid(), ..Default::default() };
            let owners: Vec<_> = run.iter().map(owner).collect();
            let mut at = 0;
            while at < run.len() {
                let placed = self.room().segments.place(run[0].log(), &owners[at..])?;
                self.fill_places(&run[at..at + placed.count], placed, writes)?;
                at += placed.count;
            }
        }
        Ok(())
    }

    /// Seals nodes for the blocks that they were given.
    fn fill_places(
        &self,
        nodes: &[&Arc<Node>],
        placed: segment::Placed,
        writes: &mut Writes,
    ) -> Result<()> {
        let (first, end) = (placed.address.get(), placed.address.get() + nodes.len() as u32);
        let mut entries = Vec::with_capacity(nodes.len());
        let mut freed = Vec::with_capacity(nodes.len());
        for (addr, node) in (first..end).zip(nodes) {
            let mut image = node.begin_write();
            let next = if addr + 1 < end { BlockAddr(addr + 1) } else { placed.next };
            let footer = NodeFooter {
                nid: node.nid(),
                ino: node.ino(),
                marks: file_mark(node),
                offset: node.offset(),
                cp_ver: self.version(),
                next_blkaddr: next,
            };
            seal(&mut image, &footer, node.kind(), &self.layout);
            writes.push(BlockAddr(addr).pba(), Bytes::from_owner(image.pin()));
            let block_addr = BlockAddr(addr);
            entries.push((
                node.nid(),
                NatEntry { version: node.version(), ino: node.ino(), block_addr },
            ));
            if node.address() != BlockAddr::NULL {
                freed.push(node.address());
            }
            node.set_address(block_addr);
        }
        self.nat.set_all(&entries);
        self.room().segments.invalidate_all(&mut freed)?;
        self.stats.written.add(nodes.len() as u64);
        Ok(())
    }

    /// Records a node's new address.
    fn moved(&self, node: &Arc<Node>, addr: BlockAddr) -> Result<()> {
        let old = node.address();
        let entry = NatEntry { version: node.version(), ino: node.ino(), block_addr: addr };
        self.nat.set(node.nid(), entry);
        node.set_address(addr);
        if old != BlockAddr::NULL {
            self.room().segments.invalidate(old)?;
        }
        Ok(())
    }

    /// Numbers of the batches in flight: none after every write has ended.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn writes_under_way(&self) -> usize {
        self.chain.in_flight.lock().batches.len()
    }

    /// The dirty nodes of an inode with the marks of an fsync: on its last one, and `DENT` on the
    /// inode's own block if `entry` is asked for. As in Linux, every node of an fsync is marked;
    /// recovery uses the last.
    #[must_use]
    pub(crate) fn marked(&self, ino: Nid, entry: bool) -> Vec<(Arc<Node>, Marks)> {
        let dent = |node: &Node| {
            let is_first = entry && node.kind() == NodeKind::Inode;
            if is_first && !Safeguard::DentryMark.is_off() { Marks::DENT } else { Marks::empty() }
        };
        self.dirty_of(ino)
            .into_iter()
            .filter(|node| node.log() != Log::ColdNode)
            .map(|node| {
                let fsync =
                    if Safeguard::FsyncMark.is_off() { Marks::empty() } else { Marks::FSYNC };
                let marks = fsync | dent(&node);
                (node, marks)
            })
            .collect()
    }
}

fn file_mark(node: &Node) -> Marks {
    match node.owner() {
        Owner::Other => Marks::COLD,
        Owner::Directory => Marks::empty(),
    }
}

fn seal(image: &mut [u8], footer: &NodeFooter, kind: NodeKind, layout: &Layout) {
    footer.write(image);
    if kind == NodeKind::Inode {
        inode::seal(image, layout);
    }
}
