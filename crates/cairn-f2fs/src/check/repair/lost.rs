//! Nodes that the NAT does not lead to, found where they are.
//!
//! Each node's footer names it. A node that is missing is looked for at the address of its entry,
//! and then in all blocks that the SIT calls used and that nothing leads to.

use std::collections::BTreeMap;

use cairn_check::repair::Step;
use cairn_check::{Finding, Place, Value};

use super::super::claims::Use;
use super::super::kinds;
use super::edit::{Edit, ino_of, nid_of};
use crate::error::Result;
use crate::format::node::NodeFooter;
use crate::format::summary::ENTRIES;
use crate::format::units::{BlockAddr, Nid, SegNo};
use crate::format::{NatEntry, bits};

/// Nodes that are looked for, and the inode whose node each is.
type Wanted = BTreeMap<Nid, Option<Nid>>;

impl Edit<'_> {
    /// Sets the NAT's entries of nodes that were found. False if there are none.
    pub(super) fn find_nodes(&mut self, findings: &[Finding]) -> Result<bool> {
        let mut wanted: Wanted = findings.iter().filter_map(wanted).collect();
        wanted.retain(|nid, _| self.layout.is_nid(*nid));
        let mut found = BTreeMap::new();
        for (nid, ino) in wanted.clone() {
            let addr = self.entry(nid)?.block_addr;
            if self.layout.in_main(addr)
                && let Some(footer) = self.footer(addr)?
                && footer.nid == nid
            {
                wanted.remove(&nid);
                if is_of(&footer, ino) {
                    found.insert(nid, (addr, footer));
                }
            }
        }
        if !wanted.is_empty() {
            self.scan(&wanted, &mut found)?;
        }
        let strays = self.strays(findings)?;
        let mut changed = false;
        for (nid, (finding, addr, footer)) in &strays {
            if found.contains_key(nid) {
                continue;
            }
            let version = self.entry(*nid)?.version;
            self.set_entry(*nid, NatEntry { version, ino: footer.ino, block_addr: *addr });
            self.mended(finding);
            self.keeps_counts = true;
            changed = true;
        }
        for (nid, (addr, footer)) in found {
            let old = self.entry(nid)?;
            let new = NatEntry { version: old.version, ino: footer.ino, block_addr: addr };
            if new == old || !self.layout.is_nid(footer.ino) {
                continue;
            }
            self.set_entry(nid, new);
            self.keeps_counts |= strays.contains_key(&nid);
            let place = Place::node(nid.get()).of_inode(footer.ino.get()).at_block(addr.get());
            self.steps.add(Step::new(&kinds::NAT_ADDRESS, place));
            changed = true;
        }
        if !changed {
            changed = self.list_lost(findings);
        }
        Ok(changed)
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

    /// Goes through the blocks in use that nothing leads to. Of two blocks of a node, that with the
    /// later version counts.
    fn scan(
        &self,
        wanted: &Wanted,
        found: &mut BTreeMap<Nid, (BlockAddr, NodeFooter)>,
    ) -> Result<()> {
        for segno in (0..self.layout.main_segments).map(SegNo) {
            let claimed = self.context.claims.valid_map(segno);
            let entry = self.sit_entry(segno)?;
            let is_node = entry.as_ref().is_none_or(|entry| entry.log.is_node());
            if !is_node && !self.context.claims.has(segno, Use::Node) {
                continue;
            }
            let used = entry.map_or([u8::MAX; _], |entry| entry.valid_map);
            let left: Vec<u8> =
                used.iter().zip(claimed).map(|(used, claimed)| used & !claimed).collect();
            let mut from = 0;
            while let Some(offset) = bits::next_set(&left, from, ENTRIES) {
                from = offset.saturating_add(1);
                let offset = u16::try_from(offset).unwrap_or(0);
                let addr = self.layout.address(segno, offset);
                let Some(footer) = self.footer(addr)? else { continue };
                if !wanted.get(&footer.nid).is_some_and(|ino| is_of(&footer, *ino)) {
                    continue;
                }
                let later = found.get(&footer.nid).is_none_or(|(_, known)| {
                    footer.cp_ver & 0xffff_ffff > known.cp_ver & 0xffff_ffff
                });
                if later {
                    found.insert(footer.nid, (addr, footer));
                }
            }
        }
        Ok(())
    }
}

/// Is it the footer of a node of this inode, if that is known?
fn is_of(footer: &NodeFooter, ino: Option<Nid>) -> bool {
    ino.is_none_or(|ino| footer.ino == ino)
}

/// The node that a finding misses, and the inode whose node it is.
fn wanted(finding: &Finding) -> Option<(Nid, Option<Nid>)> {
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
    if code == kinds::NODE_MISSING.code || code == kinds::NODE_FOOTER.code {
        return Some((nid?, ino_of(&finding.place)));
    }
    let is_any = code == kinds::NAT_ENTRY.code || code == kinds::NAT_UNREACHABLE.code;
    is_any.then(|| nid.map(|nid| (nid, None))).flatten()
}
