//! What to do about an error of the library, in the words of the command line. The library has
//! other callers, and names no option.

use cairn::{Cause, Class, Error};
use cairn_block::ErrorKind;
use cairn_check::repair::undo;

/// A text of an error of an undo file, with the command that takes the repair back.
pub(super) fn taking_back(error: &undo::Error, text: &str) -> String {
    use undo::Error as E;
    match error {
        E::Interrupted { image, file } | E::Unwanted { image, file } => text.replace(
            &format!("with the undo file {file}"),
            &format!("with `cairn check --take-back {file} {image}`"),
        ),
        _ => text.to_owned(),
    }
}

/// The error with its advice.
pub(super) fn text(error: &Error) -> String {
    if let Cause::Undo(why) = error.cause() {
        return taking_back(why, &error.fact());
    }
    match advice(error) {
        Some(advice) => format!("{}: {advice}", error.fact()),
        None => error.fact(),
    }
}

fn advice(error: &Error) -> Option<&'static str> {
    // Where the library has none, the error has said what to do.
    let general = error.advice()?;
    Some(match error.cause() {
        Cause::WouldOverwrite { .. } => "add --force (-F) to replace it",
        Cause::NoSize { .. } => "give its size, as in --size 1G",
        Cause::NoUndoFile => "add --undo FILE",
        Cause::FurtherDevice { .. } => {
            "name its further devices in their order with --device PATH (-o device=PATH for mount)"
        }
        Cause::Encrypted { .. } => {
            "type its passphrase on a terminal, or give what has it: 'IMAGE?key-file=FILE' (as \
             cryptsetup's --key-file) or 'IMAGE?key-fd=N'"
        }
        Cause::UnknownFormat { hint: Some(hint) } if hint.what == "an empty file" => {
            "`cairn mkfs --size 1G IMAGE` makes a filesystem in it"
        }
        Cause::UnknownFormat { hint: None } => {
            "check the name, or give the filesystem's place: 'IMAGE?offset=BYTES'; if a volume of \
             ext4 was there, `cairn check` and `cairn rescue` look for copies of its superblock"
        }
        Cause::Format { class: Class::Unreplayable, .. } => {
            "run `cairn check --repair=all` on it, which keeps what is intact of the journal; \
             cairn rescue copies out what is left"
        }
        Cause::Format { class: Class::Corrupt, .. } => {
            "run `cairn check --repair` on it; cairn rescue copies out what is left"
        }
        Cause::Open(cause) | Cause::Device(cause) if cause.source.is_some() => match cause.kind {
            ErrorKind::NotFound if general == "check the name" => {
                "check the name; `cairn mkfs` makes a new image"
            }
            ErrorKind::PermissionDenied if general.starts_with("check the owner") => {
                "check the owner and mode of the file and its directories; a file that you may \
                 only read works with cairn ls, cairn get and cairn mount -r"
            }
            ErrorKind::ReadOnly => "it can only be read (cairn ls, cairn get, cairn mount -r)",
            _ => general,
        },
        _ => general,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_names_its_options_and_the_library_does_not() {
        let system = |errno: i32| {
            let error = std::io::Error::from_raw_os_error(errno);
            Cause::Open(cairn_block::Error::from_io("open d", error))
        };
        for (cause, option) in [
            (Cause::WouldOverwrite { found: "data".into() }, "--force"),
            (Cause::NoSize { what: "the image is empty".into() }, "--size 1G"),
            (Cause::NoUndoFile, "--undo FILE"),
            (Cause::FurtherDevice { path: "e".into(), why: "which is gone".into() }, "--device"),
            (Cause::Encrypted { version: 2 }, "--key-file"),
            (system(2), "cairn mkfs"),
            (system(13), "cairn mount -r"),
            (system(30), "cairn mount -r"),
        ] {
            let error = Error::new("d", cause);
            let (said, library) = (text(&error), error.to_string());
            assert!(said.starts_with("d: ") && said.contains(option), "{said}");
            assert!(!library.contains("--") && !library.contains(" -"), "{library}");
            assert!(!library.contains("cairn ") && library.starts_with(&error.fact()), "{library}");
        }
    }
}
