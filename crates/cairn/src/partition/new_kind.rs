//! [`PartitionKind`]: the type of a new partition, in both kinds of tables.

use cairn_base::nearest::did_you_mean;
use uuid::Uuid;

use super::kinds;

/// The type of a new partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionKind {
    /// In a GPT, if there is such a type.
    pub gpt: Option<Uuid>,
    /// In an MBR, if there is such a type.
    pub mbr: Option<u8>,
}

impl PartitionKind {
    /// Parses a word ("esp", "root-arm64"), the UUID of a GPT type, or the number of an MBR type in
    /// hexadecimal digits ("83").
    ///
    /// # Errors
    /// It is none of these. The text says what there is.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        if let Some((gpt, mbr)) = kinds::of_word(&lower) {
            return Ok(Self { gpt: Some(gpt), mbr });
        }
        if let Ok(gpt) = Uuid::try_parse(text) {
            return Ok(Self { gpt: Some(gpt), mbr: None });
        }
        let digits = lower.strip_prefix("0x").unwrap_or(&lower);
        match u8::from_str_radix(digits, 16) {
            Ok(number) if digits.len() <= 2 && number > 0 => {
                Ok(Self { gpt: None, mbr: Some(number) })
            }
            _ => Err(unknown(text)),
        }
    }

    /// A partition with files of Linux.
    ///
    /// # Panics
    /// Never: the word is known.
    #[must_use]
    pub fn linux() -> Self {
        Self::parse("linux").expect("the word is in the table")
    }

    /// True if it is a swap area.
    #[must_use]
    pub fn is_swap(self) -> bool {
        Self::parse("swap") == Ok(self) || self.mbr == Some(0x82)
    }
}

fn unknown(text: &str) -> String {
    let words: Vec<&str> = kinds::words().chain(["root"]).collect();
    let meant = did_you_mean(text, words.iter().copied());
    format!(
        "`{text}` is no type of partition{meant}: give one of {}, the UUID of a GPT type, or the \
         one or two hexadecimal digits of an MBR type",
        words.join(", ")
    )
}
