//! The command lines of mount(8)'s helpers:
//! `mount.fuse.cairn IMG DIR [-sfnvrw] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]` (our own name, linked
//! to the program) and `cairn IMG DIR -o OPTIONS` (how libfuse's `mount.fuse` starts a filesystem
//! of type `fuse.cairn`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the helper prints about itself.
const HELP: &str = "\
mount.fuse.cairn, mount.cairn: what mount(8) starts for a filesystem of type fuse.cairn or cairn \
(ext4 and F2FS images)

Usage: mount.fuse.cairn IMAGE DIRECTORY [-sfnvrw] [-t TYPE] [-o OPTIONS]

  -o OPTIONS  mount options, separated by commas (cairn mount --help; docs/options.md lists all)
  -s          ignore unknown options, with a line for each
  -f          check the image, the directory and the options, and mount nothing
  -v          say what was mounted
  -r, -w      the same as -o ro, -o rw
  -t TYPE     the expected filesystem: ext4, ext3, ext2 or f2fs; an image with another is refused
  -n          accepted, and without effect
  -h, -V      print this help, the version

In /etc/fstab: IMAGE DIRECTORY fuse.cairn OPTIONS 0 0. By hand: mount -t fuse.cairn IMAGE \
DIRECTORY, or cairn mount.
";

/// The helpers' manual pages: names of files, and what they hold.
#[must_use]
pub fn pages() -> [(&'static str, String); 2] {
    let page = include_str!("mount.cairn.8").replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    [("mount.cairn.8", page), ("mount.fuse.cairn.8", ".so man8/mount.cairn.8\n".to_owned())]
}

/// The answer to a helper's command line that asks for help, or is empty.
#[must_use]
pub fn help(arguments: &[OsString]) -> Option<&'static str> {
    let asks = match arguments {
        [_] => true,
        [_, rest @ ..] => rest.iter().any(|word| word == "-h" || word == "--help"),
        [] => false,
    };
    (asks && arguments.first().is_some_and(|program| is_helper(program))).then_some(HELP)
}

/// Turns a helper's command line into `cairn mount …`; leaves others alone.
#[must_use]
pub fn rewrite(arguments: Vec<OsString>) -> Vec<OsString> {
    let called_as_helper = arguments.first().is_some_and(|program| is_helper(program));
    let called_by_helper = matches!(arguments.as_slice(), [_, image, directory, ..]
        if is_path(image) && is_path(directory));
    if !called_as_helper && !called_by_helper {
        return arguments;
    }
    let mut rewritten = vec![OsString::from("cairn"), OsString::from("mount")];
    let mut rest = arguments.into_iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.as_bytes() {
            b"-V" | b"--version" => return vec!["cairn".into(), "--version".into()],
            b"-t" => {
                rewritten.push("-t".into());
                rewritten.extend(rest.next());
            }
            b"-N" => {
                rewritten.push("--namespace".into());
                rewritten.extend(rest.next());
            }
            [b'-', letters @ ..]
                if !letters.is_empty()
                    && letters.iter().all(|letter| b"sfnvrw".contains(letter)) =>
            {
                letters
                    .iter()
                    .for_each(|letter| rewritten.extend(flag(*letter).iter().map(OsString::from)));
            }
            _ => rewritten.push(argument),
        }
    }
    rewritten
}

/// The option of `cairn mount` for a letter of mount(8): `-f` is "fake", not "foreground".
fn flag(letter: u8) -> &'static [&'static str] {
    match letter {
        b's' => &["-o", "sloppy"],
        b'f' => &["--fake"],
        b'v' => &["--verbose"],
        b'r' => &["-o", "ro"],
        b'w' => &["-o", "rw"],
        // `-n` means no entry in mtab, which no longer exists.
        _ => &[],
    }
}

/// True if the program was called by a helper's name.
#[must_use]
pub fn is_helper(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default();
    name == "mount.fuse.cairn" || name == "mount.cairn"
}

/// No command has such a name; mount(8) always passes absolute paths.
fn is_path(argument: &OsStr) -> bool {
    argument.as_bytes().starts_with(b"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> String {
        let words = rewrite(line.split(' ').map(OsString::from).collect());
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn helpers_become_mount() {
        assert_eq!(
            rewritten("/sbin/mount.fuse.cairn /d.img /mnt -o rw,dev"),
            "cairn mount /d.img /mnt -o rw,dev"
        );
        assert_eq!(
            rewritten("/sbin/mount.fuse.cairn /d.img /mnt -n -t fuse.cairn"),
            "cairn mount /d.img /mnt -t fuse.cairn"
        );
        assert_eq!(
            rewritten("/sbin/mount.fuse.cairn /d.img /mnt -sfvr -N /proc/1/ns/mnt -o noauto"),
            "cairn mount /d.img /mnt -o sloppy --fake --verbose -o ro --namespace /proc/1/ns/mnt \
             -o noauto"
        );
        assert_eq!(rewritten("cairn /d.img#1 /mnt -o rw"), "cairn mount /d.img#1 /mnt -o rw");
    }

    #[test]
    fn a_helper_tells_about_itself() {
        let help = |line: &str| help(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in
            ["/sbin/mount.fuse.cairn --help", "mount.fuse.cairn -h", "/sbin/mount.fuse.cairn"]
        {
            assert!(
                help(line)
                    .is_some_and(|text| text.contains("Usage: mount.fuse.cairn IMAGE DIRECTORY")),
                "{line}"
            );
        }
        assert_eq!((help("cairn mount --help"), help("mount.fuse.cairn /a /b")), (None, None));
        assert_eq!(rewritten("mount.fuse.cairn -V"), "cairn --version");
    }

    #[test]
    fn the_manual_page_has_the_options_of_the_help() {
        let [(_, page), _] = pages();
        for line in HELP.lines().filter(|line| line.starts_with("  -")) {
            let (options, _) = line.trim().split_once("  ").unwrap();
            for option in options.split(", ") {
                let option = option.split(' ').next().unwrap().replace('-', "\\-");
                assert!(
                    page.contains(&format!(".B {option}"))
                        || page.contains(&format!(".BI {option}")),
                    "{option}"
                );
            }
        }
        assert!(page.contains(concat!("cairn ", env!("CARGO_PKG_VERSION"))), "{page}");
    }

    #[test]
    fn commands_stay() {
        for line in ["cairn mount -f a /b", "cairn ls /a /b", "cairn", "cairn /a"] {
            assert_eq!(rewritten(line), line);
        }
    }
}
