//! The mount options of a format: its settings, and how it treats the options of Linux's driver.

use crate::options::{self, SLOPPY, Setting, Vocabulary, Word, words};

/// The options of a format, which change a `T`. A wrong one is an error of type `E`.
pub struct OptionTable<T: 'static, E: 'static> {
    /// The format's name, for messages.
    pub format: &'static str,
    /// Its settings.
    pub settings: &'static [Setting<T, E>],
    /// Options of Linux's driver without a setting.
    pub linux: &'static Vocabulary,
    /// Makes an error of a message.
    pub error: fn(String) -> E,
}

impl<T: Default, E> OptionTable<T, E> {
    /// Applies a list separated by commas, as in mount(8). Later options override earlier ones.
    ///
    /// # Errors
    /// The message names the option that is unknown, refused or malformed. With [`SLOPPY`] in the
    /// list, unknown ones are ignored.
    pub fn apply(&self, options: &mut T, list: &str) -> Result<(), E> {
        let sloppy = words(list).any(|word| word.text == SLOPPY);
        words(list)
            .filter(|word| word.text != SLOPPY)
            .try_for_each(|word| self.apply_word(options, word, sloppy))
    }

    fn apply_word(&self, options: &mut T, word: Word<'_>, sloppy: bool) -> Result<(), E> {
        if let Some(applied) = options::set(self.settings, options, word) {
            return applied;
        }
        match options::tolerate(self.linux, word) {
            Some(tolerated) => tolerated.map_err(self.error),
            None if sloppy => Ok(()),
            None => {
                let message = options::unknown(word, self.format, self.settings, self.linux);
                Err((self.error)(message))
            }
        }
    }

    /// All settings under all their names: `ro`, `commit=SECONDS`.
    pub fn settings(&self) -> impl Iterator<Item = String> {
        options::written(self.settings)
    }

    /// A line with the reason for each word of a list that has no effect.
    #[must_use]
    pub fn notes(&self, list: &str) -> Vec<String> {
        options::notes(self.linux, list, |word| {
            self.apply_word(&mut T::default(), word, false).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Action, Meaning};

    const TABLE: OptionTable<u32, String> = OptionTable {
        format: "ext4",
        settings: &[
            (&["off"], Action::Flag(|number| *number = 0)),
            (
                &["commit"],
                Action::Value("SECONDS", |number, word, value| {
                    *number = value.parse().map_err(|_| word.text.to_owned())?;
                    Ok(())
                }),
            ),
        ],
        linux: &[(&["barrier"], Meaning::Always), (&["quota"], Meaning::Refused("leave it out"))],
        error: |message| message,
    };

    #[test]
    fn a_list_is_applied_from_left_to_right() {
        let applied = |list| {
            let mut number = 7;
            TABLE.apply(&mut number, list).map(|()| number)
        };
        assert_eq!(applied("commit=5,barrier,commit=9"), Ok(9));
        assert_eq!(applied("commit=5,off"), Ok(0));
        assert_eq!(applied("commit=x,off"), Err("commit=x".to_owned()));
        assert_eq!(applied("quota"), Err("`quota`: leave it out".to_owned()));
        let unknown = applied("commti=5").unwrap_err();
        assert_eq!(unknown, "unknown option `commti=5`: did you mean `commit=SECONDS`?");
        assert_eq!(applied("commti=5,sloppy,commit=3"), Ok(3));
        assert_eq!(applied("quota,sloppy"), Err("`quota`: leave it out".to_owned()));
    }

    #[test]
    fn settings_and_notes_are_those_of_the_table() {
        assert_eq!(TABLE.settings().collect::<Vec<_>>(), ["off", "commit=SECONDS"]);
        let notes = TABLE.notes("off,commit=5,barrier,frob");
        assert_eq!(notes, ["option `frob` has no effect: it is unknown"]);
    }
}
