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
            "run `cairn check` on it, which says what is intact of the journal and which repair \
             keeps that; cairn rescue copies out what is left"
        }
        Cause::Format { class: Class::Corrupt, .. } => {
            "run `cairn check` on it, which says what repairs it; cairn rescue copies out what is \
             left"
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

    /// Whoever knows best what to do says it, and no layer above says it again.
    #[test]
    fn advice_stands_once() {
        let own = |kind, text: &str| cairn_block::Error::new(kind, "open", text);
        let system = |errno: i32| {
            let error = std::io::Error::from_raw_os_error(errno);
            cairn_block::Error::from_io("open d", error)
        };
        let with = |text: &str, error: cairn_block::Error| cairn_block::Error {
            detail: format!("{}: {text}", error.detail),
            ..error
        };
        let (nbd, pool) = ("nbd://host/disk", "file-store:///srv/pool@disk");
        for (image, error) in [
            (nbd, with("see that the server runs", system(2))),
            (nbd, with("see that the server runs", system(13))),
            (nbd, own(ErrorKind::NotFound, "no export 'a' there: it has 'b'")),
            (nbd, own(ErrorKind::ReadOnly, "it is exported read-only: open it for reading")),
            (nbd, own(ErrorKind::NoSpace, "it has no space left: make room there")),
            (pool, own(ErrorKind::NoSpace, "no space left on device: make room there")),
            (pool, own(ErrorKind::ReadOnly, "it is a snapshot: clone it")),
            (pool, own(ErrorKind::NotFound, "there is no volume: make it first")),
            ("d.zst", own(ErrorKind::ReadOnly, "it can only be read: decompress it (zstd -d)")),
            ("d.qcow2", own(ErrorKind::NoSpace, "the device is full: move the image")),
            ("d.qcow2", own(ErrorKind::NotFound, "the backing file is gone: put it there")),
            ("d.img", own(ErrorKind::PermissionDenied, "a wrong passphrase: give another one")),
            ("d.img", with("raise `ulimit -f`", own(ErrorKind::NoSpace, "too large"))),
        ] {
            let advised = error.detail.clone();
            for cause in [Cause::Open(error.clone()), Cause::Device(error.clone())] {
                let said = text(&Error::new(image, cause));
                assert!(said.ends_with(&advised), "{image}: {said}");
            }
        }
        // Of the system's own errors nobody below says what to do.
        for (errno, advised) in [(2, "check the name"), (28, "free space"), (30, "only be read")] {
            let said = text(&Error::new("d.img", Cause::Open(system(errno))));
            assert_eq!(said.matches(advised).count(), 1, "{said}");
        }
    }

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
