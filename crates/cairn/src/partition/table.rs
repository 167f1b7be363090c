//! A partition table.

/// A partition's place in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// One entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// From 1.
    pub number: u32,
    /// Its place.
    pub range: Range,
    /// Its type, in words if the type is known.
    pub kind: String,
    /// Its name, if the entry has one.
    pub name: Option<String>,
}

/// A table's partitions, in the table's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// `GPT` or `MBR`.
    pub kind: &'static str,
    /// The entries in use.
    pub partitions: Vec<Partition>,
}
