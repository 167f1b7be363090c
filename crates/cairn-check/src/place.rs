//! [`Place`]: where a defect is, as far as it is known.

use std::fmt;

/// Most bytes of a name or path that a finding keeps. A longer one loses its beginning.
const MOST: usize = 1024;

/// Where a defect is. Parts that are not known, or say nothing, are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Block group (ext4).
    pub group: Option<u64>,
    /// Segment (F2FS).
    pub segment: Option<u64>,
    /// Inode number.
    pub inode: Option<u64>,
    /// Node number (F2FS).
    pub node: Option<u64>,
    /// Block of the file.
    pub file_block: Option<u64>,
    /// Block of the volume.
    pub block: Option<u64>,
    /// Byte in the block.
    pub offset: Option<u64>,
    /// Number of a user, group or project.
    pub owner: Option<u64>,
    /// Field, in the words of the format's specification.
    pub field: Option<&'static str>,
    /// Name in the directory `inode`, or name of an attribute.
    pub name: Option<Box<[u8]>>,
    /// Path of the inode, if it was found.
    pub path: Option<Box<[u8]>>,
}

impl Place {
    /// The whole volume.
    #[must_use]
    pub fn volume() -> Self {
        Self::default()
    }

    /// A group.
    #[must_use]
    pub fn group(group: impl Into<u64>) -> Self {
        Self { group: Some(group.into()), ..Self::default() }
    }

    /// A segment.
    #[must_use]
    pub fn segment(segment: impl Into<u64>) -> Self {
        Self { segment: Some(segment.into()), ..Self::default() }
    }

    /// An inode.
    #[must_use]
    pub fn inode(inode: impl Into<u64>) -> Self {
        Self { inode: Some(inode.into()), ..Self::default() }
    }

    /// A node.
    #[must_use]
    pub fn node(node: impl Into<u64>) -> Self {
        Self { node: Some(node.into()), ..Self::default() }
    }

    /// A block of the volume.
    #[must_use]
    pub fn block(block: impl Into<u64>) -> Self {
        Self { block: Some(block.into()), ..Self::default() }
    }

    /// A field of the superblock or of another structure that there is once.
    #[must_use]
    pub fn field(field: &'static str) -> Self {
        Self { field: Some(field), ..Self::default() }
    }

    /// This block of the volume.
    #[must_use]
    pub fn at_block(self, block: impl Into<u64>) -> Self {
        Self { block: Some(block.into()), ..self }
    }

    /// This block of the file.
    #[must_use]
    pub fn at_file_block(self, block: impl Into<u64>) -> Self {
        Self { file_block: Some(block.into()), ..self }
    }

    /// This byte in the block.
    #[must_use]
    pub fn at_offset(self, offset: impl Into<u64>) -> Self {
        Self { offset: Some(offset.into()), ..self }
    }

    /// This user, group or project.
    #[must_use]
    pub fn of_owner(self, owner: impl Into<u64>) -> Self {
        Self { owner: Some(owner.into()), ..self }
    }

    /// This inode.
    #[must_use]
    pub fn of_inode(self, inode: impl Into<u64>) -> Self {
        Self { inode: Some(inode.into()), ..self }
    }

    /// This field.
    #[must_use]
    pub fn in_field(self, field: &'static str) -> Self {
        Self { field: Some(field), ..self }
    }

    /// This name.
    #[must_use]
    pub fn named(self, name: &[u8]) -> Self {
        Self { name: Some(end_of(name)), ..self }
    }

    /// This path.
    #[must_use]
    pub fn with_path(self, path: &[u8]) -> Self {
        Self { path: Some(end_of(path)), ..self }
    }

    /// True if nothing is known.
    #[must_use]
    pub fn is_volume(&self) -> bool {
        *self == Self::default()
    }
}

fn end_of(bytes: &[u8]) -> Box<[u8]> {
    bytes.get(bytes.len().saturating_sub(MOST)..).unwrap_or(bytes).into()
}

/// The parts, with their kinds, from the largest to the smallest. Bytes of names that are no
/// printable text are escaped.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = [
            ("group", self.group),
            ("segment", self.segment),
            ("inode", self.inode),
            ("node", self.node),
            ("file block", self.file_block),
            ("block", self.block),
            ("offset", self.offset),
            ("owner", self.owner),
        ];
        let mut before = "";
        for (what, number) in numbers {
            let Some(number) = number else { continue };
            write!(f, "{before}{what} {number}")?;
            before = ", ";
        }
        if let Some(field) = self.field {
            write!(f, "{before}{field}")?;
            before = ", ";
        }
        if let Some(name) = &self.name {
            write!(f, "{before}name \"{}\"", escaped(name))?;
            before = ", ";
        }
        match &self.path {
            Some(path) if before.is_empty() => write!(f, "{}", escaped(path)),
            Some(path) => write!(f, " ({})", escaped(path)),
            None if before.is_empty() => f.write_str("the volume"),
            None => Ok(()),
        }
    }
}

/// A name or path for a line: as text, with quotes, control characters and bytes that are no UTF-8
/// escaped.
#[must_use]
pub fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' | '\\' => text.extend(['\\', letter]),
                _ if letter.is_control() => text.extend(letter.escape_default()),
                _ => text.push(letter),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_line_of_its_known_parts() {
        let place = Place::inode(12_u64).at_file_block(3_u64).at_block(99_u64);
        assert_eq!(place.to_string(), "inode 12, file block 3, block 99");
        assert_eq!(Place::volume().to_string(), "the volume");
        let place = Place::inode(2_u64).named(b"a\n\xff\"").with_path(b"/");
        assert_eq!(place.to_string(), "inode 2, name \"a\\n\\xff\\\"\" (/)");
        assert_eq!(Place::field("s_state").to_string(), "s_state");
    }

    #[test]
    fn long_names_lose_their_beginning() {
        let mut name = vec![b'x'; 5000];
        name.push(b'y');
        let place = Place::inode(2_u64).named(&name);
        assert_eq!(place.name.unwrap().len(), MOST);
    }
}
