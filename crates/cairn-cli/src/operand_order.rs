//! Operands in another order than `COMMAND IMAGE PATH…`, as in `cairn chmod 600 disk.img /file`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use cairn::ImageSpec;
use cairn_base::shell::quoted;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Command;
use crate::commands::volume_command::VolumeCommand;
use crate::failure::{Failure, Status};
use crate::{habits, print};

/// The failure for a word of the command line that is in the wrong place, as an image that does not
/// come first. `error` is the parser's error for it.
#[must_use]
pub fn of_parse_error(error: &clap::Error, words: &[OsString]) -> Option<Failure> {
    let command = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    if error.kind() == ErrorKind::UnknownArgument {
        let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
            return None;
        };
        if command == "find" {
            return words
                .iter()
                .skip(2)
                .find(|word| holds_volume(word))
                .map(|at| failure(words, at));
        }
        if command == "run" && holds_volume(OsStr::new(word)) {
            return Some(before_command(OsStr::new(word)));
        }
        return habits::of_surplus(words, word)
            .filter(|_| !word.starts_with('-'))
            .map(|instead| Failure::usage(format!("{command}: {instead}")));
    }
    if command == "check" && error.kind() == ErrorKind::MissingRequiredArgument {
        let instead = habits::of_check_alone(words)?;
        return Some(Failure::usage(format!("check: {instead}")));
    }
    if !matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) {
        return None;
    }
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else {
        return None;
    };
    holds_volume(OsStr::new(value)).then(|| failure(words, OsStr::new(value)))
}

/// The failure for an image that cannot be opened, if a later word is an image. `failed` is the
/// command's own failure.
#[must_use]
pub fn of_failure(failed: &Failure, command: &Command, words: &[OsString]) -> Option<Failure> {
    if !matches!(failed.status, Status::NoImage | Status::Corrupt) {
        return None;
    }
    let command = match command {
        Command::OnVolume(command) => command,
        Command::Run(run) => {
            let found = run.command.iter().find(|word| holds_volume(word));
            return found.filter(|_| !holds_volume(&run.image.image)).map(|at| before_command(at));
        }
        Command::Sync(sync) => {
            let [source] = sync.sources() else { return None };
            let is_swapped = holds_volume(source) && !holds_volume(sync.image_name());
            return is_swapped.then(|| {
                let (image, source) = (quoted(source), quoted(sync.image_name()));
                Failure::usage(format!("sync: the image comes last: cairn sync {source} {image}"))
            });
        }
        _ => return None,
    };
    let image = &command.command().image().image;
    let mut later = words.iter().skip_while(|word| *word != image).skip(1);
    // Each operand of df is an image.
    if holds_volume(image) || matches!(command, VolumeCommand::Df(_)) {
        return None;
    }
    later.find(|word| holds_volume(word)).map(|found| failure(words, found))
}

fn failure(words: &[OsString], image: &OsStr) -> Failure {
    let command = words.get(1).map(|word| print::escaped(word.as_bytes())).unwrap_or_default();
    let image = quoted(image);
    Failure::usage(format!("{command}: the image comes first: cairn {command} {image} ..."))
}

fn before_command(image: &OsStr) -> Failure {
    let image = quoted(image);
    Failure::usage(format!("run: the image comes before the command: cairn run {image} -- ..."))
}

fn holds_volume(word: &OsStr) -> bool {
    ImageSpec::parse(word).is_ok_and(|image| image.exists() && cairn::inspect(&image, &[]).is_ok())
}
