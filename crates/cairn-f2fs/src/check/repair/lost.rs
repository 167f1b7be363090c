//! Nodes that the NAT does not lead to, found where they are.
//!
//! Each node's footer names it. A node that is missing is looked for at the address of its entry,
//! and then in all blocks that the SIT calls used and that nothing leads to.
//!
//! Old versions of nodes stay in the log. The SIT tells them from the present ones. Where its entry
//! is impossible, a block may be either: it is the present one if something refers to the node and
//! there is no other block of it; else what the node had later may be lost.

use std::collections::{BTreeMap, BTreeSet};

use cairn_check::repair::Step;
use cairn_check::{Finding, Place, Value};

use super::super::claims::Use;
use super::super::kinds;
use super::edit::{Edit, ino_of, nid_of};
use crate::error::Result;
use crate::format::NatEntry;
use crate::format::layout::Layout;
use crate::format::node::NodeFooter;
use crate::format::units::{BlockAddr, Nid, SegNo};

/// Where an inode has the time of its last change.
const CTIME_AT: usize = 40;
/// What a node loses that was found in one of several blocks.
const OLDER: &str = "what the node had later, if this block is an old one";

/// Nodes that are looked for, and the inodes whose node each may be: what refers to it and a wrong
/// entry of the NAT may name different ones. Any, if there are none.
type Wanted = BTreeMap<Nid, BTreeSet<Nid>>;

impl Edit<'_> {
    /// Sets the NAT's entries of nodes that were found. False if there are none.
    pub(super) fn find_nodes(&mut self, findings: &[Finding]) -> Result<bool> {
        let mut wanted = Wanted::new();
        for (nid, ino) in findings.iter().filter_map(wanted_of) {
            wanted.entry(nid).or_default().extend(ino);
        }
        wanted.retain(|nid, _| self.layout.is_nid(*nid));
        let mut found = self.find_at_entries(&mut wanted)?;
        self.find_swapped(&mut wanted, &mut found)?;
        let mut doubtful = BTreeMap::new();
        if !wanted.is_empty() {
            for (nid, list) in self.scan(&wanted)? {
                let is_referred_to = wanted.get(&nid).is_some_and(|inos| !inos.is_empty());
                let Some(newest) = list.iter().max_by_key(|one| one.age()) else { continue };
                let is_sure = match newest.is_marked {
                    true => true,
                    false => list.len() == 1 && is_referred_to,
                };
                let place = (newest.addr, newest.footer);
                if is_sure { &mut found } else { &mut doubtful }.insert(nid, place);
            }
        }
        let doubted = self.doubted(findings);
        found.retain(|nid, _| !doubted.contains(&block_of(*nid)));
        let present = self.take_present(findings, &doubted)?;
        let mut changed = !present.is_empty();
        found.retain(|nid, _| !present.contains(nid));
        doubtful.retain(|nid, _| !present.contains(nid));
        let strays = self.strays(findings)?;
        for (nid, (finding, addr, footer)) in &strays {
            if found.contains_key(nid) || doubtful.contains_key(nid) {
                continue;
            }
            let version = self.entry(*nid)?.version;
            self.set_entry(*nid, NatEntry { version, ino: footer.ino, block_addr: *addr });
            self.mended(finding);
            self.keeps_counts = true;
            changed = true;
        }
        if !self.scope.allows(&kinds::NAT_LOST) {
            doubtful.clear();
        }
        let is_doubtful: BTreeSet<Nid> = doubtful.keys().copied().collect();
        found.extend(doubtful);
        for (nid, (addr, footer)) in found {
            let old = self.entry(nid)?;
            let new = NatEntry { version: old.version, ino: footer.ino, block_addr: addr };
            if new == old || !self.layout.is_nid(footer.ino) {
                continue;
            }
            self.set_entry(nid, new);
            self.keeps_counts |= strays.contains_key(&nid);
            let place = Place::node(nid.get()).of_inode(footer.ino.get()).at_block(addr.get());
            match is_doubtful.contains(&nid) {
                true => self.lost((&kinds::NAT_LOST, place), footer.ino, OLDER),
                false => self.steps.add(Step::new(&kinds::NAT_ADDRESS, place)),
            }
            changed = true;
        }
        changed |= self.take_newer(findings)?;
        if !changed {
            changed = self.list_lost(findings);
        }
        Ok(changed)
    }

    /// Nodes at the addresses of their own entries.
    fn find_at_entries(
        &self,
        wanted: &mut Wanted,
    ) -> Result<BTreeMap<Nid, (BlockAddr, NodeFooter)>> {
        let mut found = BTreeMap::new();
        for (nid, inos) in wanted.clone() {
            let addr = self.entry(nid)?.block_addr;
            if self.layout.in_main(addr)
                && let Some(footer) = self.footer(addr)?
                && footer.nid == nid
                && is_of(&footer, &inos)
            {
                wanted.remove(&nid);
                found.insert(nid, (addr, footer));
            }
        }
        Ok(found)
    }

    /// Nodes at the addresses of others that are looked for, too.
    fn find_swapped(
        &self,
        wanted: &mut Wanted,
        found: &mut BTreeMap<Nid, (BlockAddr, NodeFooter)>,
    ) -> Result<()> {
        for nid in wanted.keys().copied().collect::<Vec<_>>() {
            let addr = self.entry(nid)?.block_addr;
            if self.layout.in_main(addr)
                && let Some(footer) = self.footer(addr)?
                && wanted
                    .get(&footer.nid)
                    .is_some_and(|inos| !inos.is_empty() && is_of(&footer, inos))
            {
                wanted.remove(&footer.nid);
                found.insert(footer.nid, (addr, footer));
            }
        }
        Ok(())
    }

    /// The blocks of the NAT with an entry that is a doubt, as long as that stays. Their other
    /// entries stay, too: those that are wrong show that the block is an old one.
    fn doubted(&self, findings: &[Finding]) -> BTreeSet<u32> {
        let kind = &kinds::NAT_DOUBT;
        let doubts = findings.iter().filter(|found| found.kind.code == kind.code);
        let doubts = doubts.filter(|_| !self.scope.allows(kind));
        doubts.filter_map(|found| nid_of(&found.place)).map(block_of).collect()
    }

    /// Leads the NAT to the present version of nodes of which it has an older one.
    fn take_present(
        &mut self,
        findings: &[Finding],
        doubted: &BTreeSet<u32>,
    ) -> Result<BTreeSet<Nid>> {
        let kind = &kinds::NAT_ADDRESS;
        let mut taken = BTreeSet::new();
        for finding in findings.iter().filter(|found| found.kind.code == kind.code) {
            let addr = finding.place.block.and_then(|block| u32::try_from(block).ok());
            let Some(addr) = addr.map(BlockAddr) else { continue };
            let Some(NodeFooter { nid, ino, .. }) = self.footer(addr)? else { continue };
            if doubted.contains(&block_of(nid)) {
                continue;
            }
            let version = self.entry(nid)?.version;
            self.set_entry(nid, NatEntry { version, ino, block_addr: addr });
            self.mended(finding);
            taken.insert(nid);
        }
        Ok(taken)
    }

    /// Leads the NAT to newer versions of nodes, as far as they can be read. Those that cannot are
    /// only listed: the next tables call the blocks of the older ones used.
    fn take_newer(&mut self, findings: &[Finding]) -> Result<bool> {
        let kind = &kinds::NAT_DOUBT;
        let doubts = findings.iter().filter(|found| found.kind.code == kind.code);
        let doubts: Vec<&Finding> = doubts.filter(|_| self.scope.allows(kind)).collect();
        let mut is_taken = false;
        let mut others = Vec::new();
        for finding in doubts {
            let Some((nid, ino)) = nid_of(&finding.place).zip(ino_of(&finding.place)) else {
                continue;
            };
            let addr = finding.place.block.and_then(|block| u32::try_from(block).ok());
            let Some(addr) = addr.map(BlockAddr) else { continue };
            let footer = self.footer(addr)?;
            if footer.is_some_and(|footer| (footer.nid, footer.ino) == (nid, ino)) {
                let version = self.entry(nid)?.version;
                self.set_entry(nid, NatEntry { version, ino, block_addr: addr });
                self.lost((kind, finding.place.clone()), ino, "what its older version had");
                is_taken = true;
            } else {
                others.push((finding, ino));
            }
        }
        // The tables are written without these entries.
        if !self.nat.is_empty() {
            return Ok(is_taken);
        }
        for (finding, ino) in &others {
            self.lost((kind, finding.place.clone()), *ino, "what its newer version had");
            self.has_tables = true;
        }
        Ok(!others.is_empty())
    }

    /// The nodes that only the NAT lacks, as far as it may get them back.
    fn strays<'f>(
        &self,
        findings: &'f [Finding],
    ) -> Result<BTreeMap<Nid, (&'f Finding, BlockAddr, NodeFooter)>> {
        let mut strays = BTreeMap::new();
        let kind = &kinds::NAT_LOST;
        for finding in findings.iter().filter(|found| found.kind.code == kind.code) {
            let addr = finding.place.block.and_then(|block| u32::try_from(block).ok());
            let Some(addr) = addr.map(BlockAddr).filter(|_| self.scope.allows(kind)) else {
                continue;
            };
            if let Some(footer) = self.footer(addr)? {
                strays.insert(footer.nid, (finding, addr, footer));
            }
        }
        Ok(strays)
    }

    /// Lists nodes of which nothing is left. With the next checkpoint they are no longer counted.
    fn list_lost(&mut self, findings: &[Finding]) -> bool {
        let kind = &kinds::NODE_LOST;
        let lost = findings.iter().filter(|found| found.kind.code == kind.code);
        let lost: Vec<&Finding> = lost.filter(|_| self.scope.allows(kind)).collect();
        for finding in &lost {
            let nid = nid_of(&finding.place).unwrap_or_default();
            self.lost((kind, finding.place.clone()), nid, "the node; nothing of it is left");
            self.has_tables = true;
        }
        !lost.is_empty()
    }

    fn footer(&self, addr: BlockAddr) -> Result<Option<NodeFooter>> {
        let footer = NodeFooter::read(&self.read(addr.get().into())?);
        Ok(self.layout.is_nid(footer.ino).then_some(footer))
    }

    /// The blocks of wanted nodes, among those that may be in use and that nothing leads to.
    fn scan(&self, wanted: &Wanted) -> Result<BTreeMap<Nid, Vec<Candidate>>> {
        let mut found: BTreeMap<Nid, Vec<Candidate>> = BTreeMap::new();
        let checkpoint = &self.context.volume.loaded.checkpoint;
        for segno in (0..self.layout.main_segments).map(SegNo) {
            let entry = self.sit_entry(segno)?;
            let is_node = entry.as_ref().is_none_or(|entry| entry.log.is_node());
            if !is_node && !self.context.claims.has(segno, Use::Node) {
                continue;
            }
            let is_marked = entry.is_some();
            let used = entry.map_or([u8::MAX; _], |entry| entry.valid_map);
            for addr in self.context.claims.left(&self.layout, segno, &used) {
                let image = self.read(addr.get().into())?;
                let footer = NodeFooter::read(&image);
                if !self.layout.is_nid(footer.ino)
                    || !wanted.get(&footer.nid).is_some_and(|inos| is_of(&footer, inos))
                {
                    continue;
                }
                // What was written behind the checkpoint is none of its nodes.
                if !is_marked && checkpoint.is_node_version(footer.cp_ver) {
                    continue;
                }
                let ctime = if footer.is_inode() { ctime_of(&image) } else { 0 };
                let candidate = Candidate { addr, footer, ctime, is_marked };
                found.entry(footer.nid).or_default().push(candidate);
            }
        }
        Ok(found)
    }
}

/// A block of a node that is looked for.
struct Candidate {
    addr: BlockAddr,
    footer: NodeFooter,
    ctime: u64,
    /// The SIT calls the block used.
    is_marked: bool,
}

impl Candidate {
    /// Of two blocks, the newer one is larger; of the same age, the one that the SIT knows.
    fn age(&self) -> (u64, u64, bool, BlockAddr) {
        (self.footer.cp_ver & u64::from(u32::MAX), self.ctime, self.is_marked, self.addr)
    }
}

/// The block of the NAT with the entry of a node.
fn block_of(nid: Nid) -> u32 {
    Layout::nat_place(nid).0
}

fn ctime_of(image: &[u8]) -> u64 {
    let bytes = image.get(CTIME_AT..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Is it the footer of a node of one of these inodes, if they are known?
fn is_of(footer: &NodeFooter, inos: &BTreeSet<Nid>) -> bool {
    inos.is_empty() || inos.contains(&footer.ino)
}

/// The node that a finding misses, and the inode whose node it is.
fn wanted_of(finding: &Finding) -> Option<(Nid, Option<Nid>)> {
    let code = finding.kind.code;
    let nid = nid_of(&finding.place);
    if code == kinds::DIRECTORY_TARGET.code {
        let Some(Value::Number(ino)) = finding.stored else { return None };
        let ino = Nid(u32::try_from(ino).ok()?);
        return Some((ino, Some(ino)));
    }
    if code == kinds::ROOT.code {
        return Some((Nid::ROOT, Some(Nid::ROOT)));
    }
    // The superblock names it.
    if code == kinds::QUOTA.code {
        let ino = ino_of(&finding.place)?;
        return Some((ino, Some(ino)));
    }
    if code == kinds::NODE_MISSING.code || code == kinds::NODE_FOOTER.code {
        return Some((nid?, ino_of(&finding.place)));
    }
    let is_any = code == kinds::NAT_ENTRY.code || code == kinds::NAT_UNREACHABLE.code;
    is_any.then(|| nid.map(|nid| (nid, None))).flatten()
}
