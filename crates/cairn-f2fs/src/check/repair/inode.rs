//! The fields of inodes.

use cairn_check::{Finding, Value};
use cairn_vfs::FileKind;

use super::super::context::Scratch;
use super::super::{kinds, owners, shape, types};
use super::edit::{Edit, ino_of};
use crate::compress;
use crate::error::Result;
use crate::format::block::is_zero;
use crate::format::inode::{
    Advise, DEFAULT_INLINE_XATTR_WORDS, EXTRA_SIZE, ExtentHint, FileFlags, InlineFlags, NIDS,
};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, NAME_MAX, Nid};
use crate::format::{Features, Inode};

/// Pointers of an inode that are compared with the summaries.
const ASKED_POINTERS: usize = 8;
/// Where fields of an inode are in its block.
const INLINE_AT: usize = 3;
const SIZE_AT: usize = 16;
const BLOCKS_AT: usize = 24;
const FLAGS_AT: usize = 80;
const NAMELEN_AT: usize = 88;
const NAME_AT: usize = 92;
const DIR_LEVEL_AT: usize = 347;
const EXTRA_SIZE_AT: usize = 360;
const INLINE_XATTR_SIZE_AT: usize = 362;
/// What an inode with a wrong checksum loses.
const UNKNOWN_DAMAGE: &str = "what is damaged there, if anything is";

impl Edit<'_> {
    /// Mends a finding about an inode. False if it stays.
    pub(super) fn mend_inode(&mut self, finding: &Finding) -> Result<bool> {
        let Some(ino) = ino_of(&finding.place) else { return Ok(false) };
        let code = finding.kind.code;
        let number = match &finding.computed {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        };
        let is_proved = finding.place.field == Some("i_log_cluster_size") && number.is_some();
        let done = if code == kinds::INODE_FIELD.code && !is_proved {
            return self.mend_field(finding, ino);
        } else if code == kinds::INODE_CHECKSUM.code {
            let done = self.change(ino, |_| ())?;
            if done {
                self.lost((finding.kind, finding.place.clone()), ino, UNKNOWN_DAMAGE);
            }
            return Ok(done);
        } else if code == kinds::INODE_TAIL.code {
            let Some(number) = number else { return Ok(false) };
            let (done, what) = match self.inode(ino)?.filter(|(record, _)| record.size == number) {
                Some((record, mut image)) => {
                    let mut behind = record.inline_data_range();
                    behind.start =
                        behind.start.saturating_add(usize::try_from(number).unwrap_or(usize::MAX));
                    image.get_mut(behind).into_iter().for_each(|bytes| bytes.fill(0));
                    self.put_node(ino, image)?;
                    (true, "what lies behind its end")
                }
                None => {
                    let what = "where it ended, if what lies behind that is damage";
                    (self.change(ino, |record| record.size = number)?, what)
                }
            };
            if done {
                self.lost((finding.kind, finding.place.clone()), ino, what);
            }
            return Ok(done);
        } else if code == kinds::INODE_TARGET.code {
            return self.mend_target(finding, ino);
        } else if code == kinds::INODE_EXTENT.code {
            self.change(ino, |record| record.ext = ExtentHint::default())?
        } else if code == kinds::INODE_INLINE.code {
            self.mend_inline(ino)?
        } else if code == kinds::INODE_COMPRESSION.code {
            return self.mend_compression(finding, ino, number);
        } else if code == kinds::INODE_SIZE.code && number.is_none() {
            self.mend_link_size(ino)?
        } else {
            let Some(number) = number else { return Ok(false) };
            let small = u32::try_from(number).unwrap_or(u32::MAX);
            self.change(ino, |record| match () {
                () if is_proved => set_cluster(record, number),
                () if code == kinds::INODE_BLOCKS.code => record.blocks = number,
                () if code == kinds::INODE_SIZE.code => record.size = number,
                () if code == kinds::INODE_LINKS.code => record.links = small,
                () => record.pino = Nid(small),
            })?
        };
        if done {
            self.mended(finding);
        }
        Ok(done)
    }

    /// Sets the form of inodes. False if no finding is about one.
    pub(super) fn mend_shapes(&mut self, findings: &[Finding]) -> Result<bool> {
        let mut changed = false;
        let is_shape = |found: &&Finding| found.kind.code == kinds::INODE_SHAPE.code;
        for finding in findings.iter().filter(is_shape) {
            let (Some(ino), Some(name)) = (ino_of(&finding.place), finding.place.field) else {
                continue;
            };
            let (Some(Value::Hex(right)), Some(addr)) = (&finding.computed, self.node_addr(ino)?)
            else {
                continue;
            };
            let mut image = self.read(addr.get().into())?;
            if self.scope.allows(finding.kind) && shape::set(&mut image, name, *right) {
                self.list_damage(findings, ino);
                self.put_node(ino, image)?;
                self.mended(finding);
                changed = true;
            }
        }
        Ok(changed)
    }

    /// Lists what a new checksum of an inode hides.
    pub(super) fn list_damage(&mut self, findings: &[Finding], ino: Nid) {
        let is_it = |found: &&Finding| {
            found.kind.code == kinds::INODE_CHECKSUM.code && ino_of(&found.place) == Some(ino)
        };
        if let Some(finding) = findings.iter().find(is_it) {
            self.lost((finding.kind, finding.place.clone()), ino, UNKNOWN_DAMAGE);
        }
    }

    fn mend_inline(&mut self, ino: Nid) -> Result<bool> {
        let Some((mut record, mut image)) = self.inode(ino)? else { return Ok(false) };
        if let Some(plain) = self.with_pointers(ino, &image)? {
            self.put_node(ino, plain)?;
            return Ok(true);
        }
        let range = record.inline_data_range();
        let is_set = image.get(range.clone()).is_some_and(|bytes| bytes.iter().any(|b| *b != 0));
        if record.inline.contains(InlineFlags::DATA) && is_set {
            record.inline.insert(InlineFlags::DATA_EXIST);
        }
        record.nids = [Nid::NONE; NIDS];
        record.encode_into(&mut image);
        let before = range.start.saturating_sub(size_of::<u32>())..range.start;
        image.get_mut(before).unwrap_or_default().fill(0);
        self.put_node(ino, image)?;
        Ok(true)
    }

    /// A field that no inode can have.
    fn mend_field(&mut self, finding: &Finding, ino: Nid) -> Result<bool> {
        let Some(addr) = self.node_addr(ino)? else { return Ok(false) };
        let old = self.read(addr.get().into())?;
        let is_of_contents = matches!(finding.place.field, Some("i_size" | "i_inline"));
        if is_of_contents && let Some(plain) = self.with_pointers(ino, &old)? {
            self.put_node(ino, plain)?;
            self.mended(finding);
            return Ok(true);
        }
        let mut image = old.clone();
        self.set_field(ino, finding.place.field.unwrap_or_default(), &mut image)?;
        if image == old {
            return self.drop_inode(finding, ino);
        }
        self.put_node(ino, image)?;
        if finding.place.field == Some("i_size") {
            self.set_size(ino)?;
        }
        match self.cost(finding.place.field, &old, ino)? {
            Some(what) => self.lost((finding.kind, finding.place.clone()), ino, what),
            None => self.mended(finding),
        }
        Ok(true)
    }

    /// What an inode loses with the field that was set, if its block was this one before.
    fn cost(&self, field: Option<&str>, old: &[u8], ino: Nid) -> Result<Option<&'static str>> {
        if field == Some("i_mode") {
            return Ok(Some("its type, if its name has another one"));
        }
        if field == Some("i_advise") && self.layout.features.contains(Features::ENCRYPT) {
            return Ok(Some("its contents, if they are encrypted: what names the key is gone"));
        }
        if field == Some("i_size") {
            return Ok(Some("where it ended: it ends with the last block that it has"));
        }
        let Some((record, image)) = self.inode(ino)? else { return Ok(None) };
        let contents = (InlineFlags::DATA | InlineFlags::DENTRY).bits();
        let before = old.get(INLINE_AT).copied().unwrap_or(0) & contents;
        let is_cut = before & !record.inline.bits() != 0;
        let words = image.get(record.inline_data_range()).unwrap_or_default();
        let is_lost = field == Some("i_inline") && is_cut && !is_zero(words);
        Ok(is_lost.then_some("its inline contents"))
    }

    /// The block of an inode without the flags for inline contents, if the summaries say that
    /// blocks to which it points then are its own. What seem to be inline contents are pointers.
    fn with_pointers(&self, ino: Nid, image: &[u8]) -> Result<Option<Vec<u8>>> {
        let contents = InlineFlags::DATA | InlineFlags::DENTRY;
        let flags = InlineFlags::from_bits_retain(image.get(INLINE_AT).copied().unwrap_or(0));
        if !flags.intersects(contents) {
            return Ok(None);
        }
        let mut plain = image.to_vec();
        let without = flags.difference(contents | InlineFlags::DATA_EXIST);
        put(&mut plain, INLINE_AT, &[without.bits()]);
        let Ok(record) = Inode::decode(&plain, ino, self.layout.features) else {
            return Ok(None);
        };
        let pointers = (0_u16..).zip(record.data_pointers(&plain));
        let pointers: Vec<_> =
            pointers.filter(|(_, addr)| self.layout.in_main(*addr)).take(ASKED_POINTERS).collect();
        let mut scratch = Scratch::default();
        for (slot, addr) in pointers {
            let owner = owners::stored(&self.context, &mut scratch, addr)?;
            let is_own = owner.is_some_and(|(is_node, owner)| {
                !is_node && owner.nid == ino && owner.ofs_in_node == slot
            });
            if is_own {
                return Ok(Some(plain));
            }
        }
        Ok(None)
    }

    fn set_field(&self, ino: Nid, field: &str, image: &mut Vec<u8>) -> Result<()> {
        let features = self.layout.features;
        let flags = InlineFlags::from_bits_retain(image.get(INLINE_AT).copied().unwrap_or(0));
        match field {
            "i_mode" => {
                if let Some(kind) = types::named(&self.context, ino) {
                    *image = types::with(image, kind);
                }
            }
            "i_namelen" => {
                let name = image.get(NAME_AT..NAME_AT.saturating_add(NAME_MAX)).unwrap_or_default();
                let len = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_MAX);
                let len = u32::try_from(len).unwrap_or_default();
                put(image, NAMELEN_AT, &len.to_le_bytes());
            }
            "i_blocks" => put(image, BLOCKS_AT, &1_u64.to_le_bytes()),
            "i_size" => put(image, SIZE_AT, &0_u64.to_le_bytes()),
            "i_dir_level" => put(image, DIR_LEVEL_AT, &[0]),
            "i_inline" => {
                let mut right = flags;
                right.set(
                    InlineFlags::EXTRA_ATTR,
                    match features.contains(Features::EXTRA_ATTR) {
                        true => {
                            flags.contains(InlineFlags::EXTRA_ATTR)
                                || features.contains(Features::FLEXIBLE_INLINE_XATTR)
                        }
                        false => false,
                    },
                );
                match types::stored(image) {
                    Some(FileKind::Regular | FileKind::Symlink) => {
                        right.remove(InlineFlags::DENTRY);
                    }
                    Some(FileKind::Directory) => right.remove(InlineFlags::DATA),
                    _ => right.remove(InlineFlags::DATA | InlineFlags::DENTRY),
                }
                put(image, INLINE_AT, &[right.bits()]);
            }
            // Marks of clusters that the file may have are found in the next round.
            "i_log_cluster_size" | "i_compress_algorithm" => {
                let compr = FileFlags::COMPR.bits().to_le_bytes();
                for (at, bit) in (FLAGS_AT..).zip(compr) {
                    let byte = image.get(at).copied().unwrap_or(0);
                    put(image, at, &[byte & !bit]);
                }
            }
            "i_extra_isize" => {
                let size = self.usual_extra_size()?;
                put(image, EXTRA_SIZE_AT, &size.to_le_bytes());
            }
            "i_inline_xattr_size" => {
                let words = u16::try_from(DEFAULT_INLINE_XATTR_WORDS).unwrap_or_default();
                if features.contains(Features::FLEXIBLE_INLINE_XATTR) {
                    put(image, INLINE_XATTR_SIZE_AT, &words.to_le_bytes());
                }
            }
            _ => {
                if let Ok(mut record) = Inode::decode(image, ino, features) {
                    clear_flags(field, features, &mut record);
                    record.encode_into(image);
                }
            }
        }
        Ok(())
    }

    /// The bytes of extra attributes that the root has, or else those of new inodes.
    fn usual_extra_size(&self) -> Result<u16> {
        let needs_checksum = self.layout.features.contains(Features::INODE_CHECKSUM);
        let root = self.inode(Nid::ROOT)?.and_then(|(root, _)| root.extra);
        let usual = root.filter(|extra| extra.has_checksum() || !needs_checksum);
        Ok(usual.map_or(EXTRA_SIZE, |extra| extra.size))
    }

    /// Sets the size of a file to the end of what it has.
    fn set_size(&mut self, ino: Nid) -> Result<()> {
        let Some((record, image)) = self.inode(ino)? else { return Ok(()) };
        let size = match record.inline.contains(InlineFlags::DATA) {
            true => record.inline_end(&image),
            false => {
                let last = self.data_blocks(ino)?.into_iter().map(|(block, _)| block).max();
                let end = last.map(|last| self.end_behind(ino, &record, last)).transpose()?;
                end.unwrap_or(0).saturating_mul(BLOCK_BYTES)
            }
        };
        self.change(ino, |record| record.size = size)?;
        Ok(())
    }
}

fn set_cluster(record: &mut Inode, log: u64) {
    if let (Some(extra), Ok(log)) = (&mut record.extra, u8::try_from(log)) {
        extra.log_cluster_size = log;
    }
}

fn clear_flags(field: &str, features: Features, record: &mut Inode) {
    match field {
        "i_flags" => {
            if !features.contains(Features::CASEFOLD) || record.kind != FileKind::Directory {
                record.flags.remove(FileFlags::CASEFOLD);
            }
            if !features.contains(Features::COMPRESSION) {
                record.flags.remove(FileFlags::COMPR);
            }
        }
        "i_advise" => record.advise.remove(Advise::ENCRYPT),
        "i_compress_flag" => {
            record.extra.iter_mut().for_each(|extra| {
                extra.compress_flag = compress::without_checksum(extra.compress_flag);
            });
        }
        "i_crtime" => {
            let changed = record.ctime;
            record.extra.iter_mut().for_each(|extra| extra.crtime = changed);
        }
        _ => {}
    }
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    debug_assert_eq!(image.len(), BLOCK_SIZE);
    if let Some(place) = image.get_mut(at..at.saturating_add(bytes.len())) {
        place.copy_from_slice(bytes);
    }
}
