//! Changes of single fields, with checksums put right. What fsck.f2fs finds must be found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::format::Layout;
use cairn_f2fs::format::checksum::{MAGIC, crc32};
use cairn_f2fs::format::inode;
use cairn_f2fs::format::layout::Side;
use cairn_f2fs::format::units::BLOCK_SIZE;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::crash::write_image;
use cairn_testkit::judge::fsck_f2fs;

use crate::fields::{self, Field};
use crate::places::Places;
use crate::volume::{End, MIB, loaded, open, work};
use crate::{check, lines};

/// The seeds of a search from `first` on: `few` of them, or `many` in long runs.
/// `CAIRN_INJECTIONS` is another number of them, and `CAIRN_SEED` is added to each.
pub fn seeds(first: u64, few: u64, many: u64) -> Range<u64> {
    let asked = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let usual = if cairn_testkit::deep() { many } else { few };
    let first = first + asked("CAIRN_SEED").unwrap_or(0);
    first..first + asked("CAIRN_INJECTIONS").unwrap_or(usual)
}

/// A free block, and the place and new contents of its summary block.
pub type FreeBlock = (u32, Option<(u64, Vec<u8>)>);

/// A volume that is damaged again and again.
pub struct Target {
    pub device: MemoryDevice,
    places: Places,
    pub file: tempfile::NamedTempFile,
}

/// One change.
pub struct Injection {
    pub what: String,
    /// Blocks with their new contents.
    pub blocks: Vec<(u64, Vec<u8>)>,
}

impl Target {
    pub fn new(arguments: &[&str]) -> Self {
        let device = Arc::new(loaded(96 * MIB, arguments));
        work(&open(device.clone(), ""), End::Closed);
        Self::of(&device)
    }

    /// A volume that is closed.
    pub fn of(device: &Arc<MemoryDevice>) -> Self {
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        let volume = F2fs::open(device.clone(), Threads::new(), &options).unwrap();
        let places = Places::of(device, &volume);
        drop(volume);
        let device = device.fork();
        let file = tempfile::NamedTempFile::new().unwrap();
        write_image(&device, file.path()).unwrap();
        Self { device, places, file }
    }

    pub fn read(&self, at: u64) -> Vec<u8> {
        self.device.read_at(at & !0xfff, BLOCK_SIZE).unwrap().to_vec()
    }

    /// Where an inode is.
    pub fn inode_of(&self, ino: u32) -> u64 {
        let is_it = |at: &&u64| self.read(**at)[4072..4076] == ino.to_le_bytes();
        *self.places.inodes.iter().find(is_it).unwrap()
    }

    /// A change of both copies of an entry of the first NAT block.
    pub fn inject_nat(&self, nid: usize, field: Field, value: u32) -> Injection {
        let (name, at, width) = field;
        let blocks = [Side::First, Side::Second].map(|side| {
            let place = self.places.layout.nat_address(0, side).get() << 12;
            let mut bytes = self.read(place);
            let at = nid * 9 + at;
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            (place, bytes)
        });
        let what = format!("NAT, nid {nid}.{name}: {value:#x}");
        Injection { what, blocks: blocks.to_vec() }
    }

    pub fn inject(&self, seed: u64) -> Injection {
        let mut random = fastrand::Rng::with_seed(seed);
        let random = &mut random;
        match random.u8(..20) {
            0 => self.superblock(random),
            1..=3 => self.checkpoint(random),
            4 => {
                let at = pick(&self.places.pack_contents, random);
                let field = ("contents", random.usize(..4090), [1, 2, 4][random.usize(..3)]);
                self.one("pack", at, 0, &[field], random)
            }
            5..=6 => {
                let at = pick(&self.places.nat, random);
                self.one("NAT", at & !0xfff, (at & 0xfff) as usize, fields::NAT, random)
            }
            7 => {
                let at = pick(&self.places.sit, random);
                self.one("SIT", at & !0xfff, (at & 0xfff) as usize, fields::SIT, random)
            }
            8 => {
                let (at, used) =
                    &self.places.summaries[random.usize(..self.places.summaries.len())];
                let entry = usize::from(used[random.usize(..used.len())]);
                match random.u8(..4) {
                    0 => self.one("summary footer", *at, 0, fields::SUMMARY_FOOTER, random),
                    _ => self.one("summary", *at, entry * 7, fields::SUMMARY, random),
                }
            }
            9 => self.one(
                "inode footer",
                pick(&self.places.inodes, random),
                0,
                fields::FOOTER,
                random,
            ),
            10 => {
                self.one("node footer", pick(&self.places.nodes, random), 0, fields::FOOTER, random)
            }
            11 => self.one("node", pick(&self.places.nodes, random), 0, fields::NODE, random),
            12..=16 => {
                self.one("inode", pick(&self.places.inodes, random), 0, fields::INODE, random)
            }
            _ => self.dentry(random),
        }
    }

    /// A change of the NAT, the SIT or a summary.
    pub fn inject_table(&self, seed: u64) -> Injection {
        let mut random = fastrand::Rng::with_seed(seed);
        let random = &mut random;
        let at = |list: &[u64], random: &mut fastrand::Rng| {
            let at = pick(list, random);
            (at & !0xfff, (at & 0xfff) as usize)
        };
        let is_summary = random.u8(..3) == 0 && !self.places.summaries.is_empty();
        if is_summary {
            let (at, used) = &self.places.summaries[random.usize(..self.places.summaries.len())];
            let entry = usize::from(used[random.usize(..used.len())]);
            return self.one("summary", *at, entry * 7, fields::SUMMARY, random);
        }
        let (what, list, fields) = match random.bool() {
            true => ("NAT", &self.places.nat, fields::NAT),
            false => ("SIT", &self.places.sit, fields::SIT),
        };
        let (at, base) = at(list, random);
        self.one(what, at, base, fields, random)
    }

    /// A block of metadata, and what it is.
    pub fn any_block(&self, random: &mut fastrand::Rng) -> (&'static str, u64) {
        let places = &self.places;
        let (what, at) = match random.u8(..14) {
            0..=2 => ("NAT", pick(&places.nat, random)),
            3..=5 => ("directory", pick(&places.directories, random)),
            6..=7 => ("inode", pick(&places.inodes, random)),
            8 => ("node", pick(&places.nodes, random)),
            9..=10 => ("SIT", pick(&places.sit, random)),
            11 => ("summary", places.summaries[random.usize(..places.summaries.len())].0),
            12 => ("checkpoint", places.pack[random.usize(..2)]),
            _ => ("pack", pick(&places.pack_contents, random)),
        };
        (what, at & !0xfff)
    }

    /// The first and the last block of the pack in use.
    pub const fn pack_ends(&self) -> [u64; 2] {
        self.places.pack
    }

    /// The first block of the pack in use, and those between it and the last one.
    pub fn pack(&self) -> (u64, &[u64]) {
        (self.places.pack[0], &self.places.pack_contents)
    }

    /// The entry of a segment in the area of the SIT.
    pub fn sit_entry(&self, segment: u32) -> u64 {
        self.places.sit_entries[segment as usize]
    }

    /// As [`Target::sit_entry`], of a segment in use.
    pub fn sit_place(&self, segment: u32) -> Option<u64> {
        Some(self.sit_entry(segment)).filter(|place| self.places.sit.contains(place))
    }

    pub const fn layout(&self) -> &Layout {
        &self.places.layout
    }

    /// An inode of each type, with and without contents or entries in it: what it is, and where.
    pub fn inode_of_each_kind(&self) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        for at in &self.places.inodes {
            let bytes = self.read(*at);
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let mode = word(0) >> 12 & 0xf;
            let (is_inline, has_nodes) = (bytes[3] & 6 != 0, word(4052) != 0);
            let has_attributes = word(76) != 0;
            let extra = if bytes[3] & 0x20 == 0 { 0 } else { word(360) & 0xffff };
            let what = format!(
                "type {mode:#o}, inline {is_inline}, nodes {has_nodes}, attributes \
                 {has_attributes}, extra {extra}"
            );
            // The root is a case of its own.
            if word(4072) != 3 {
                found.entry(what).or_insert(*at);
            }
        }
        found
    }

    /// The blocks of the NAT in use.
    pub fn nat_blocks(&self) -> BTreeSet<u64> {
        self.places.nat.iter().map(|at| at & !0xfff).collect()
    }

    /// Nodes other than inodes.
    pub fn nodes(&self) -> &[u64] {
        &self.places.nodes
    }

    /// The last block, which is free and has no owner, and the one before it with a summary block
    /// that gives it to another inode.
    pub fn free_blocks(&self) -> [FreeBlock; 2] {
        const ENTRY: usize = 7;
        let layout = &self.places.layout;
        let last = layout.main + layout.main_segments * 512 - 1;
        let at = u64::from(layout.ssa + layout.main_segments - 1) << 12;
        let mut summary = self.read(at);
        assert!(summary[510 * ENTRY..512 * ENTRY].iter().all(|byte| *byte == 0));
        summary[510 * ENTRY] = 9;
        [(last, None), (last - 1, Some((at, summary)))]
    }

    /// The blocks of directories.
    pub fn directory_blocks(&self) -> &[u64] {
        &self.places.directories
    }

    fn value(&self, old: u64, width: usize, random: &mut fastrand::Rng) -> u64 {
        let most = if width == 8 { u64::MAX } else { (1 << (8 * width)) - 1 };
        let any = match random.u8(..10) {
            0 => 0,
            1 => most,
            2 => old.wrapping_add(1),
            3 => old.wrapping_sub(1),
            4 => random.u64(..64),
            5 => random.u64(..),
            6 => pick(&self.places.inodes, random) >> 12,
            7 => random.u64(3..600),
            _ => old ^ 1 << random.usize(..8 * width),
        };
        any & most
    }

    fn change(
        &self,
        bytes: &mut [u8],
        base: usize,
        list: &[Field],
        random: &mut fastrand::Rng,
    ) -> String {
        let (name, at, width) = list[random.usize(..list.len())];
        let place = &mut bytes[base + at..base + at + width];
        let mut old = [0; 8];
        old[..width].copy_from_slice(place);
        let old = u64::from_le_bytes(old);
        let new = self.value(old, width, random);
        place.copy_from_slice(&new.to_le_bytes()[..width]);
        if old == new { String::new() } else { format!("{name}: {old:#x} to {new:#x}") }
    }

    fn one(
        &self,
        structure: &str,
        at: u64,
        base: usize,
        list: &[Field],
        random: &mut fastrand::Rng,
    ) -> Injection {
        let mut bytes = self.read(at);
        let what = self.change(&mut bytes, base, list, random);
        if at >= u64::from(self.places.layout.main) << 12 && structure.starts_with("inode") {
            inode::seal(&mut bytes, &self.places.layout);
        }
        let what =
            if what.is_empty() { what } else { format!("{structure}.{what} (byte {at:#x})") };
        Injection { what, blocks: vec![(at, bytes)] }
    }

    /// A field of one copy of the superblock, or of both.
    fn superblock(&self, random: &mut fastrand::Rng) -> Injection {
        let copies: &[u64] = [&[0][..], &[4096], &[0, 4096]][random.usize(..3)];
        let mut first = self.read(copies[0]);
        let what = self.change(&mut first, 1024, fields::SUPERBLOCK, random);
        let what = if what.is_empty() { what } else { format!("superblock {copies:?}.{what}") };
        Injection { what, blocks: copies.iter().map(|at| (*at, first.clone())).collect() }
    }

    /// A field of both blocks of the current pack, with the checksum; or of one block without it.
    fn checkpoint(&self, random: &mut fastrand::Rng) -> Injection {
        let mut bytes = self.read(self.places.pack[0]);
        let what = self.change(&mut bytes, 0, fields::CHECKPOINT, random);
        if random.u8(..8) == 0 {
            let (which, at) =
                [("first", self.places.pack[0]), ("last", self.places.pack[1])][random.usize(..2)];
            let what = if what.is_empty() { what } else { format!("{which} block.{what}") };
            return Injection { what, blocks: vec![(at, bytes)] };
        }
        let sum = crc32(MAGIC, &bytes[..4092]);
        bytes[4092..].copy_from_slice(&sum.to_le_bytes());
        let what = if what.is_empty() { what } else { format!("checkpoint.{what}") };
        Injection { what, blocks: self.places.pack.map(|at| (at, bytes.clone())).to_vec() }
    }

    fn dentry(&self, random: &mut fastrand::Rng) -> Injection {
        let at = pick(&self.places.directories, random);
        let used = (0..60).find(|_| random.bool()).unwrap_or(0);
        let list: Vec<Field> = fields::DENTRIES
            .iter()
            .map(|(name, at, width)| match at {
                ..30 => (*name, *at, *width),
                30..2384 => (*name, at + used * fields::DENTRY, *width),
                _ => (*name, at + used * fields::SLOT, *width),
            })
            .collect();
        self.one("dentry", at, 0, &list, random)
    }

    /// What Cairn and fsck.f2fs say.
    pub fn judge(&self, injection: &Injection) -> (Result<String, String>, bool, String) {
        let device = self.device.fork();
        let file = File::options().write(true).open(self.file.path()).unwrap();
        for (at, bytes) in &injection.blocks {
            device.write_at(*at, bytes.clone()).unwrap();
            file.write_all_at(bytes, *at).unwrap();
        }
        let found = match check(Arc::new(device)) {
            Ok(report) if report.count() == 0 => Ok(String::new()),
            Ok(report) => Ok(lines(&report)),
            Err(error) => Err(error.to_string()),
        };
        let verdict = fsck_f2fs(self.file.path());
        for (at, _) in &injection.blocks {
            file.write_all_at(&self.read(*at), *at).unwrap();
        }
        (found, verdict.is_clean(), verdict.output)
    }
}

fn pick(list: &[u64], random: &mut fastrand::Rng) -> u64 {
    list[random.usize(..list.len())]
}

/// What both found, by the structure and field.
#[derive(Default, Debug)]
struct Tally {
    both: u32,
    neither: u32,
    ours: u32,
    theirs: u32,
}

/// Runs injections. Panics with those that only fsck.f2fs has found.
fn search(arguments: &[&str], seeds: Range<u64>) {
    let target = Target::new(arguments);
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let mut missed = String::new();
    for seed in seeds {
        let injection = target.inject(seed);
        if injection.what.is_empty() {
            continue;
        }
        let (found, clean, output) = target.judge(&injection);
        let flagged = found.as_ref().map_or(true, |text| !text.is_empty());
        let key = injection.what.split(':').next().unwrap_or_default().to_owned();
        let tally = tallies.entry(key).or_default();
        match (flagged, clean) {
            (true, true) => tally.ours += 1,
            (true, false) => tally.both += 1,
            (false, true) => tally.neither += 1,
            // It cannot be told from a pack that a power cut has left incomplete.
            (false, false) if injection.what.starts_with("last block") => tally.theirs += 1,
            (false, false) => {
                let alarms: Vec<_> = cairn_testkit::judge::f2fs_alarms(&output).collect();
                missed += &format!("seed {seed}: {}\n  {}\n", injection.what, alarms.join("\n  "));
            }
        }
        if std::env::var_os("CAIRN_INJECTIONS_SHOW").is_some() && flagged && clean {
            println!("seed {seed}: {}\n{}", injection.what, found.unwrap_or_else(|error| error));
        }
    }
    println!("{arguments:?}: found by both, by Cairn alone, by fsck.f2fs alone, by none");
    for (what, Tally { both, ours, theirs, neither }) in &tallies {
        println!("{what}: {both} {ours} {theirs} {neither}");
    }
    assert!(missed.is_empty(), "only fsck.f2fs has found:\n{missed}");
    let sum = |of: fn(&Tally) -> u32| tallies.values().map(of).sum::<u32>();
    println!(
        "{} found by both, {} by Cairn alone, {} by none",
        sum(|tally| tally.both),
        sum(|tally| tally.ours),
        sum(|tally| tally.neither)
    );
    assert!(sum(|tally| tally.both) > 5);
}

#[test]
fn what_fsck_finds_is_found() {
    search(&[], seeds(0, 30, 2500));
}

#[test]
fn what_fsck_finds_is_found_with_extra_attributes() {
    search(&["-O", "extra_attr,inode_checksum,inode_crtime"], seeds(1_000_000, 30, 2500));
}
