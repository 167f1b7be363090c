//! POSIX access control lists: the value of `system.posix_acl_access` and
//! `system.posix_acl_default`, the compact form that ext4 and F2FS store, and the relation between
//! a list and a file's permission bits.
//!
//! Invariant of an [`Acl`]: it has one `UserObj`, one `GroupObj` and one `Other`. It has a `Mask`
//! if it has a named user or group. The entries are in canonical order (tag, then id), so that
//! equal lists have equal bytes.

/// Name of the attribute that holds a file's access control list.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the attribute that holds a directory's default list, which new entries inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// `POSIX_ACL_XATTR_VERSION` of Linux.
const XATTR_VERSION: u32 = 2;
/// `EXT4_ACL_VERSION` and `F2FS_ACL_VERSION`.
const COMPACT_VERSION: u32 = 1;
/// The permission bits that count.
const EFFECTIVE: u16 = 0o7;
/// `ACL_UNDEFINED_ID`: the id field of an entry without an id.
const NO_ID: u32 = u32::MAX;

/// Whom an entry applies to. The order is the canonical order of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tag {
    /// The owner.
    UserObj,
    /// A named user.
    User(u32),
    /// The owning group.
    GroupObj,
    /// A named group.
    Group(u32),
    /// The upper bound for named users and all groups.
    Mask,
    /// All other users.
    Other,
}

impl Tag {
    const fn code(self) -> u16 {
        match self {
            Self::UserObj => 0x01,
            Self::User(_) => 0x02,
            Self::GroupObj => 0x04,
            Self::Group(_) => 0x08,
            Self::Mask => 0x10,
            Self::Other => 0x20,
        }
    }

    const fn from_code(code: u16, id: u32) -> Option<Self> {
        Some(match code {
            0x01 => Self::UserObj,
            0x02 => Self::User(id),
            0x04 => Self::GroupObj,
            0x08 => Self::Group(id),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }

    const fn id(self) -> Option<u32> {
        match self {
            Self::User(id) | Self::Group(id) => Some(id),
            _ => None,
        }
    }
}

/// One entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whom it applies to.
    pub tag: Tag,
    /// `rwx` bits, 0 to 7.
    pub permissions: u8,
}

/// Why bytes are not an access control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// The length is not that of a whole number of entries.
    #[error("an access control list cannot have {0} bytes")]
    Length(usize),
    /// The version is unknown.
    #[error("access control list of the unknown version {0}")]
    Version(u32),
    /// The tag is unknown.
    #[error("unknown tag {0:#x} in an access control list")]
    Tag(u16),
    /// There are permission bits beyond `rwx`.
    #[error("impossible permissions {0:#o} in an access control list")]
    Permissions(u16),
    /// A required entry is missing, or one that does not name a user or group occurs twice.
    #[error("access control list without a required entry, or with one twice")]
    Shape,
}

/// A validated list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// Sorts and validates entries.
    ///
    /// # Errors
    /// [`AclError::Permissions`] for a bit beyond `rwx`. [`AclError::Shape`] if a required entry is
    /// missing, or one that does not name a user or group occurs twice. A user or group may have
    /// several entries, as in Linux; the first one counts.
    pub fn new(mut entries: Vec<Entry>) -> Result<Self, AclError> {
        entries.sort_by_key(|entry| entry.tag);
        let count = |tag: Tag| entries.iter().filter(|entry| entry.tag == tag).count();
        let named = entries.iter().any(|entry| entry.tag.id().is_some());
        let complete =
            count(Tag::UserObj) == 1 && count(Tag::GroupObj) == 1 && count(Tag::Other) == 1;
        let masks = count(Tag::Mask);
        if !complete || masks > 1 || (named && masks == 0) {
            return Err(AclError::Shape);
        }
        if let Some(bad) = entries.iter().find(|entry| entry.permissions > 7) {
            return Err(AclError::Permissions(bad.permissions.into()));
        }
        Ok(Self { entries })
    }

    /// The list with three entries that corresponds to permission bits.
    #[must_use]
    pub fn from_mode(mode: u32) -> Self {
        let entry = |tag, shift: u32| Entry { tag, permissions: bits(mode, shift) };
        Self {
            entries: vec![entry(Tag::UserObj, 6), entry(Tag::GroupObj, 3), entry(Tag::Other, 0)],
        }
    }

    /// Decodes an attribute's value. `None` is the empty list: setting it removes the attribute.
    ///
    /// # Errors
    /// The length, version or tag is invalid, or [`Acl::new`] refuses the entries.
    pub fn from_xattr(value: &[u8]) -> Result<Option<Self>, AclError> {
        let body = after_version(value, XATTR_VERSION)?;
        let (chunks, rest) = body.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(AclError::Length(value.len()));
        }
        let mut entries = Vec::with_capacity(chunks.len());
        for [t0, t1, p0, p1, id @ ..] in chunks {
            entries.push(decode(
                u16::from_le_bytes([*t0, *t1]),
                u16::from_le_bytes([*p0, *p1]),
                u32::from_le_bytes(*id),
            )?);
        }
        if entries.is_empty() { Ok(None) } else { Self::new(entries).map(Some) }
    }

    /// Encodes the list as an attribute's value.
    #[must_use]
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut value = XATTR_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            value.extend(entry.tag.code().to_le_bytes());
            value.extend(u16::from(entry.permissions).to_le_bytes());
            value.extend(entry.tag.id().unwrap_or(NO_ID).to_le_bytes());
        }
        value
    }

    /// Decodes the form that ext4 and F2FS store, where only named entries have an id. Permission
    /// bits beyond `rwx` count for nothing, as in Linux.
    ///
    /// # Errors
    /// As [`Acl::from_xattr`].
    pub fn from_compact(value: &[u8]) -> Result<Option<Self>, AclError> {
        let mut body = after_version(value, COMPACT_VERSION)?;
        let mut entries = Vec::new();
        while let Some((&[t0, t1, p0, p1], rest)) = body.split_first_chunk::<4>() {
            body = rest;
            let code = u16::from_le_bytes([t0, t1]);
            let mut id = NO_ID;
            if matches!(code, 0x02 | 0x08) {
                let (bytes, rest) =
                    body.split_first_chunk::<4>().ok_or(AclError::Length(value.len()))?;
                id = u32::from_le_bytes(*bytes);
                body = rest;
            }
            let permissions = u16::from_le_bytes([p0, p1]) & EFFECTIVE;
            entries.push(decode(code, permissions, id)?);
        }
        match (body.is_empty(), entries.is_empty()) {
            (false, _) => Err(AclError::Length(value.len())),
            (true, true) => Ok(None),
            (true, false) => Self::new(entries).map(Some),
        }
    }

    /// Encodes the form that ext4 and F2FS store.
    #[must_use]
    pub fn to_compact(&self) -> Vec<u8> {
        let mut value = COMPACT_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            value.extend(entry.tag.code().to_le_bytes());
            value.extend(u16::from(entry.permissions).to_le_bytes());
            value.extend(entry.tag.id().into_iter().flat_map(u32::to_le_bytes));
        }
        value
    }

    /// The entries in canonical order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The nine permission bits that `stat` shows for a file with this list; the group's bits are
    /// those of the mask. True if the bits contain all of the list, which then need not be stored.
    #[must_use]
    pub fn equivalent_mode(&self) -> (u32, bool) {
        let of = |tag: Tag| {
            self.entries
                .iter()
                .find(|entry| entry.tag == tag)
                .map(|entry| u32::from(entry.permissions))
        };
        let group = of(Tag::Mask).or(of(Tag::GroupObj)).unwrap_or(0);
        let mode = of(Tag::UserObj).unwrap_or(0) << 6 | group << 3 | of(Tag::Other).unwrap_or(0);
        (mode, self.entries.len() == 3)
    }

    /// The list after `chmod`: the mask gets the group's bits if there is one.
    #[must_use]
    pub fn with_mode(&self, mode: u32) -> Self {
        let mut changed = self.clone();
        changed.map_classes(mode, |_, asked| asked);
        changed
    }

    /// Applies a directory's default list to a new inode. Returns the inode's mode, with file type
    /// and special bits of `mode`; its own list, unless the mode contains all of it; and its
    /// default list if `mode` is that of a directory. The umask is not applied.
    #[must_use]
    pub fn inherit(parent_default: &Self, mode: u32) -> (u32, Option<Self>, Option<Self>) {
        let mut access = parent_default.clone();
        access.map_classes(mode, |inherited, asked| inherited & asked);
        let (permissions, complete) = access.equivalent_mode();
        let is_directory = mode & 0o170_000 == 0o040_000;
        (
            mode & !0o777 | permissions,
            (!complete).then_some(access),
            is_directory.then(|| parent_default.clone()),
        )
    }

    /// As [`Acl::inherit`] if the directory has a default list; otherwise applies the umask only.
    /// The mode of a symbolic link does not change.
    #[must_use]
    pub fn for_new_inode(
        parent_default: Option<&Self>,
        mode: u32,
        umask: u32,
    ) -> (u32, Option<Self>, Option<Self>) {
        match parent_default {
            _ if mode & 0o170_000 == 0o120_000 => (mode, None, None),
            Some(default) => Self::inherit(default, mode),
            None => (mode & !(umask & 0o777), None, None),
        }
    }

    /// Changes the entries that the mode's three classes correspond to: owner, group (the mask if
    /// there is one) and others.
    fn map_classes(&mut self, mode: u32, change: impl Fn(u8, u8) -> u8) {
        let masked = self.entries.iter().any(|entry| entry.tag == Tag::Mask);
        for entry in &mut self.entries {
            let asked = match entry.tag {
                Tag::UserObj => bits(mode, 6),
                Tag::Mask => bits(mode, 3),
                Tag::GroupObj if !masked => bits(mode, 3),
                Tag::Other => bits(mode, 0),
                Tag::GroupObj | Tag::User(_) | Tag::Group(_) => continue,
            };
            entry.permissions = change(entry.permissions, asked);
        }
    }
}

fn bits(mode: u32, shift: u32) -> u8 {
    // Three bits always fit.
    u8::try_from(mode >> shift & 7).unwrap_or(0)
}

/// Converts a list from the form that ext4 and F2FS store to an attribute's value, without
/// validating its entries: Linux shows lists that it would not accept. `None` if there are no
/// entries.
///
/// Permission bits beyond `rwx` are left out. Linux shows them, reads the list as if they were not
/// there, and refuses to set them: a copy could not have this list.
///
/// # Errors
/// The length, the version or a tag is invalid; Linux returns EINVAL.
pub fn shown_from_compact(value: &[u8]) -> Result<Option<Vec<u8>>, AclError> {
    if value.is_empty() {
        return Ok(None);
    }
    let wrong = AclError::Length(value.len());
    let mut body = after_version(value, COMPACT_VERSION)?;
    let count = compact_entries(body.len()).ok_or(wrong)?;
    let mut shown = XATTR_VERSION.to_le_bytes().to_vec();
    for _ in 0..count {
        let (fixed, behind) = body.split_first_chunk::<4>().ok_or(wrong)?;
        body = behind;
        let [t0, t1, p0, p1] = *fixed;
        let code = u16::from_le_bytes([t0, t1]);
        let tag = Tag::from_code(code, NO_ID).ok_or(AclError::Tag(code))?;
        let mut id = NO_ID.to_le_bytes();
        if tag.id().is_some() {
            let (bytes, behind) = body.split_first_chunk::<4>().ok_or(wrong)?;
            (id, body) = (*bytes, behind);
        }
        shown.extend_from_slice(&[t0, t1]);
        shown.extend_from_slice(&(u16::from_le_bytes([p0, p1]) & EFFECTIVE).to_le_bytes());
        shown.extend_from_slice(&id);
    }
    if body.is_empty() { Ok((count > 0).then_some(shown)) } else { Err(wrong) }
}

/// Number of entries in `len` bytes. At most four entries have no id, and a list with named entries
/// has exactly four of these.
const fn compact_entries(len: usize) -> Option<usize> {
    const WITHOUT_ID: usize = 4 * 4;
    match len.checked_sub(WITHOUT_ID) {
        None if len.is_multiple_of(4) => Some(len / 4),
        Some(rest) if rest.is_multiple_of(8) => Some(4 + rest / 8),
        _ => None,
    }
}

fn after_version(value: &[u8], version: u32) -> Result<&[u8], AclError> {
    let (found, body) = value.split_first_chunk::<4>().ok_or(AclError::Length(value.len()))?;
    let found = u32::from_le_bytes(*found);
    if found == version { Ok(body) } else { Err(AclError::Version(found)) }
}

fn decode(code: u16, permissions: u16, id: u32) -> Result<Entry, AclError> {
    let tag = Tag::from_code(code, id).ok_or(AclError::Tag(code))?;
    match u8::try_from(permissions) {
        Ok(permissions) if permissions <= 7 => Ok(Entry { tag, permissions }),
        _ => Err(AclError::Permissions(permissions)),
    }
}

#[cfg(test)]
mod tests;
