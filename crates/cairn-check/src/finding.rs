//! [`Finding`]: a defect at its place, with what is stored and what should be.

use std::fmt;

use crate::kind::Kind;
use crate::place::Place;

/// Most bytes of a text that a finding keeps.
const MOST: usize = 255;

/// A stored or computed value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A number, shown in decimal digits.
    Number(u64),
    /// A checksum, a hash or flags, shown in hexadecimal digits.
    Hex(u64),
    /// A mode, shown in octal digits.
    Octal(u64),
    /// Anything else.
    Text(Box<str>),
}

impl Value {
    /// The number, however it is shown.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) | Self::Hex(number) | Self::Octal(number) => Some(*number),
            Self::Text(_) => None,
        }
    }

    /// A text. The end of a long one is left out.
    #[must_use]
    pub fn text(text: impl AsRef<str>) -> Self {
        let text = text.as_ref();
        let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= MOST).last();
        let cut = if text.len() > MOST { text.get(..end.unwrap_or(0)) } else { Some(text) };
        Self::Text(cut.unwrap_or_default().into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Hex(number) => write!(f, "{number:#x}"),
            Self::Octal(number) => write!(f, "{number:#o}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A defect of a volume.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What it is.
    pub kind: &'static Kind,
    /// Where it is.
    pub place: Place,
    /// What is on the volume.
    pub stored: Option<Value>,
    /// What should be there.
    pub computed: Option<Value>,
}

impl Finding {
    /// A defect at a place.
    #[must_use]
    pub const fn new(kind: &'static Kind, place: Place) -> Self {
        Self { kind, place, stored: None, computed: None }
    }

    /// With what is stored.
    #[must_use]
    pub fn stored(self, value: impl Into<Value>) -> Self {
        Self { stored: Some(value.into()), ..self }
    }

    /// With what should be there.
    #[must_use]
    pub fn computed(self, value: impl Into<Value>) -> Self {
        Self { computed: Some(value.into()), ..self }
    }

    /// With a stored and a computed checksum, or flags.
    #[must_use]
    pub fn hex(self, stored: impl Into<u64>, computed: impl Into<u64>) -> Self {
        self.stored(Value::Hex(stored.into())).computed(Value::Hex(computed.into()))
    }

    /// With a stored and a computed mode.
    #[must_use]
    pub fn modes(self, stored: impl Into<u64>, computed: impl Into<u64>) -> Self {
        self.stored(Value::Octal(stored.into())).computed(Value::Octal(computed.into()))
    }

    /// The order in lists: by place, then by values.
    pub(crate) fn key(&self) -> (&Place, &Option<Value>, &Option<Value>) {
        (&self.place, &self.stored, &self.computed)
    }
}

/// One line: `code: place: meaning (V stored, W computed)`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meaning = self.kind.meaning.trim_end_matches('.');
        write!(f, "{}: {}: {meaning}", self.kind.code, self.place)?;
        match (&self.stored, &self.computed) {
            (Some(stored), Some(computed)) => write!(f, " ({stored} stored, {computed} computed)"),
            (Some(Value::Text(what)), None) => write!(f, " ({what})"),
            (Some(stored), None) => write!(f, " ({stored} stored)"),
            (None, Some(computed)) => write!(f, " ({computed} computed)"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static LINKS: Kind = Kind {
        code: "test.inode.links",
        severity: crate::kind::Severity::Accounting,
        meaning: "The link count is wrong.",
        repair: "It is set.",
    };

    #[test]
    fn a_finding_is_one_line() {
        let finding = Finding::new(&LINKS, Place::inode(7_u64)).stored(3_u64).computed(2_u64);
        assert_eq!(
            finding.to_string(),
            "test.inode.links: inode 7: The link count is wrong (3 stored, 2 computed)"
        );
        assert_eq!(
            Finding::new(&LINKS, Place::volume()).hex(1_u32, 255_u32).computed.unwrap().to_string(),
            "0xff"
        );
        let finding = Finding::new(&LINKS, Place::volume()).modes(0o40755_u16, 0o100_644_u16);
        assert!(finding.to_string().ends_with("(0o40755 stored, 0o100644 computed)"), "{finding}");
        assert_eq!(finding.computed.and_then(|value| value.number()), Some(0o100_644));
    }

    #[test]
    fn a_text_says_itself_what_it_is() {
        let finding = Finding::new(&LINKS, Place::volume()).stored("3 blocks");
        assert!(finding.to_string().ends_with("The link count is wrong (3 blocks)"));
    }

    #[test]
    fn texts_are_bounded_at_a_letter() {
        for text in ["x".repeat(1000), "é".repeat(1000), "日".repeat(1000), "x".repeat(255)] {
            let Value::Text(cut) = Value::text(&text) else { panic!() };
            assert!(cut.len() <= MOST && cut.len() > MOST - 4 && text.starts_with(&*cut));
        }
    }
}
