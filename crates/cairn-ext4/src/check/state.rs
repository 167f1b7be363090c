//! [`State`]: what the phases of a check share, and what they have found.
//!
//! Locking: leaf locks of lists, of which a thread holds one at most. All else is atomics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::units::{as_index, as_u64};
use cairn_base::{Ino, Pba};
use cairn_check::quota::Counted;
use cairn_check::{BlockSet, Finding, Findings, Kind, Place, Progress, Sparse, Value};

use super::corrected::Corrected;
use super::doubted_lists::DoubtedLists;
use super::doubted_marks::DoubtedMarks;
use super::facts::{Bytes, Dispute, Facts, Suspect};
use super::kinds;
use super::source::Source;
use crate::corrupt::Corrupt;
use crate::dir::hash::HashSettings;
use crate::error::Result;
use crate::format::features::RoCompat;
use crate::format::group_desc::GroupDesc;
use crate::format::inode::Inode as Record;
use crate::format::layout::{Layout, inodes};
use crate::format::superblock::Superblock;

/// A group, as its descriptor describes it.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) desc: GroupDesc,
    /// The checksum is right: flags and counts of unused parts count.
    pub(super) is_sealed: bool,
    /// The places of bitmaps and table are possible.
    pub(super) has_block_bitmap: bool,
    pub(super) has_inode_bitmap: bool,
    pub(super) has_table: bool,
}

/// An attribute block and the inodes that refer to it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shared {
    pub(super) stored: u32,
    pub(super) found: u32,
    /// One of the inodes.
    pub(super) ino: u32,
}

/// Counts of the volume.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) files: AtomicU64,
    pub(super) directories: AtomicU64,
    pub(super) fragmented: AtomicU64,
    pub(super) large_files: AtomicU64,
    /// Directories with more links than are counted.
    pub(super) many_links: AtomicU64,
    /// Files with a tree of fs-verity.
    pub(super) verified: AtomicU64,
    pub(super) used_clusters: AtomicU64,
    pub(super) free_clusters: AtomicU64,
    pub(super) free_inodes: AtomicU64,
    /// Inodes of the Hurd whose translator is no block that they can have.
    pub(super) translators: AtomicU64,
    /// Extent trees, files in inodes, and values in inodes of their own, without the feature.
    pub(super) trees: AtomicU64,
    pub(super) inline: AtomicU64,
    pub(super) values: AtomicU64,
    /// Blocks of values of attributes that were read.
    pub(super) read_values: AtomicU64,
    /// Blocks of maps that one file has, which the walks have read.
    pub(super) read_once: AtomicU64,
    /// Blocks that more than one file has, and that a walk reads nevertheless.
    pub(super) read_twice: AtomicU64,
    /// A walk has ended before its map did, because too many blocks of maps are several files'.
    pub(super) is_cut: AtomicBool,
    /// Blocks of maps that were read in search of a wrong bit.
    pub(super) read_for_bits: AtomicU64,
}

/// What the phases share.
pub(super) struct State {
    pub(super) layout: Layout,
    pub(super) superblock: Superblock,
    pub(super) hash: HashSettings,
    pub(super) source: Source,
    pub(super) findings: Findings,
    pub(super) progress: Progress,
    pub(super) groups: Vec<Group>,
    /// Inodes that the superblock names by mistake.
    pub(super) strangers: Vec<Ino>,
    /// Blocks of the volume's structures.
    pub(super) system: BlockSet,
    /// Clusters in use.
    pub(super) claimed: BlockSet,
    /// Clusters that were claimed more than once.
    pub(super) twice: BlockSet,
    pub(super) inodes: Sparse<Facts>,
    /// Attribute blocks, of which several inodes may have the same.
    pub(super) shared: Mutex<BTreeMap<u64, Shared>>,
    /// What is known of the bytes of values in inodes of their own.
    pub(super) values: Mutex<BTreeMap<u64, Bytes>>,
    /// For each encrypted inode, a hash of the keys and modes that it is encrypted with.
    policies: Mutex<BTreeMap<u64, u64>>,
    /// Modes and flags that are others than the stored ones.
    pub(super) corrected: Corrected,
    /// Inodes whose contents contradict their mode.
    pub(super) suspects: Mutex<Vec<Suspect>>,
    /// Inodes whose names contradict their mode, which their contents do not.
    pub(super) disputes: Mutex<BTreeMap<u64, Dispute>>,
    /// Inodes with a mark of encryption that nothing proves.
    pub(super) doubted_marks: DoubtedMarks,
    /// Inodes whose attribute block may be the wrong one.
    pub(super) doubted_lists: DoubtedLists,
    pub(super) totals: Totals,
    /// The computer that uses the volume, by its block of multiple-mount protection.
    pub(super) user: Option<String>,
    /// What each owner uses, if the volume counts it.
    pub(super) usage: Option<Counted>,
    /// What of that are symbolic links in their inodes.
    pub(super) inline_links: Counted,
    /// The log was replayed, or the volume is in use: totals in the superblock are old.
    pub(super) is_recovered: bool,
    pub(super) cancelled: AtomicBool,
}

/// A field's value as it is usually written.
pub(super) fn shown(field: &str, value: u64) -> Value {
    match field {
        "i_mode" => Value::Octal(value),
        "i_flags" | "bg_flags" => Value::Hex(value),
        _ => Value::Number(value),
    }
}

impl State {
    /// Empty lists for a volume.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(super) fn new(
        superblock: Superblock,
        layout: Layout,
        source: Source,
        progress: Progress,
    ) -> Result<Self> {
        let clusters = layout.blocks_count.div_ceil(1_u64 << layout.cluster_bits);
        Ok(Self {
            hash: crate::inode::directory::hash_settings(&superblock),
            source,
            findings: Findings::new(),
            progress,
            groups: Vec::new(),
            strangers: Vec::new(),
            system: BlockSet::new(layout.blocks_count)?,
            claimed: BlockSet::new(clusters)?,
            twice: BlockSet::new(clusters)?,
            inodes: Sparse::new(u64::from(layout.inodes_count).saturating_add(1))?,
            shared: Mutex::new(Rank::Leaf, BTreeMap::new()),
            values: Mutex::new(Rank::Leaf, BTreeMap::new()),
            policies: Mutex::new(Rank::Leaf, BTreeMap::new()),
            corrected: Corrected::default(),
            suspects: Mutex::new(Rank::Leaf, Vec::new()),
            disputes: Mutex::new(Rank::Leaf, BTreeMap::new()),
            doubted_marks: DoubtedMarks::default(),
            doubted_lists: DoubtedLists::default(),
            totals: Totals::default(),
            usage: layout.features.ro_compat(RoCompat::QUOTA).then(Counted::default),
            inline_links: Counted::default(),
            user: None,
            is_recovered: false,
            cancelled: AtomicBool::new(false),
            superblock,
            layout,
        })
    }

    /// Adds a finding without values.
    pub(super) fn find(&self, kind: &'static Kind, place: Place) {
        self.findings.add(Finding::new(kind, place));
    }

    /// Adds a finding with the stored and the computed number.
    pub(super) fn differ(&self, kind: &'static Kind, place: Place, stored: u64, computed: u64) {
        let field = place.field.unwrap_or_default();
        let (stored, computed) = (shown(field, stored), shown(field, computed));
        self.findings.add(Finding::new(kind, place).stored(stored).computed(computed));
    }

    /// Adds a finding for what a decoder says. Checksums have a kind of their own.
    pub(super) fn report(
        &self,
        kind: &'static Kind,
        sums: &'static Kind,
        at: Place,
        why: &Corrupt,
    ) {
        let finding = match why {
            Corrupt::Checksum { stored, computed, .. } => {
                Finding::new(sums, at).hex(*stored, *computed)
            }
            Corrupt::Superblock { field, value, .. }
            | Corrupt::Group { field, value, .. }
            | Corrupt::Inode { field, value, .. } => {
                Finding::new(kind, at.in_field(field)).stored(shown(field, *value))
            }
            Corrupt::Mapping { what, value, .. }
            | Corrupt::Directory { what, value, .. }
            | Corrupt::Xattr { what, value, .. }
            | Corrupt::Orphan { what, value } => {
                Finding::new(kind, at).stored(Value::text(format!("{what}, value {value}")))
            }
            other => Finding::new(kind, at).stored(Value::text(other.to_string())),
        };
        self.findings.add(finding);
    }

    /// Adds a finding for a block that cannot be read.
    pub(super) fn unreadable(&self, place: Place, why: &cairn_block::Error) {
        let finding = Finding::new(&kinds::DEVICE_READ, place);
        self.findings.add(finding.stored(Value::text(why.to_string())));
    }

    /// True if the user wants the check to end.
    pub(super) fn is_cancelled(&self) -> bool {
        let now = self.progress.is_cancelled();
        if now {
            self.cancelled.store(true, Relaxed);
        }
        now
    }

    /// What is known of an inode, if it is one of the volume.
    pub(super) fn facts(&self, ino: Ino) -> Option<&Facts> {
        self.inodes.at(ino.get()).filter(|_| ino.get() != 0)
    }

    /// Notes with which policy an inode is encrypted.
    pub(super) fn set_policy(&self, ino: Ino, policy: u64) {
        self.policies.lock().insert(ino.get(), policy);
    }

    /// The policy that an inode is encrypted with.
    pub(super) fn policy(&self, ino: Ino) -> Option<u64> {
        self.policies.lock().get(&ino.get()).copied()
    }

    /// True if both inodes are encrypted with the same policy.
    pub(super) fn have_same_policy(&self, one: Ino, other: Ino) -> bool {
        let policy = self.policy(one);
        policy.is_some() && policy == self.policy(other)
    }

    /// The cluster of a block.
    pub(super) fn cluster(&self, block: u64) -> u64 {
        block >> self.layout.cluster_bits
    }

    /// Blocks of a cluster.
    pub(super) fn cluster_blocks(&self) -> u64 {
        1 << self.layout.cluster_bits
    }

    /// 512-byte units of a block.
    pub(super) fn units(&self) -> u32 {
        self.layout.block_bits.saturating_sub(9)
    }

    /// The block and the offset of an inode's record, if its table is known.
    fn location(&self, ino: Ino) -> Option<(Pba, usize)> {
        let (group, index) = self.layout.inode_group(ino)?;
        let group = self.groups.get(as_index(group)).filter(|group| group.has_table)?;
        let place = self.layout.inode_location(index, group.desc.inode_table);
        Some((place.pba, place.offset))
    }

    /// The byte of the volume at which an inode's record begins.
    pub(super) fn record_place(&self, ino: Ino) -> Option<u64> {
        let (pba, offset) = self.location(ino)?;
        let block = pba.get().checked_mul(self.layout.block_size.into())?;
        block.checked_add(as_u64(offset))
    }

    /// The bytes of an inode's record, if its table can be read.
    pub(super) fn record_bytes(&self, ino: Ino) -> Option<Vec<u8>> {
        let (pba, offset) = self.location(ino)?;
        let block = self.source.block(pba).ok()?;
        let end = offset.saturating_add(as_index(self.layout.inode_size));
        block.get(offset..end).map(<[u8]>::to_vec)
    }

    /// An inode's record, whose fields may be wrong, with the mode and flags that are proved.
    pub(super) fn record(&self, ino: Ino) -> Option<Record> {
        let mut bytes = self.record_bytes(ino)?;
        self.corrected.apply(ino, &mut bytes);
        Record::decode_unchecked(&bytes, &self.layout)
    }

    /// True for the inodes below the first one of files, of which the root is one.
    pub(super) fn is_reserved(&self, ino: Ino) -> bool {
        ino.get() < u64::from(self.layout.first_ino)
    }

    /// The inodes that belong to the volume: the journal, quotas, orphans, and those that are
    /// reserved, without the root.
    pub(super) fn system_inodes(&self) -> Vec<Ino> {
        let raw = &self.superblock.raw;
        let named = [raw.s_journal_inum, raw.s_prj_quota_inum, raw.s_orphan_file_inum];
        let named = named.iter().map(|number| Ino(number.get().into()));
        let named = named.filter(|ino| !self.strangers.contains(ino));
        let reserved = (1..u64::from(self.layout.first_ino)).map(Ino);
        reserved.chain(named).filter(|ino| *ino != inodes::ROOT && ino.get() != 0).collect()
    }

    /// Is the inode the journal, as a file with a name? `tune2fs -j` makes such a one on a mounted
    /// volume; e2fsck moves it to the reserved inode.
    pub(super) fn is_visible_journal(&self, ino: Ino) -> bool {
        ino == self.layout.journal_ino && !self.is_reserved(ino) && !self.strangers.contains(&ino)
    }

    /// True for the inodes that no name may refer to: those of the volume, and values of
    /// attributes.
    pub(super) fn is_nameless(&self, ino: Ino) -> bool {
        let known = self.inodes.get(ino.get());
        let is_known = known.is_some_and(|facts| facts.is_system() || facts.is_value());
        self.is_reserved(ino) || is_known && !self.is_visible_journal(ino)
    }

    /// Claims blocks of the volume's structures. Returns false if another structure has one.
    pub(super) fn claim_system(&self, from: Pba, blocks: u64) -> bool {
        let mut is_new = true;
        self.system.insert_range(from.get(), blocks, &mut |_, _| is_new = false);
        let end = from.get().saturating_add(blocks).min(self.layout.blocks_count);
        let (first, behind) = (self.cluster(from.get()), end.div_ceil(self.cluster_blocks()));
        self.claimed.insert_range(first, behind.saturating_sub(first), &mut |_, _| ());
        is_new
    }
}
