//! Errors of the command line, each as one line that says what to do.
//!
//! `clap` finds the error. The text is written here: the given word, the possible ones, the nearest
//! known one.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use cairn_base::nearest::did_you_mean;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::Failure;
use crate::habits;

/// Tasks that Cairn leaves to other programs, and these programs.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["fsck", "repair", "e2fsck", "fsck.ext4", "fsck.f2fs"],
        "`cairn check IMAGE` finds errors, `cairn check --repair IMAGE` mends them",
    ),
    (
        &["undelete", "recover", "debugfs", "testdisk"],
        "`cairn rescue` copies files out of a damaged volume, and deleted ones",
    ),
    (&["resize2fs", "resize.f2fs"], "`cairn resize IMAGE SIZE` makes a volume larger or smaller"),
    (
        &["tune2fs", "label", "e2label", "f2fslabel"],
        "`cairn tune -L LABEL IMAGE` changes the label, and other settings",
    ),
    (&["cd", "pwd"], "there is no current directory: paths start at the image's root"),
];

/// The failure for a parse error. `asked` is the command; `help` says where its help is.
#[must_use]
pub fn explain(error: &clap::Error, asked: Option<&str>, help: &str) -> Failure {
    let subject = asked.map_or(String::new(), |command| format!("{command}: "));
    Failure::usage(format!("{subject}{}", sentence(error, asked, help)))
}

fn sentence(error: &clap::Error, asked: Option<&str>, help: &str) -> String {
    let text = |kind| texts(error, kind).into_iter().next();
    let argument = text(ContextKind::InvalidArg).unwrap_or_default();
    let value = text(ContextKind::InvalidValue).unwrap_or_default();
    let meant = text(ContextKind::SuggestedArg).or_else(|| text(ContextKind::SuggestedValue));
    let meant = meant.map_or(String::new(), |word| format!(": did you mean `{word}`?"));
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            if let Some((_, instead)) = ELSEWHERE.iter().find(|(names, _)| names.contains(&&*word))
            {
                return format!("no command `{word}`: {instead}");
            }
            let near = texts(error, ContextKind::SuggestedSubcommand);
            let meant = did_you_mean(&word, near.iter().map(String::as_str));
            format!("no command `{word}`{meant}: {help}")
        }
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            if let Some(instead) = asked.and_then(|command| habits::of_option(command, &argument)) {
                return format!("no option `{argument}`: {instead}");
            }
            let name = if meant.is_empty() {
                "; before a name that begins with a dash put --"
            } else {
                ""
            };
            format!("no option `{argument}`{meant}: {help}{name}")
        }
        ErrorKind::UnknownArgument => format!("'{argument}' is one argument too many: {help}"),
        ErrorKind::InvalidValue if value.is_empty() => format!("{argument} needs a value: {help}"),
        ErrorKind::InvalidValue => {
            let possible = texts(error, ContextKind::ValidValue).join(", ");
            format!("{argument}: '{value}' is not possible{meant}: give one of {possible}")
        }
        ErrorKind::ValueValidation if value.contains('/') && comes_first(&argument) => {
            let what = argument.trim_matches(['<', '>']);
            let (name, command) = (what.to_lowercase(), asked.unwrap_or_default());
            format!("the {name} comes before the paths: {command} IMAGE {what} {value}")
        }
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            format!("{argument}: '{value}' is not possible: {why}")
        }
        ErrorKind::TooManyValues => format!("{argument} takes no value '{value}': leave it out"),
        ErrorKind::ArgumentConflict => {
            let others = texts(error, ContextKind::PriorArg).join(" and ");
            match others.is_empty() || others == argument {
                true => format!("{argument} is given twice: leave one out"),
                false => format!("{argument} and {others} exclude each other: leave one out"),
            }
        }
        ErrorKind::MissingRequiredArgument => missing(error, help),
        ErrorKind::InvalidUtf8 => format!("an argument is not valid UTF-8: {help}"),
        _ => {
            let whole = error.to_string();
            let line = whole.lines().next().unwrap_or_default();
            format!("{}: {help}", line.strip_prefix("error: ").unwrap_or(line))
        }
    }
}

/// Arguments that stand between the image and the paths.
fn comes_first(argument: &str) -> bool {
    matches!(argument, "<MODE>" | "<OWNER>")
}

fn missing(error: &clap::Error, help: &str) -> String {
    let usage = texts(error, ContextKind::Usage).into_iter().next().unwrap_or_default();
    let missing = match &texts(error, ContextKind::InvalidArg)[..] {
        // `clap` takes a single name for the last operand.
        [sources] if sources == "<SOURCES>..." && usage.contains("<DESTINATION>") => {
            vec!["<DESTINATION>".to_owned()]
        }
        missing => missing.to_vec(),
    };
    let verb = if missing.len() > 1 { "are" } else { "is" };
    let missing = missing.join(" and ");
    let usage = usage.trim().strip_prefix("Usage: ").map_or_else(
        || help.to_owned(),
        |forms| forms.lines().map(str::trim).collect::<Vec<_>>().join(", or "),
    );
    format!("{missing} {verb} missing: {usage}")
}

/// The details of an error of `clap`.
fn texts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        Some(ContextValue::StyledStr(text)) => vec![text.to_string()],
        Some(ContextValue::Number(number)) => vec![number.to_string()],
        _ => Vec::new(),
    }
}

/// What is wrong with a size without a unit, if it is less than any volume can have or needs.
#[must_use]
pub fn unit_forgotten(text: &str, least: u64) -> Option<String> {
    let bytes =
        text.trim_start_matches(['+', '-']).parse::<u64>().ok().filter(|bytes| *bytes < least)?;
    Some(format!("{bytes} bytes are too few: add a unit, as in {text}M"))
}

/// A parser of numbers in a range. Its error gives the range and an example.
pub fn number<T>(range: RangeInclusive<T>, example: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            format!("give a number from {} to {}, such as {example}", range.start(), range.end())
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    fn said(line: &str) -> String {
        let error = Cli::try_parse_from(line.split(' ')).expect_err(line);
        explain(&error, line.split(' ').nth(1), "see HELP").to_string()
    }

    #[test]
    fn each_mistake_is_one_line_with_a_way_out() {
        for (line, expected) in [
            (
                "cairn fsck x",
                "fsck: no command `fsck`: `cairn check IMAGE` finds errors, `cairn check --repair \
                 IMAGE` mends them",
            ),
            ("cairn mkfd x", "mkfd: no command `mkfd`: did you mean `mkfs`?: see HELP"),
            (
                "cairn ls --recursve x",
                "ls: no option `--recursve`: did you mean `--recursive`?: see HELP",
            ),
            (
                "cairn ls -Z x",
                "ls: no option `-Z`: see HELP; before a name that begins with a dash put --",
            ),
            ("cairn info x y", "info: 'y' is one argument too many: see HELP"),
            (
                "cairn rescue x 12",
                "rescue: --deleted and --output <DIR> are missing: cairn rescue [OPTIONS] -o DIR \
                 IMAGE, or cairn rescue [OPTIONS] --deleted [-o DIR] IMAGE [WHICH]...",
            ),
            ("cairn mknod x /n q", "mknod: <TYPE>: 'q' is not possible: give one of b, c, u, p, s"),
            (
                "cairn mknod x /n b 5000 1",
                "mknod: [MAJOR]: '5000' is not possible: give a number from 0 to 4095, such as 8",
            ),
            ("cairn ls --all=yes x", "ls: --all takes no value 'yes': leave it out"),
            ("cairn du -s -a x", "du: --summarize and --all exclude each other: leave one out"),
            (
                "cairn cp x",
                "cp: <SOURCES>... and <DESTINATION> are missing: cairn cp <IMAGE> <SOURCES>... \
                 <DESTINATION>",
            ),
            (
                "cairn mv x /a",
                "mv: <DESTINATION> is missing: cairn mv <IMAGE> <SOURCES>... <DESTINATION>",
            ),
            ("cairn mkfs --size", "mkfs: --size <SIZE> needs a value: see HELP"),
        ] {
            assert_eq!(said(line), expected);
        }
    }
}
