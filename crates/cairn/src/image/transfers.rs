//! [`Transfers`]: the way to the bytes of a file.

/// How the bytes of a file or block device are transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transfers {
    /// Not said: as [`Transfers::Auto`].
    #[default]
    Unsaid,
    /// What the device is says it. Of a block device, large transfers go past the page cache of
    /// this system and small ones through it; of a file, all go through it.
    Auto,
    /// Past the page cache of this system (`O_DIRECT`), many at once where io_uring is allowed.
    Direct,
    /// Through the page cache of this system.
    Buffered,
}

impl Transfers {
    const NAMED: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("direct", Self::Direct), ("buffered", Self::Buffered)];

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(name, _)| *name == text).map(|(_, transfers)| *transfers)
    }

    pub(super) fn name(self) -> Option<&'static str> {
        Self::NAMED.iter().find(|(_, transfers)| *transfers == self).map(|(name, _)| *name)
    }
}
