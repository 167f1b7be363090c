//! Extended headers of pax: records `LENGTH KEY=VALUE\n` for the next member, or for all that
//! follow.

use std::collections::BTreeMap;
use std::ops::Range;

use cairn_base::names::Escaped;
use cairn_vfs::{Acl, Timestamp, acl};

use super::acl_text::{self, BadList};
use crate::base64;
use crate::node::Xattr;

/// Most bytes of an extended header.
pub(super) const HEADER_MAX: u64 = 1 << 20;
/// Most bytes of extended headers for all members that follow.
const GLOBAL_MAX: u64 = 1 << 16;
/// Longest name of an attribute, and longest value: what Linux allows.
const NAME_MAX: usize = 255;
const VALUE_MAX: usize = 1 << 16;
/// Most ranges of a sparse file.
pub(crate) const RANGES_MAX: usize = 1 << 20;

/// What extended headers say.
#[derive(Clone, Debug, Default)]
pub(super) struct Extensions {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) mtime: Option<Timestamp>,
    pub(super) atime: Option<Timestamp>,
    pub(super) ctime: Option<Timestamp>,
    pub(super) device: (Option<u32>, Option<u32>),
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) sparse: Sparse,
    /// Access lists whose names have no numbers yet.
    pub(super) named: Vec<(&'static [u8], Vec<u8>)>,
    /// Bytes of the records so far.
    bytes: u64,
}

/// GNU's records about a sparse member: forms 0.0, 0.1 and 1.0.
#[derive(Clone, Debug, Default)]
pub(super) struct Sparse {
    /// The real size.
    pub(super) size: Option<u64>,
    /// The map of 0.0 and 0.1.
    pub(super) map: Option<Vec<Range<u64>>>,
    /// An offset of form 0.0 whose length follows.
    offset: Option<u64>,
    /// The map stands before the data (1.0).
    pub(super) in_data: bool,
    /// The real name.
    name: Option<Vec<u8>>,
}

impl Extensions {
    /// Adds the records of a header. They go before what is there.
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > HEADER_MAX {
            return Err(format!("extended headers of more than {HEADER_MAX} bytes"));
        }
        while !bytes.is_empty() {
            let (record, rest) = split_record(bytes).ok_or("damaged extended header")?;
            let equals = record.iter().position(|byte| *byte == b'=');
            let (key, value) = equals
                .and_then(|at| Some((record.get(..at)?, record.get(at + 1..)?)))
                .ok_or("damaged extended header: a record without '='")?;
            self.record(key, value)?;
            bytes = rest;
        }
        if let Some(name) = self.sparse.name.take() {
            self.path = Some(name);
        }
        Ok(())
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let shown = || key.escaped();
        let number =
            || decimal(value).ok_or_else(|| format!("damaged extended header: {}", shown()));
        let device = || {
            number().and_then(|number| {
                u32::try_from(number).map_err(|_| format!("{} {number} is not possible", shown()))
            })
        };
        let time = || time(value).ok_or_else(|| format!("damaged extended header: {}", shown()));
        if value.is_empty() && self.remove(key) {
            return Ok(());
        }
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(number()?),
            b"uid" => self.uid = Some(number()?),
            b"gid" => self.gid = Some(number()?),
            b"mtime" => self.mtime = Some(time()?),
            b"atime" => self.atime = Some(time()?),
            b"ctime" => self.ctime = Some(time()?),
            b"SCHILY.devmajor" => self.device.0 = Some(device()?),
            b"SCHILY.devminor" => self.device.1 = Some(device()?),
            b"SCHILY.acl.access" => self.acl(acl::ACCESS, value)?,
            b"SCHILY.acl.default" => self.acl(acl::DEFAULT, value)?,
            b"RHT.security.selinux" => self.xattr(b"security.selinux", value)?,
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.sparse.size = Some(number()?),
            b"GNU.sparse.major" => self.sparse.in_data = number()? == 1,
            b"GNU.sparse.name" => self.sparse.name = Some(value.to_vec()),
            b"GNU.sparse.map" => self.sparse.map = Some(ranges(value)?),
            b"GNU.sparse.offset" => self.sparse.offset = Some(number()?),
            b"GNU.sparse.numbytes" => self.sparse_range(number()?)?,
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattr(name, value)?;
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    let decoded = unquoted(name).zip(base64::decode(value));
                    let (name, value) =
                        decoded.ok_or_else(|| format!("damaged attribute {}", shown()))?;
                    // bsdtar writes both forms.
                    if !self.xattrs.contains_key(&name) {
                        self.xattr(&name, &value)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A record without a value takes away what an earlier one has said. False if the key is of
    /// another kind.
    fn remove(&mut self, key: &[u8]) -> bool {
        match key {
            b"path" => self.path = None,
            b"linkpath" => self.link = None,
            b"size" => self.size = None,
            b"uid" => self.uid = None,
            b"gid" => self.gid = None,
            b"mtime" => self.mtime = None,
            b"atime" => self.atime = None,
            b"ctime" => self.ctime = None,
            b"GNU.sparse.name" => self.sparse.name = None,
            _ => return false,
        }
        true
    }

    fn sparse_range(&mut self, len: u64) -> Result<(), String> {
        let start =
            self.sparse.offset.take().ok_or("damaged sparse map: a length without offset")?;
        let end = start.checked_add(len).ok_or("the sparse map leads beyond 2^64")?;
        let map = self.sparse.map.get_or_insert_default();
        if map.len() >= RANGES_MAX {
            return Err(format!("a sparse map of more than {RANGES_MAX} ranges"));
        }
        map.push(start..end);
        Ok(())
    }

    fn xattr(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        let refused = |why: String| {
            let name = name.escaped();
            Err(format!("attribute {name}: {why}: leave it out of the archive"))
        };
        if name.is_empty() || name.len() > NAME_MAX || name.contains(&0) {
            let len = name.len();
            return refused(format!(
                "a name of {len} bytes, or with a NUL, where Linux has 1 to 255"
            ));
        }
        if value.len() > VALUE_MAX {
            return refused(format!("{} bytes, where Linux has at most {VALUE_MAX}", value.len()));
        }
        self.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn acl(&mut self, name: &'static [u8], text: &[u8]) -> Result<(), String> {
        if text.is_empty() {
            return Ok(());
        }
        let list = match acl_text::parse(text, &|_, _| None) {
            Ok(list) => list,
            Err(BadList::Text(why)) => return Err(why),
            Err(BadList::NoId(_)) => {
                self.named.push((name, text.to_vec()));
                return Ok(());
            }
        };
        // A list that says no more than the mode is no attribute in Linux.
        if name == acl::DEFAULT || !is_mode(&list) {
            self.xattrs.insert(name.to_vec(), list.to_xattr());
        }
        Ok(())
    }

    /// True if there are too many records for headers that hold for all members.
    pub(super) fn is_too_large_for_all(&self) -> bool {
        self.bytes > GLOBAL_MAX
    }

    /// The attributes of the member.
    pub(super) fn xattrs(&self) -> Vec<Xattr> {
        let xattr = |(name, value): (&Vec<u8>, &Vec<u8>)| Xattr {
            name: name.as_slice().into(),
            value: value.as_slice().into(),
        };
        self.xattrs.iter().map(xattr).collect()
    }
}

fn is_mode(list: &Acl) -> bool {
    list.entries().len() == 3
}

/// The first record without its length and newline, and the rest.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let len = usize::try_from(decimal(bytes.get(..space)?)?).ok()?;
    let (record, rest) = bytes.split_at_checked(len)?;
    let record = record.get(space.checked_add(1)?..)?.strip_suffix(b"\n")?;
    Some((record, rest))
}

pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// `[-]SECONDS[.FRACTION]`.
fn time(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    // The fraction of a time before 1970 leads away from 0, too.
    if whole.starts_with('-') && nanoseconds > 0 {
        let seconds = seconds.checked_sub(1)?;
        return Some(Timestamp { seconds, nanoseconds: 1_000_000_000 - nanoseconds });
    }
    Some(Timestamp { seconds, nanoseconds })
}

/// `OFFSET,LENGTH,OFFSET,LENGTH…`
fn ranges(text: &[u8]) -> Result<Vec<Range<u64>>, String> {
    let mut map = Vec::new();
    let mut numbers = text.split(|byte| *byte == b',').map(decimal);
    while let Some(start) = numbers.next() {
        let range = start.zip(numbers.next().flatten());
        let range = range.and_then(|(start, len)| Some(start..start.checked_add(len)?));
        map.push(range.ok_or("damaged sparse map")?);
    }
    Ok(map)
}

/// Undoes `%XX`.
fn unquoted(name: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let mut rest = name;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' {
            let (digits, behind) = rest.split_at_checked(2)?;
            plain.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = behind;
        } else {
            plain.push(*first);
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_all_kinds() {
        let mut of = Extensions::default();
        of.add(b"12 path=a/b\n21 mtime=-1.25000000\n28 SCHILY.xattr.user.a=x=\0y\n").unwrap();
        assert_eq!(of.path.as_deref(), Some(&b"a/b"[..]));
        assert_eq!(of.mtime, Some(Timestamp { seconds: -2, nanoseconds: 750_000_000 }));
        assert_eq!(of.xattrs[&b"user.a"[..]], b"x=\0y");
        for damaged in [&b"12 path"[..], b"5 a\n", b"x a=b\n", b"99999 path=a\n", b"11 size=ab\n"] {
            assert!(Extensions::default().add(damaged).is_err(), "{}", damaged.escape_ascii());
        }
    }

    #[test]
    fn records_without_a_value_take_away() {
        let mut of = Extensions::default();
        of.add(b"12 path=a/b\n12 size=100\n8 gid=7\n").unwrap();
        of.add(b"8 path=\n8 size=\n7 gid=\n").unwrap();
        assert_eq!((of.path, of.size, of.gid), (None, None, None));
    }

    #[test]
    fn what_libarchive_quotes() {
        assert_eq!(unquoted(b"user.a%20b").unwrap(), b"user.a b");
        assert!(unquoted(b"%2").is_none());
    }
}
