//! The command line of umount(8)'s helper, `umount.fuse.cairn DIRECTORY [-lfnrv]`: the kernel lets
//! umount(8) return while the daemon of a mount of an image file still writes, so that a copy of
//! the image could lack what was written last.
//!
//! umount(8) of util-linux calls it with a relative path, and with -l or -f. For root and a whole
//! path it finds it by the entry that `cairn mount` makes (`mount/utab.rs`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the helper prints about itself.
const HELP: &str = "\
umount.fuse.cairn: what umount(8) starts for a mount of an ext4 or F2FS image, and what cairn \
umount does

Usage: umount.fuse.cairn DIRECTORY [-lfnrv]

  -l      detach the mount now and do not wait
  -f      unmount although the mount is in use
  -v      say what was unmounted
  -n, -r  accepted, and without effect: there is no mtab, and a mount in use stays as it is
  -h, -V  print this help, the version

Returns when the image is clean on disk. It does not wait where the volume is mounted in another \
place, too. For root and a whole path, umount(8) calls it for mounts by root: use cairn umount for \
those of ordinary users.
";

/// The manual page: a link to the one of mount(8)'s helper.
pub const PAGE: (&str, &str) = ("umount.fuse.cairn.8", ".so man8/mount.cairn.8\n");

/// True if the program was called by this name.
#[must_use]
pub fn is_helper(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "umount.fuse.cairn")
}

/// The answer to a helper's command line that asks for help, or is empty.
#[must_use]
pub fn help(arguments: &[OsString]) -> Option<&'static str> {
    let (program, rest) = arguments.split_first()?;
    let asks = rest.is_empty() || rest.iter().any(|word| word == "-h" || word == "--help");
    (asks && is_helper(program)).then_some(HELP)
}

/// The command line of `cairn umount` for the helper's; `None` if the helper was not called.
#[must_use]
pub fn rewrite(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let (program, rest) = arguments.split_first()?;
    if !is_helper(program) {
        return None;
    }
    if rest.iter().any(|word| word == "-V" || word == "--version") {
        return Some(vec!["cairn".into(), "--version".into()]);
    }
    let mut words: Vec<OsString> = vec!["cairn".into(), "umount".into(), "--helper".into()];
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.as_bytes() {
            // The type, which umount(8) passes to a helper of several types.
            b"-t" => _ = rest.next(),
            [b'-', letters @ ..]
                if !letters.is_empty() && letters.iter().all(|one| b"lfnrv".contains(one)) =>
            {
                let kept = letters.iter().filter(|one| !b"nr".contains(one));
                words.extend(kept.map(|one| OsString::from(format!("-{}", char::from(*one)))));
            }
            _ => words.push(word.clone()),
        }
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn rewritten(line: &str) -> Option<String> {
        let words = rewrite(&words(line))?;
        Some(words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn the_helper_becomes_umount() {
        for (line, expected) in [
            ("/sbin/umount.fuse.cairn /mnt", Some("cairn umount --helper /mnt")),
            ("/sbin/umount.fuse.cairn /mnt -n -l -v", Some("cairn umount --helper /mnt -l -v")),
            ("umount.fuse.cairn -nfr /mnt", Some("cairn umount --helper -f /mnt")),
            ("umount.fuse.cairn /mnt -t fuse.cairn", Some("cairn umount --helper /mnt")),
            ("umount.fuse.cairn -V", Some("cairn --version")),
            ("cairn umount /mnt", None),
            ("/sbin/mount.fuse.cairn /a /b", None),
        ] {
            assert_eq!(rewritten(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn the_helper_tells_about_itself() {
        for line in ["/sbin/umount.fuse.cairn", "umount.fuse.cairn -h", "umount.fuse.cairn --help"]
        {
            assert!(help(&words(line)).is_some_and(|text| text.contains("Usage: ")), "{line}");
        }
        assert_eq!(
            (help(&words("umount.fuse.cairn /mnt")), help(&words("cairn -h"))),
            (None, None)
        );
    }
}
