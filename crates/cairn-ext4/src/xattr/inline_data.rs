//! Inline contents: 60 bytes in `i_block`, the rest in the attribute `system.data`. The attribute
//! exists even if its value is empty. Source: "Inline Data" in the kernel's ext4 documentation.

#[cfg(test)]
use std::ops::Range;

use cairn_base::Ino;

use super::names::SYSTEM;
use crate::error::Result;
use crate::format::xattr::{self, OwnedAttribute, OwnedValue, XattrLocation};
#[cfg(test)]
use crate::format::xattr::{Attribute, Value};

/// Bytes in `i_block`.
pub(crate) const HEAD_LEN: usize = 60;
const NAME: &[u8] = b"data";

#[cfg(test)]
fn find(area: &[u8], ino: Ino) -> Result<Option<Attribute<'_>>> {
    let mut attributes = xattr::decode(area, XattrLocation::Inode, ino)?.into_iter();
    Ok(attributes.find(|attribute| attribute.index == SYSTEM && attribute.name == NAME))
}

/// The place of the value of `system.data` in the attribute area.
///
/// # Errors
/// The area is damaged, or the attribute is missing or in another place.
#[cfg(test)]
pub(crate) fn tail_range(area: &[u8], ino: Ino) -> Result<Range<usize>> {
    let missing = || XattrLocation::Inode.corrupt(ino, "inline data without system.data", 0);
    let attribute = find(area, ino)?.ok_or_else(missing)?;
    match attribute.value {
        Value::Here(value) => {
            Ok(attribute.value_at..attribute.value_at.saturating_add(value.len()))
        }
        Value::Inode { ino: value, .. } => Err(XattrLocation::Inode
            .corrupt(ino, "system.data lives in an inode", value.get())
            .into()),
    }
}

/// The contents: `size` bytes, or fewer if fewer are stored.
///
/// # Errors
/// The attribute area is damaged.
#[cfg(test)]
pub(crate) fn read(head: &[u8; HEAD_LEN], area: &[u8], ino: Ino, size: u64) -> Result<Vec<u8>> {
    let tail = area.get(tail_range(area, ino)?).unwrap_or(&[]);
    let mut data = [head, tail].concat();
    data.truncate(usize::try_from(size).unwrap_or(usize::MAX));
    Ok(data)
}

/// Longest contents that fit beside the other attributes.
///
/// # Errors
/// The attribute area is damaged.
pub(crate) fn capacity(area: &[u8], ino: Ino) -> Result<usize> {
    let mut others = without(area, ino)?;
    others.push(attribute(Vec::new()));
    Ok(match area.len().checked_sub(xattr::encoded_len(XattrLocation::Inode, &others)) {
        Some(free) => HEAD_LEN.saturating_add(free & !3),
        None => 0,
    })
}

/// Stores the contents. False if they do not fit; then nothing has changed.
///
/// # Errors
/// The attribute area is damaged.
pub(crate) fn write(
    head: &mut [u8; HEAD_LEN],
    area: &mut [u8],
    ino: Ino,
    data: &[u8],
) -> Result<bool> {
    let (start, rest) = data.split_at(data.len().min(HEAD_LEN));
    let mut attributes = without(area, ino)?;
    // It is the first attribute, as in Linux, so that later attributes do not move it.
    attributes.insert(0, attribute(rest.to_vec()));
    if !xattr::fits(area.len(), XattrLocation::Inode, &attributes) {
        return Ok(false);
    }
    head.fill(0);
    head.iter_mut().zip(start).for_each(|(to, from)| *to = *from);
    xattr::encode_inode(area, &attributes);
    Ok(true)
}

/// The attribute that holds what does not fit `i_block`.
pub(crate) fn attribute(value: Vec<u8>) -> OwnedAttribute {
    OwnedAttribute { index: SYSTEM, name: NAME.to_vec(), value: OwnedValue::Here(value) }
}

fn without(area: &[u8], ino: Ino) -> Result<Vec<OwnedAttribute>> {
    let attributes = xattr::decode(area, XattrLocation::Inode, ino)?;
    let others = attributes.iter().filter(|a| !(a.index == SYSTEM && a.name == NAME));
    Ok(others.map(OwnedAttribute::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_grow_to_the_capacity_and_no_further() {
        let ino = Ino(12);
        let (mut head, mut area) = ([0; HEAD_LEN], vec![0; 96]);
        let capacity = capacity(&area, ino).unwrap();
        assert_eq!(capacity, 60 + 96 - 4 - 20 - 4);
        for len in [0, 1, 59, 60, 61, 63, capacity] {
            let data: Vec<u8> = (0..len).map(|i| i as u8 + 1).collect();
            assert!(write(&mut head, &mut area, ino, &data).unwrap(), "{len} bytes");
            assert_eq!(read(&head, &area, ino, len as u64).unwrap(), data);
            assert_eq!(super::capacity(&area, ino).unwrap(), capacity);
        }
        let before = (head, area.clone());
        assert!(!write(&mut head, &mut area, ino, &vec![0; capacity + 1]).unwrap());
        assert_eq!((head, area.clone()), before);
        assert!(read(&head, &[0; 96], ino, 1).is_err());
    }
}
