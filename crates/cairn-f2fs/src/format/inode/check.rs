//! Checks an inode's fields against the features and the size of the block.

use cairn_base::units::as_u64;
use cairn_vfs::FileKind;

use super::{EXTRA_SIZE, FileFlags, InlineFlags, Inode};
use crate::corrupt::Corrupt;
use crate::format::features::Features;
use crate::format::units::Nid;

/// Most words for inline attributes.
const MAX_INLINE_XATTR_WORDS: u32 = 903;
/// Fewest words for inline attributes, where there are any: their header.
const MIN_INLINE_XATTR_WORDS: u32 = 6;

/// Sizes of extra attributes: the ends of what came with each feature. Writers give all that they
/// know, or all that the volume's features need.
const EXTRA_SIZES: [u16; 5] = [4, 8, 12, 24, EXTRA_SIZE];

impl Inode {
    pub(super) fn check(&self, ino: Nid, features: Features) -> Result<(), Corrupt> {
        let check = |field, value: u64, fine: bool, expected| {
            if fine { Ok(()) } else { Err(Corrupt::Inode { ino, field, value, expected }) }
        };
        check("i_blocks", self.blocks, self.blocks > 0, "an inode has at least its own block")?;
        check(
            "i_size",
            self.size,
            self.size <= i64::MAX.cast_unsigned(),
            "it is beyond every limit",
        )?;
        let inline = u64::from(self.inline.bits());
        if let Some(extra) = &self.extra {
            let allowed = features.contains(Features::EXTRA_ATTR);
            check("i_inline", inline, allowed, "there are extra attributes without the feature")?;
            let size = extra.size;
            let fine = EXTRA_SIZES.contains(&size);
            check("i_extra_isize", size.into(), fine, "it must be 4, 8, 12, 24 or 36")?;
        } else {
            let needed = features.intersects(Features::FLEXIBLE_INLINE_XATTR);
            check("i_inline", inline, !needed, "extra attributes are missing")?;
        }
        let words = self.inline_xattr_words();
        let fewest =
            if self.inline.contains(InlineFlags::XATTR) { MIN_INLINE_XATTR_WORDS } else { 0 };
        let fine = (fewest..=MAX_INLINE_XATTR_WORDS).contains(&words);
        check("i_inline_xattr_size", words.into(), fine, "it must be 6 to 903")?;
        self.check_inline(ino)?;
        let level = u64::from(self.dir_level);
        let fine = self.kind != FileKind::Directory || level < 64;
        check("i_dir_level", level, fine, "there are at most 63 levels")?;
        self.check_compression(ino)
    }

    fn check_inline(&self, ino: Nid) -> Result<(), Corrupt> {
        let bad = |field, value, expected| Err(Corrupt::Inode { ino, field, value, expected });
        let inline = u64::from(self.inline.bits());
        if self.inline.contains(InlineFlags::DATA)
            && !matches!(self.kind, FileKind::Regular | FileKind::Symlink)
        {
            return bad("i_inline", inline, "only files and symbolic links have inline data");
        }
        if self.inline.contains(InlineFlags::DENTRY) && self.kind != FileKind::Directory {
            return bad("i_inline", inline, "only directories have inline entries");
        }
        let has = self.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY);
        if has && self.max_inline_data() == 0 {
            return bad("i_inline", inline, "no room is left for inline contents");
        }
        // The room is the limit; a larger size means that blocks should be there.
        if self.inline.contains(InlineFlags::DATA) && self.size > as_u64(self.max_inline_data()) {
            return bad("i_size", self.size, "inline data ends earlier");
        }
        Ok(())
    }

    fn check_compression(&self, ino: Nid) -> Result<(), Corrupt> {
        let Some(extra) = self
            .extra
            .filter(|_| self.flags.contains(FileFlags::COMPR) && self.kind == FileKind::Regular)
        else {
            return Ok(());
        };
        if !extra.has_compression() {
            return Ok(());
        }
        let bad = |field, value, expected| Err(Corrupt::Inode { ino, field, value, expected });
        if !(2..=8).contains(&extra.log_cluster_size) {
            return bad("i_log_cluster_size", extra.log_cluster_size.into(), "it must be 2 to 8");
        }
        if extra.compress_algorithm > 3 {
            return bad(
                "i_compress_algorithm",
                extra.compress_algorithm.into(),
                "it must be 0 to 3",
            );
        }
        Ok(())
    }
}
