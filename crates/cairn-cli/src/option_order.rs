//! Options anywhere before `--`, as GNU programs take them.
//!
//! `clap` takes a list of operands with one more behind it (`cp IMAGE SOURCE… DESTINATION`) only in
//! one piece: it refuses `cp IMAGE SOURCE -v DESTINATION`. So the options of such a command are
//! moved before its operands.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, Command};

/// Moves the options of the command `words[at]` to the front, with their values.
#[must_use]
pub fn options_first(program: &Command, words: Vec<OsString>, at: usize) -> Vec<OsString> {
    let command = words.get(at).and_then(|word| program.find_subcommand(word));
    let Some(command) = command.filter(|command| needs_order(command)) else { return words };
    let mut words = words.into_iter();
    let mut ordered: Vec<OsString> = words.by_ref().take(at + 1).collect();
    let mut operands = Vec::new();
    while let Some(word) = words.next() {
        if word == "--" {
            operands.push(word);
            break;
        }
        match option(command, &word) {
            // An option that the command does not have is the parser's to refuse.
            None => operands.push(word),
            Some(Takes::Nothing) => ordered.push(word),
            Some(Takes::Next) => {
                ordered.push(word);
                ordered.extend(words.next());
            }
        }
    }
    ordered.extend(operands);
    ordered.extend(words);
    ordered
}

/// True if an operand follows a list of them, and all that begins with a dash is an option.
fn needs_order(command: &Command) -> bool {
    let operands: Vec<&Arg> = command.get_positionals().collect();
    let is_list = |arg: &&Arg| arg.get_num_args().is_some_and(|count| count.max_values() > 1);
    let is_open = |arg: &&Arg| {
        arg.is_allow_hyphen_values_set() || arg.is_last_set() || arg.is_trailing_var_arg_set()
    };
    let list = operands.iter().position(is_list);
    list.is_some_and(|at| at + 1 < operands.len()) && !operands.iter().any(is_open)
}

/// What belongs to an option besides its word.
enum Takes {
    Nothing,
    Next,
}

/// What an option of the command takes; `None` for another word.
fn option(command: &Command, word: &OsStr) -> Option<Takes> {
    let word = word.to_str().unwrap_or_else(|| start(word));
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
        let is_it = |arg: &&Arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(name) || aliases.contains(&name)
        };
        let found = command.get_arguments().find(is_it)?;
        return Some(match takes_next(found) && value.is_none() {
            true => Takes::Next,
            false => Takes::Nothing,
        });
    }
    let mut letters = word.strip_prefix('-').filter(|letters| !letters.is_empty())?.chars();
    while let Some(letter) = letters.next() {
        let is_it = |arg: &&Arg| {
            let aliases = arg.get_all_short_aliases().unwrap_or_default();
            arg.get_short() == Some(letter) || aliases.contains(&letter)
        };
        let found = command.get_arguments().find(is_it)?;
        if found.get_action().takes_values() {
            // The rest of the word is its value.
            let is_last = letters.as_str().is_empty();
            return Some(if is_last && takes_next(found) { Takes::Next } else { Takes::Nothing });
        }
    }
    Some(Takes::Nothing)
}

fn takes_next(arg: &Arg) -> bool {
    let is_optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0);
    arg.get_action().takes_values() && !arg.is_require_equals_set() && !is_optional
}

/// What can be read of a word that is no text: its value is not.
fn start(word: &OsStr) -> &str {
    word.as_bytes().utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Cli;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        let words = format!("cairn {line}").split(' ').map(Into::into).collect();
        Cli::try_parse_from(options_first(&Cli::command(), words, 1))
    }

    #[test]
    fn options_stand_between_and_behind_operands() {
        let program = Cli::command();
        let lists = program.get_subcommands().filter(|command| needs_order(command));
        let mut left: Vec<&str> = lists.map(Command::get_name).collect();
        for line in [
            "cp image /a -v /b /c",
            "cp image /a /b -v /c",
            "cp image /a /b /c -v",
            "mv image /a -v /b",
            "mv image /a /b -v",
            "ln image /a -s /b",
            "put image a --device x b /c",
            "get image /a --device x /b c",
            "get image /a /b c --device x",
            "sync a/ --exclude *.tmp b/ image",
            "sync a/ -n b/ -v image --keep",
            "unsparse a -F b c",
        ] {
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            left.retain(|name| !line.starts_with(&format!("{name} ")));
        }
        assert!(left.is_empty(), "no line for {left:?}");
    }

    #[test]
    fn what_follows_two_dashes_and_values_stay() {
        let order = |line: &str| {
            let words = line.split(' ').map(Into::into).collect();
            let ordered = options_first(&Cli::command(), words, 1);
            ordered.join(OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(order("cairn cp i /a -v -- -r /b"), "cairn cp -v i /a -- -r /b");
        assert_eq!(order("cairn sync a --exclude -v i -n"), "cairn sync --exclude -v -n a i");
        assert_eq!(order("cairn cp i - --no-such /b"), "cairn cp i - --no-such /b");
        assert_eq!(order("cairn find i -name f"), "cairn find i -name f");
        assert_eq!(order("cairn run i -- cp -v a b"), "cairn run i -- cp -v a b");
    }
}
