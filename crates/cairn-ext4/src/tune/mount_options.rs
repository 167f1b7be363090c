//! Default mount options (`s_default_mount_opts`). Source: "Default Mount Options" in the kernel's
//! ext4 documentation, and tune2fs(8).

use cairn_base::nearest::did_you_mean;
use zerocopy::little_endian::U32;

use crate::error::{Error, Result};
use crate::format::superblock::Superblock;

/// Names, and the bits that they set.
const NAMES: &[(&str, u32)] = &[
    ("debug", 0x1),
    ("bsdgroups", 0x2),
    ("user_xattr", 0x4),
    ("acl", 0x8),
    ("uid16", 0x10),
    ("journal_data", 0x20),
    ("journal_data_ordered", 0x40),
    ("journal_data_writeback", 0x60),
    ("nobarrier", 0x100),
    ("block_validity", 0x200),
    ("discard", 0x400),
    ("nodelalloc", 0x800),
];
/// The three ways to write data exclude each other.
const DATA: u32 = 0x60;

/// Adds the options, or removes those with `^`.
pub(super) fn change(superblock: &mut Superblock, wishes: &[String]) -> Result<()> {
    let mut bits = superblock.raw.s_default_mount_opts.get();
    for wish in wishes {
        let (name, on) = wish.strip_prefix('^').map_or((wish.as_str(), true), |name| (name, false));
        let Some((_, bit)) = NAMES.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            let meant = did_you_mean(name, names.iter().copied());
            return Err(Error::Option(format!(
                "`{name}` is no default mount option{meant}: there are {}; ^ before a name removes \
                 it",
                names.join(", ")
            )));
        };
        if bit & DATA != 0 && (on || bits & DATA == *bit) {
            bits &= !DATA;
        }
        match on {
            true => bits |= bit,
            false if bit & DATA == 0 => bits &= !bit,
            false => {}
        }
    }
    superblock.raw.s_default_mount_opts = U32::new(bits);
    Ok(())
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::format::superblock::RawSuperblock;

    #[test]
    fn one_way_to_write_data_at_most() {
        let mut superblock = Superblock { raw: RawSuperblock::new_zeroed() };
        let mut after = |wishes: &[&str]| {
            let wishes: Vec<String> = wishes.iter().map(|wish| (*wish).to_owned()).collect();
            change(&mut superblock, &wishes).unwrap();
            superblock.raw.s_default_mount_opts.get()
        };
        assert_eq!(after(&["acl", "journal_data_writeback"]), 0x68);
        assert_eq!(after(&["journal_data_ordered", "^acl"]), 0x40);
        assert_eq!(after(&["^journal_data"]), 0x40);
        assert_eq!(after(&["^journal_data_ordered", "discard"]), 0x400);
        let error = change(&mut superblock, &["discrad".into()]).unwrap_err().to_string();
        assert!(error.contains("`discard`"), "{error}");
    }
}
