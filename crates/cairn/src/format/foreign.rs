//! Mount options that the other format has.
//!
//! Neither format knows the other's options, so this is found here, before the format parses the
//! list. A list with `sloppy` is left to the format, which ignores what it does not know.

use cairn_base::options::{SLOPPY, Vocabulary, words};

use super::{Format, f2fs};
use crate::error::Cause;

/// Options of the two formats that do the same: ext4's, and F2FS's.
const COUNTERPARTS: &[(&str, &str)] = &[
    ("commit", "checkpoint_interval"),
    ("noload", "norecovery"),
    ("norecovery", "disable_roll_forward"),
];

/// Refuses a list that names an option of another format.
///
/// # Errors
/// [`Cause::Option`] names the option, its format and what to write instead.
pub(super) fn refuse(format: Format, list: &str) -> Result<(), Cause> {
    if words(list).any(|word| word.text == SLOPPY) {
        return Ok(());
    }
    for word in words(list).filter(|word| !has(format, word.name)) {
        let is_of = |other: &Format| *other != format && has(*other, word.name);
        if let Some(other) = Format::ALL.into_iter().find(is_of) {
            let instead = counterpart(format, word.name).map_or_else(
                || "leave it out".to_owned(),
                |own| format!("give `{own}`, which does the same here"),
            );
            return Err(Cause::Option(format!(
                "`{}` is an option of {other}, and this volume is {format}: {instead}",
                word.text
            )));
        }
    }
    Ok(())
}

/// The option of `format` that does what another format's does, as it is written.
fn counterpart(format: Format, name: &str) -> Option<String> {
    let own = COUNTERPARTS.iter().find_map(|(ext4, f2fs)| match format {
        Format::Ext4 => (*f2fs == name).then_some(*ext4),
        Format::F2fs => (*ext4 == name).then_some(*f2fs),
    })?;
    settings(format).into_iter().find(|setting| bare(setting) == own)
}

/// Is it an option of the format, or of Linux's driver of it?
fn has(format: Format, name: &str) -> bool {
    let mut linux = vocabulary(format).iter().flat_map(|(words, _)| words.iter());
    settings(format).iter().any(|setting| bare(setting) == name)
        || linux.any(|word| bare(word) == name)
}

fn bare(word: &str) -> &str {
    word.split('=').next().unwrap_or(word)
}

fn settings(format: Format) -> Vec<String> {
    match format {
        Format::Ext4 => cairn_ext4::MountOptions::TABLE.settings().collect(),
        Format::F2fs => f2fs::settings(),
    }
}

fn vocabulary(format: Format) -> &'static Vocabulary {
    match format {
        Format::Ext4 => cairn_ext4::MountOptions::TABLE.linux,
        Format::F2fs => f2fs::vocabulary(),
    }
}

#[cfg(all(test, feature = "f2fs"))]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_the_other_format_is_refused_with_its_counterpart() {
        for (format, word, said) in [
            (
                Format::Ext4,
                "gc_merge",
                "`gc_merge` is an option of f2fs, and this volume is ext4: leave it out",
            ),
            (
                Format::F2fs,
                "commit=5",
                "`commit=5` is an option of ext4, and this volume is f2fs: give \
                 `checkpoint_interval=SECONDS`, which does the same here",
            ),
            (
                Format::Ext4,
                "checkpoint_interval=9",
                "`checkpoint_interval=9` is an option of f2fs, and this volume is ext4: give \
                 `commit=SECONDS`, which does the same here",
            ),
            (
                Format::Ext4,
                "inline_dentry",
                "`inline_dentry` is an option of f2fs, and this volume is ext4: leave it out",
            ),
        ] {
            let list = format!("noatime,{word}");
            assert_eq!(refuse(format, &list).unwrap_err().to_string(), said);
            refuse(format, &format!("{list},sloppy")).unwrap();
        }
    }

    #[test]
    fn other_words_are_left_to_the_format() {
        for format in Format::ALL {
            refuse(format, "ro,norecovery,frobnicate,nosuid,cache=1").unwrap();
        }
    }

    #[test]
    fn both_sides_of_a_counterpart_are_options() {
        for (ext4, f2fs) in COUNTERPARTS {
            assert!(has(Format::Ext4, ext4) && has(Format::F2fs, f2fs), "{ext4}, {f2fs}");
        }
    }
}
