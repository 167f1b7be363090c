//! The text of a cut in a file: `lost 12`, `random 12 0x5f`.

use std::str::FromStr;

use super::{Cut, Volatile};

impl Cut {
    /// The words that [`FromStr`] reads.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { moment, volatile } = self;
        match volatile {
            Volatile::Kept => format!("kept {moment}"),
            Volatile::Lost => format!("lost {moment}"),
            Volatile::Random(seed) => format!("random {moment} {seed:#x}"),
            Volatile::Torn(seed) => format!("torn {moment} {seed:#x}"),
            Volatile::Subset(mask) => format!("subset {moment} {mask:#x}"),
        }
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no cut: give lost MOMENT, kept MOMENT, random MOMENT 0xSEED, torn \
                 MOMENT 0xSEED or subset MOMENT 0xBLOCKS"
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        let (word, moment, number) = match words[..] {
            [word, moment] => (word, moment, None),
            [word, moment, seed] => (word, moment, number(seed)),
            _ => return Err(wrong()),
        };
        let moment = moment.parse().map_err(|_| wrong())?;
        let volatile = match (word, number) {
            ("kept", None) => Volatile::Kept,
            ("lost", None) => Volatile::Lost,
            ("random", Some(seed)) => Volatile::Random(seed),
            ("torn", Some(seed)) => Volatile::Torn(seed),
            ("subset", Some(mask)) => Volatile::Subset(mask),
            _ => return Err(wrong()),
        };
        Ok(Self { moment, volatile })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_is_read_as_it_is_written() {
        for text in
            ["kept 5", "lost 0", "random 7 0x1f", "torn 7 0xffffffffffffffff", "subset 3 0x5"]
        {
            assert_eq!(text.parse::<Cut>().map(|cut| cut.words()), Ok(text.to_owned()));
        }
        for text in ["", "kept", "lost x", "random 5", "torn 5 7", "subset 1 0x2 3", "gone 4"] {
            assert!(text.parse::<Cut>().is_err(), "{text}");
        }
    }
}
