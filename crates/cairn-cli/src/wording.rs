//! What the libraries advise, in the commands and options of this program. The libraries have
//! other callers and name none (`cairn-testkit`'s test `library_words`); every message of the
//! program goes through [`named`].

use std::borrow::Cow;

/// What a library says, and what the program says in its place.
const COMMANDS: &[(&str, &str)] = &[
    ("check and repair it", "run `cairn check` on it, which says what repairs it"),
    ("check and repair the volume", "run `cairn check` on the volume, which says what repairs it"),
    ("a repair makes a new one", "a repair makes a new one: `cairn check` says which"),
    (
        "nothing but repairs and settings change it",
        "nothing but `cairn check --repair` and the settings of `cairn tune` changes it",
    ),
    (": copy out what is left", ": cairn rescue copies out what is left"),
    ("copy what can be read, or try", "copy what can be read (cairn rescue), or try"),
    ("nothing was changed: name another file", "nothing was changed: name another with --undo"),
    ("make the journal larger", "make the journal larger (cairn tune -J size=64M)"),
    ("add a journal", "add a journal (cairn tune -O has_journal)"),
    (
        "leave the journal out with ^has_journal",
        "leave the journal out with ^has_journal, as --read-only does",
    ),
    ("add the feature metadata_csum_seed", "add -O metadata_csum_seed"),
    ("the volume is marked read-only; remove the mark", READ_ONLY),
    (
        "make a smaller volume with the same files",
        "`cairn build --size min NEW IMAGE` makes a smaller volume with the same files",
    ),
    (
        "make a new volume of that UUID with the same files",
        "`cairn build -t f2fs -U UUID NEW IMAGE` makes a new volume with the same files",
    ),
    (
        "make a new volume of that size with",
        "`cairn build -t f2fs --size SIZE NEW IMAGE` makes a new volume of that size with",
    ),
    ("leave out overprovision, sections and zones", "leave out -o, -s and -z"),
    (
        "overprovision, sections and zones: leave these out",
        "overprovision, sections and zones: leave out -o, -s and -z",
    ),
    ("reserve 8 sections and give the overprovision", "give -Z 8 and -o"),
    ("ask for extra_attr,", "-O extra_attr,"),
    ("leave the zones out", "leave -m out"),
    (
        "a number of reserved sections is for zoned devices",
        "a number of reserved sections (-Z) is for zoned devices (-m)",
    ),
    ("in order: ask for zones", "in order: give -m"),
    ("leave out sections and zones", "leave -s and -z out"),
    ("give for example one of each", "give for example -s 1 -z 1"),
    ("make it again with zones", "make it again with mkfs -m"),
    ("leave the feature out", "leave the feature out of -O"),
    ("docs/options.md has all options of", ALL_OPTIONS),
    ("mount with a smaller cache", "mount with a smaller cache (-o cache=SIZE)"),
    ("unmount it first (fusermount3 -u)", "unmount it first (cairn umount, or fusermount3 -u)"),
    ("if it is mounted unmount it,", "if it is mounted unmount it (`cairn umount MOUNTPOINT`),"),
    ("): `umount ", "): `cairn umount "),
    ("--mount umount MOUNTPOINT", "--mount cairn umount MOUNTPOINT"),
    ("detach the mount, then mount again", "run `cairn umount -l`, then mount again"),
    ("thaw it first", "thaw it first (cairn thaw)"),
    ("there is nothing to thaw", "there is nothing to thaw (cairn freeze freezes it)"),
    ("make a filesystem in it; if", "`cairn mkfs` makes a filesystem in it; if"),
    ("name a partition as in 'IMAGE#1'", PARTITION),
    ("make an image of it", "make an image of it: cairn build disk.img IMAGE"),
    (
        "there is no such disk: make one first",
        "there is no such disk: `cairn build --partition gpt` makes one",
    ),
    (
        "make a filesystem in it, and copy files into it",
        "`cairn mkfs` makes a filesystem in it, and `cairn put` copies files into it",
    ),
    ("give all files another time if that matters", "--mtime sets another"),
    ("or compress the stream", "or compress the stream of `-o -`"),
    ("what else is lost, verify the pool", "what else is lost, run cairn gc --verify on the pool"),
    ("read a snapshot of it", "read a snapshot of it (cairn snapshot)"),
    ("build it with the feature `remote`", REMOTE),
];

const READ_ONLY: &str =
    "the volume is marked read-only; remove the mark with `cairn tune -O ^read-only`";
const ALL_OPTIONS: &str = "see cairn mount --help, and docs/options.md for all options of";
const PARTITION: &str = "name a partition as in 'IMAGE#1'; cairn info IMAGE lists them";
const REMOTE: &str = "build it with `cargo build --release -p cairn-cli --features remote`";

/// A message with the commands of the program. What has them already stays as it is.
pub(crate) fn named(message: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(message);
    for (said, command) in COMMANDS {
        if text.contains(said) && !text.contains(command) {
            text = Cow::Owned(text.replace(said, command));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_named_once() {
        let message = "disk.img: the volume is frozen: thaw it first";
        let once = named(message).into_owned();
        assert_eq!(once, "disk.img: the volume is frozen: thaw it first (cairn thaw)");
        assert_eq!(named(&once), once);
        for (said, _) in COMMANDS {
            let once = named(said).into_owned();
            assert_eq!(named(&once), once, "{said}");
        }
        assert!(matches!(named("nothing of it"), Cow::Borrowed(_)));
    }
}
