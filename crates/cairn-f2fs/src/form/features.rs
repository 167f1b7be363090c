//! The feature bits of the superblock against the inodes, which say themselves what they have.
//!
//! Without the feature that inodes were written with, none of them can be read, or all are read
//! wrongly. Many inodes that agree are right, and the one word of the superblock is not. Features
//! that no inode shows stay as they are.

use cairn_base::units::{as_index, as_u64};

use crate::format::inode::{self, Advise, FileFlags, InlineFlags};
use crate::format::layout::Layout;
use crate::format::superblock::{CHECKSUM_OFFSET, Superblock, UTF8};
use crate::format::units::Nid;
use crate::format::{Features, Inode, xattr};

/// Where an inode has what speaks for features.
const INLINE_AT: usize = 3;
const ADVISE_AT: usize = 2;
const FLAGS_AT: usize = 80;
const EXTRA_SIZE_AT: usize = 360;
const XATTR_WORDS_AT: usize = 362;
const CLUSTER_AT: usize = 393;
/// Sizes of extra attributes.
const SIZES: [u16; 5] = [4, 8, 12, 24, 36];
/// Words that inline attributes can have.
const WORDS: std::ops::RangeInclusive<u16> = 6..=903;
/// Index of the attribute that says how an inode is encrypted.
const INDEX_ENCRYPTION: u8 = 9;

/// For and against a feature.
#[derive(Clone, Copy, Default)]
struct Votes {
    with: u32,
    without: u32,
}

impl Votes {
    fn add(&mut self, with: bool, without: bool) {
        self.with = self.with.saturating_add(with.into());
        self.without = self.without.saturating_add(without.into());
    }

    /// Sets or clears the feature if most inodes say so, and none contradicts a change that clears
    /// it.
    fn decide(self, feature: Features, features: &mut Features) {
        if self.with > self.without {
            features.insert(feature);
        } else if self.with == 0 && self.without > 0 {
            features.remove(feature);
        }
    }
}

/// The features that these inodes have. `inodes` are blocks with right footers.
pub(crate) fn proved(
    superblock: &Superblock,
    layout: &Layout,
    inodes: &[(Nid, Vec<u8>)],
) -> Features {
    let mut features = superblock.features;
    // Only a superblock with the feature has a place for its checksum.
    match as_index(superblock.checksum_offset) {
        0 if superblock.crc == 0 => features.remove(Features::SB_CHECKSUM),
        CHECKSUM_OFFSET => features.insert(Features::SB_CHECKSUM),
        _ => {}
    }
    let [mut extra, mut sums, mut flexible] = [Votes::default(); 3];
    for (ino, image) in inodes {
        let has_extra = has_extra(image);
        extra.add(has_extra, !has_extra);
        if has_extra {
            let sealed = Layout { features: features | Features::INODE_CHECKSUM, ..*layout };
            let sums_of = inode::checksums(image, &sealed);
            let is_right = sums_of.is_some_and(|(stored, computed)| stored == computed);
            sums.add(is_right, sums_of.is_some_and(|(stored, _)| stored == 0));
            let words = half(image, XATTR_WORDS_AT);
            let fills = |features| fills_inode(image, *ino, features);
            let needs = inline_flags(image).contains(InlineFlags::XATTR);
            flexible.add(
                WORDS.contains(&words) || fills(features | Features::FLEXIBLE_INLINE_XATTR),
                words == 0
                    && (needs || fills(features.difference(Features::FLEXIBLE_INLINE_XATTR))),
            );
        }
    }
    // An inode may lack them where others have them.
    if extra.with > extra.without {
        features.insert(Features::EXTRA_ATTR);
    }
    // This one is told by a field of the extra attributes: Linux opens no inode without them.
    if extra.with == 0 && extra.without > 0 {
        features.remove(Features::FLEXIBLE_INLINE_XATTR);
    }
    sums.decide(Features::INODE_CHECKSUM, &mut features);
    flexible.decide(Features::FLEXIBLE_INLINE_XATTR, &mut features);
    let shows = |is_one: fn(&[u8], Nid, Features) -> bool| {
        inodes.iter().any(|(ino, image)| is_one(image, *ino, features))
    };
    let compressed = shows(is_compressed);
    let folded = shows(|image, _, _| file_flags(image).contains(FileFlags::CASEFOLD));
    let encrypted = shows(is_encrypted);
    let has_quota = inodes
        .iter()
        .any(|(ino, image)| superblock.qf_ino.contains(ino) && has_no_name(image, *ino, features));
    features.set(Features::COMPRESSION, features.contains(Features::COMPRESSION) || compressed);
    features.set(Features::ENCRYPT, features.contains(Features::ENCRYPT) || encrypted);
    features.set(Features::QUOTA_INO, features.contains(Features::QUOTA_INO) || has_quota);
    // Names of such directories need an encoding, which only these volumes have.
    match superblock.s_encoding {
        0 if !folded => features.remove(Features::CASEFOLD),
        0 => {}
        _ if folded || superblock.s_encoding == UTF8 => features.insert(Features::CASEFOLD),
        _ => {}
    }
    features
}

fn has_extra(image: &[u8]) -> bool {
    inline_flags(image).contains(InlineFlags::EXTRA_ATTR)
        && SIZES.contains(&half(image, EXTRA_SIZE_AT))
}

/// A directory whose names lie in its inode, and whose size is the room for them. Mounted with
/// `noinline_xattr`, Linux gives an inode no words of attributes if the inode itself says how many
/// it has, and else the usual number.
fn fills_inode(image: &[u8], ino: Nid, features: Features) -> bool {
    Inode::decode(image, ino, features).is_ok_and(|record| {
        record.inline.contains(InlineFlags::DENTRY)
            && record.size == as_u64(record.max_inline_data())
    })
}

/// A compressed file, whose pointers have the mark of a cluster.
fn is_compressed(image: &[u8], ino: Nid, features: Features) -> bool {
    let cluster = image.get(CLUSTER_AT).copied().unwrap_or(0);
    let may_be = has_extra(image)
        && file_flags(image).contains(FileFlags::COMPR)
        && (2..=8).contains(&cluster);
    let record = Inode::decode(image, ino, features).ok().filter(|_| may_be);
    record.is_some_and(|record| {
        record.data_pointers(image).any(|addr| addr == crate::format::BlockAddr::COMPRESS)
    })
}

fn is_encrypted(image: &[u8], ino: Nid, features: Features) -> bool {
    let advise = Advise::from_bits_retain(image.get(ADVISE_AT).copied().unwrap_or(0));
    let record = Inode::decode(image, ino, features).ok();
    let record = record.filter(|_| advise.contains(Advise::ENCRYPT));
    record.is_some_and(|record| {
        let area = image.get(record.inline_xattr_range()).unwrap_or_default();
        let list = xattr::decode(area, ino).unwrap_or_default();
        list.iter().any(|attribute| attribute.index == INDEX_ENCRYPTION)
    })
}

/// An inode that never had a name, as those of quota files.
fn has_no_name(image: &[u8], ino: Nid, features: Features) -> bool {
    Inode::decode(image, ino, features).is_ok_and(|record| record.name.is_empty())
}

fn inline_flags(image: &[u8]) -> InlineFlags {
    InlineFlags::from_bits_retain(image.get(INLINE_AT).copied().unwrap_or(0))
}

fn file_flags(image: &[u8]) -> FileFlags {
    let bytes = image.get(FLAGS_AT..).and_then(<[u8]>::first_chunk);
    FileFlags::from_bits_retain(bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes)))
}

fn half(image: &[u8], at: usize) -> u16 {
    let bytes = image.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes))
}
