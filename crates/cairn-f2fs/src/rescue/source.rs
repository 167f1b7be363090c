//! Where nodes come from: the NAT, and if that leads nowhere, the newest version in the log.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_cache::block::Image;

use super::proof::{self, Judged};
use super::scan::{Scan, Version};
use crate::error::Result;
use crate::format::Inode;
use crate::format::units::{BlockAddr, Nid};
use crate::nat::Nat;
use crate::raw::tree::{Below, check};
use crate::raw::{Choice, RawVolume};
use crate::recovery::chain::{self, ChainNode};
use crate::recovery::links::Broken;
use crate::recovery::overlay::Overlay;
use crate::recovery::versions::Versions;

/// A volume, and the versions of its nodes.
pub(super) struct Source {
    pub(super) volume: RawVolume,
    scan: OnceCell<Scan>,
    /// Nodes of which an older version was taken, since this was asked last.
    older: RefCell<Vec<Below>>,
    /// What was fsynced and is not recovered.
    pub(super) unrecovered: Vec<Unrecovered>,
    /// The nodes of attributes of inodes in the chain. A recovery does not take them from there.
    attributes: HashMap<Nid, Nid>,
}

/// A part of what was fsynced behind the checkpoint that is damaged.
pub(super) struct Unrecovered {
    pub(super) ino: Nid,
    /// The inode in the chain, if it can be read.
    pub(super) record: Option<Inode>,
    /// What is wrong.
    pub(super) why: String,
}

impl Source {
    /// Opens a volume. Fsynced nodes that are newer than the checkpoint count.
    ///
    /// # Errors
    /// There is no superblock or checkpoint as asked for, or the device failed.
    pub(super) fn open(device: Arc<dyn BlockDevice>, choice: Choice) -> Result<Self> {
        let mut volume = RawVolume::open(device, choice)?;
        let features = volume.proved_features();
        if features != volume.layout.features {
            let names = (features ^ volume.layout.features).names().join(", ");
            volume.notes.push(format!("the superblock is wrong about the features {names}"));
            volume.layout.features = features;
        }
        if volume.has_wrong_seed() {
            volume.ignores_checksums = true;
            let what = "most inodes have wrong checksums, as under another UUID in the superblock";
            volume.notes.push(format!("{what}: checksums of inodes are not used"));
        }
        if volume.loaded.is_none() {
            volume
                .notes
                .push("no checkpoint is sound: the newest nodes of the log are used".into());
        }
        let mut source = Self {
            volume,
            scan: OnceCell::new(),
            older: RefCell::default(),
            unrecovered: Vec::new(),
            attributes: HashMap::new(),
        };
        if let Err(error) = source.follow_chain() {
            let (ino, why) = (Nid::ROOT, error.to_string());
            source.unrecovered.push(Unrecovered { ino, record: None, why });
        }
        Ok(source)
    }

    /// The record of an inode, with the node of attributes that it has after a recovery.
    pub(super) fn recovered(&self, ino: Nid, record: &Inode) -> Inode {
        let xattr_nid = self.attributes.get(&ino).copied().unwrap_or(record.xattr_nid);
        let mut record = record.clone();
        record.xattr_nid = xattr_nid;
        record
    }

    /// All versions of all nodes; the first call reads the main area.
    pub(super) fn scan(&self) -> &Scan {
        self.scan.get_or_init(|| Scan::read(&self.volume, None))
    }

    /// As [`Source::scan`], with progress.
    pub(super) fn scan_with(&self, receiver: &mut dyn cairn_check::salvage::Receiver) -> &Scan {
        self.scan.get_or_init(|| Scan::read(&self.volume, Some(receiver)))
    }

    /// An inode: as the NAT has it, else its newest sound version. The text says what is wrong with
    /// it, or why it is not the first.
    pub(super) fn inode(&self, ino: Nid) -> Result<Judged, String> {
        let why = match proof::inode(&self.volume, ino) {
            Ok(judged) => return Ok(self.present(ino, judged)),
            Err(why) => why,
        };
        let found = self.newest(ino, |version| version.ino == ino && version.links > 0);
        let sound = found.into_iter().find_map(|version| {
            let image = self.volume.block(version.addr.pba()).ok()?;
            let record = self.volume.decode(ino, version.addr, &image).ok()?;
            Some((image, record))
        });
        match sound {
            Some((image, record)) => {
                let what = format!("the newest version that is left was copied: {why}");
                Ok((image, record, Some(what)))
            }
            None => proof::unsealed(&self.volume, ino).ok_or(why),
        }
    }

    /// Is it an old version of a node, to which a damaged NAT leads? The SIT calls its block free.
    fn is_old(&self, nid: Nid, addr: BlockAddr) -> bool {
        !self.volume.newer.contains_key(&nid) && self.volume.is_freed(addr)
    }

    /// The present version of an inode, instead of an old one.
    fn present(&self, ino: Nid, judged: Judged) -> Judged {
        let addr = self.volume.node_address(ino).ok();
        if addr.is_none_or(|addr| !self.is_old(ino, addr)) {
            return judged;
        }
        let fits = |version: &Version| {
            version.ino == ino && self.volume.is_valid(version.addr) == Some(true)
        };
        let found = self.newest(ino, fits).into_iter().find_map(|version| {
            let image = self.volume.block(version.addr.pba()).ok()?;
            proof::inode_at(&self.volume, ino, (version.addr, image)).ok()
        });
        found.unwrap_or_else(|| {
            let (image, record, wrong) = judged;
            let what = "the SIT has its block as free: what was copied may be older".to_owned();
            (image, record, Some(wrong.unwrap_or(what)))
        })
    }

    /// The versions of a node, those that are marked as valid first, then the newest first.
    pub(super) fn newest(&self, nid: Nid, fits: impl Fn(&Version) -> bool) -> Vec<Version> {
        let all = self.scan().of(nid).iter().copied();
        let mut list: Vec<Version> = all.filter(|version| fits(version)).collect();
        list.sort_by_key(|version| {
            let is_valid = self.volume.is_valid(version.addr) == Some(true);
            std::cmp::Reverse((is_valid, version.age()))
        });
        list
    }

    /// The directory that had a number at a checkpoint: as it is now, or as it was last. A number
    /// is used again only behind the checkpoint that frees it.
    pub(super) fn directory_at(&self, ino: Nid, checkpoint: u32) -> Option<Inode> {
        let now = self.volume.inode(ino).ok().map(|(_, _, record)| record);
        let versions = || {
            let list = self.scan().of(ino).iter();
            list.filter(|version| version.ino == ino && version.links > 0)
        };
        let before = versions().filter(|version| version.checkpoint <= checkpoint);
        let then = before.max_by_key(|version| version.age()).map(|version| version.generation);
        let is_it = |generation: u32| then.is_none_or(|then| then == generation);
        if let Some(now) = now.filter(|record| is_it(record.generation)) {
            return Some(now);
        }
        let mut list: Vec<&Version> =
            versions().filter(|version| is_it(version.generation)).collect();
        list.sort_by_key(|version| std::cmp::Reverse(version.age()));
        list.into_iter().find_map(|version| {
            let image = self.volume.block(version.addr.pba()).ok()?;
            self.volume.decode(ino, version.addr, &image).ok()
        })
    }

    /// A node below an inode.
    pub(super) fn fetch(&self, below: Below) -> Result<(BlockAddr, Image), String> {
        let (why, old) = match self.volume.node_below(below) {
            Ok((addr, image)) if self.is_old(below.nid, addr) => {
                (String::new(), Some((addr, image)))
            }
            Ok(found) => return Ok(found),
            Err(why) => (why, None),
        };
        let list = self.newest(below.nid, |version| {
            version.ino == below.ino && version.offset == below.offset
        });
        let found = list.into_iter().find_map(|version| {
            let image = self.volume.block(version.addr.pba()).ok()?;
            check(below, version.addr, &image).ok()?;
            Some((version.addr, image))
        });
        let is_better = |found: &(BlockAddr, Image)| {
            old.is_none() || self.volume.is_valid(found.0) == Some(true)
        };
        let (addr, image) = found.filter(is_better).or(old).ok_or(why)?;
        // What the SIT has is the present version. Without a checkpoint, there is a note.
        if self.volume.loaded.is_some() && self.volume.is_valid(addr) != Some(true) {
            self.older.borrow_mut().push(below);
        }
        Ok((addr, image))
    }

    /// The nodes of which an older version was taken since the last call.
    pub(super) fn take_older(&self) -> Vec<Below> {
        self.older.take()
    }
}

/// An inode in the chain.
fn inode_of(volume: &RawVolume, node: &ChainNode) -> Option<Inode> {
    let image = volume.block(node.addr.pba()).ok().filter(|_| node.footer.offset == 0)?;
    Inode::decode(&image, node.footer.ino, volume.layout.features).ok()
}

impl Source {
    /// Notes where the nodes of the chain are that a mount would recover.
    fn follow_chain(&mut self) -> Result<()> {
        let volume = &mut self.volume;
        let Some(loaded) = &volume.loaded else { return Ok(()) };
        let checkpoint = &loaded.checkpoint.clone();
        let mut followed = chain::follow(&volume.buffers, &volume.layout, checkpoint)?;
        let behind = chain::behind(&volume.buffers, &volume.layout, checkpoint, &followed)?;
        for node in &behind {
            let ChainNode { addr, footer } = node;
            let name = inode_of(volume, node)
                .map(|record| String::from_utf8_lossy(&record.name).into_owned());
            let name = name.unwrap_or_else(|| format!("inode {}", footer.ino));
            let end = followed.end;
            volume.notes.push(format!(
                "block {addr} is a node of {name} that was fsynced, but the chain of such nodes \
                 ends before it, at block {end}, which was never written or is damaged"
            ));
        }
        let (layout, buffers) = (Arc::new(volume.layout), volume.buffers.clone());
        let nat = Nat::new(layout.clone(), buffers, checkpoint, &volume.journals.nat);
        let found = chain::select(&followed.nodes, &nat)?;
        let versions = Versions { buffers: &volume.buffers, layout: &layout, nat: &nat };
        followed.faults.extend(versions.faults(&followed.nodes, &found)?);
        let damaged: BTreeSet<usize> = followed.faults.iter().map(|(index, _)| *index).collect();
        for (index, fault) in &followed.faults {
            let node = followed.nodes.get(*index);
            let footer = node.map(|node| node.footer).unwrap_or_default();
            let numbers = [footer.ino, footer.nid, Nid::ROOT];
            let ino = numbers.into_iter().find(|ino| volume.layout.is_nid(*ino));
            self.unrecovered.push(Unrecovered {
                ino: ino.unwrap_or(Nid::ROOT),
                record: node.and_then(|node| inode_of(volume, node)),
                why: fault.to_string(),
            });
        }
        let nodes = followed.nodes;
        for Broken { addr, .. } in &followed.broken {
            let right = nodes.iter().find(|node| node.addr == *addr);
            volume.footers.extend(right.map(|node| (addr.pba(), node.footer)));
        }
        if nodes.is_empty() {
            return Ok(());
        }
        for (index, node) in nodes.iter().enumerate() {
            let counts = !damaged.contains(&index)
                && found.get(&node.footer.ino).is_some_and(|one| {
                    index <= one.last_fsync && one.created_by.is_none_or(|first| index >= first)
                });
            if counts {
                volume.newer.insert(node.footer.nid, node.addr);
            }
        }
        // As a mount that only reads has them. It refuses a damaged chain.
        let Ok(overlay) = Overlay::build(&volume.buffers, &layout, checkpoint, &nat) else {
            return Ok(());
        };
        for ino in found.into_keys() {
            if let Ok(Some(image)) = overlay.node(ino, &volume.buffers, &layout)
                && let Ok(record) = Inode::decode(&image, ino, layout.features)
            {
                self.attributes.insert(ino, record.xattr_nid);
            }
        }
        Ok(())
    }
}
