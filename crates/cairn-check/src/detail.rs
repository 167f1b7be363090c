//! [`Fields`]: what `cairn dump` and `cairn journal` show of a structure, for text and JSON alike.
//!
//! Keys are those of the formats' specifications. A checksum is always shown in one form:
//! [`Fields::checksum`].

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Yes or no.
    Flag(bool),
    /// A number.
    Number(u64),
    /// A number of which the digits matter, such as a hash.
    Hex(u64),
    /// Seconds since 1970.
    Time(i64),
    /// Words.
    Text(String),
    /// A name or a value of any bytes.
    Name(Vec<u8>),
    /// The bytes of a block.
    Bytes(Vec<u8>),
    /// Several values.
    List(Vec<Detail>),
    /// A structure within.
    Fields(Fields),
}

/// A structure: keys and values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<(&'static str, Detail)>);

impl Fields {
    /// A structure without fields.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a field.
    pub fn put(&mut self, key: &'static str, value: impl Into<Detail>) {
        self.0.push((key, value.into()));
    }

    /// With one more field.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Detail>) -> Self {
        self.put(key, value);
        self
    }

    /// Adds a stored checksum, and what it should be.
    pub fn checksum(&mut self, stored: u32, computed: u32) {
        let sum = Self::new()
            .with("stored", Detail::Hex(stored.into()))
            .with("computed", Detail::Hex(computed.into()))
            .with("right", stored == computed);
        self.put("checksum", sum);
    }

    /// The fields.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Detail)> {
        self.0.iter().map(|(key, value)| (*key, value))
    }

    /// A field.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Detail> {
        self.0.iter().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// A number, if the field is one.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Detail::Number(number) | Detail::Hex(number) => Some(*number),
            _ => None,
        }
    }

    /// The structures of a list.
    pub fn list(&self, key: &str) -> impl Iterator<Item = &Self> {
        let list: &[Detail] = match self.get(key) {
            Some(Detail::List(list)) => list,
            _ => &[],
        };
        list.iter().filter_map(|one| match one {
            Detail::Fields(fields) => Some(fields),
            _ => None,
        })
    }
}

impl From<bool> for Detail {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}

impl From<u64> for Detail {
    fn from(value: u64) -> Self {
        Self::Number(value)
    }
}

impl From<u32> for Detail {
    fn from(value: u32) -> Self {
        Self::Number(value.into())
    }
}

impl From<u16> for Detail {
    fn from(value: u16) -> Self {
        Self::Number(value.into())
    }
}

impl From<u8> for Detail {
    fn from(value: u8) -> Self {
        Self::Number(value.into())
    }
}

impl From<usize> for Detail {
    fn from(value: usize) -> Self {
        Self::Number(u64::try_from(value).unwrap_or(u64::MAX))
    }
}

impl From<&str> for Detail {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Detail {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Fields> for Detail {
    fn from(value: Fields) -> Self {
        Self::Fields(value)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Detail {
    fn from(value: Vec<T>) -> Self {
        Self::List(value.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_key() {
        let mut fields = Fields::new().with("block", 7_u32).with("is_free", true);
        fields.checksum(1, 2);
        fields.put("extents", vec![Fields::new().with("start", 3_u64)]);
        assert_eq!(fields.number("block"), Some(7));
        assert_eq!(fields.number("is_free"), None);
        assert_eq!(fields.list("extents").next().and_then(|one| one.number("start")), Some(3));
        let Some(Detail::Fields(sum)) = fields.get("checksum") else { panic!("no checksum") };
        assert_eq!(sum.get("right"), Some(&Detail::Flag(false)));
    }
}
