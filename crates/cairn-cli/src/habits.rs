//! Arguments of other programs, and what to write here instead.

use std::ffi::OsString;

use cairn_base::options::parse_size;
use cairn_base::shell::quoted;

/// What to write instead of an option that a command does not have.
#[must_use]
pub fn of_option(command: &str, option: &str) -> Option<&'static str> {
    const MKE2FS: &str = "make the volume with mke2fs or mkfs.f2fs, which have such options; Cairn \
        reads and writes that volume, too";
    Some(match (command, option) {
        ("put" | "get", "-r" | "-R" | "-a" | "--recursive" | "--archive") => {
            "whole trees are always copied: leave it out"
        }
        ("mkfs", "-d") => "make and fill the volume in one go: `cairn build IMAGE DIRECTORY/`",
        ("mkfs", "-N" | "-I" | "-E" | "-T" | "-J") => MKE2FS,
        ("mkfs", "-j") => "ext4 and ext3 have a journal, ext2 has none: give -t ext3",
        ("run", "-i" | "-t" | "--interactive" | "--tty") => {
            "the command has the terminal of its caller: leave it out"
        }
        ("run", "--rm") => "with --ephemeral nothing stays; otherwise changes are the image's",
        ("run", "-v" | "--volume" | "--mount") => {
            "--bind SRC:DST shows a file or directory of the host"
        }
        ("sync", "--delete" | "--del") => {
            "what is not in the sources is removed, unless --keep is given: leave it out"
        }
        ("sync", "-a" | "-r" | "--archive" | "--recursive") => {
            "whole trees are always copied: leave it out"
        }
        ("run", _) => "options of the command follow --: `cairn run IMAGE -- COMMAND`",
        ("check", "-f" | "--force") => "everything is read in any case: leave it out",
        ("check", "-p" | "-a" | "--preen") => {
            "`cairn check --repair IMAGE` mends what loses nothing, and asks nothing"
        }
        ("check", "-b" | "-B") => "a backup of the superblock is found where it is: leave it out",
        ("check", "-d" | "--dry-run") => "without --repair nothing is written: leave it out",
        ("mkfs", "-q") => "mkfs prints nothing: leave it out",
        _ => return None,
    })
}

/// What to write instead of a check with an option that goes with a repair.
#[must_use]
pub fn of_check_alone(words: &[OsString]) -> Option<&'static str> {
    words.iter().skip(2).find_map(|word| {
        Some(match word.to_str()? {
            "-n" | "--no-change" => {
                "without --repair nothing is written: leave -n out; with it, `cairn check --repair \
                 -n IMAGE` shows what a repair would do"
            }
            "-y" | "--yes" => {
                "-y answers what a repair asks: `cairn check --repair=all -y IMAGE`; without \
                 --repair nothing is written"
            }
            "--undo" => {
                "--undo keeps what a repair overwrites: `cairn check --repair --undo FILE IMAGE`"
            }
            _ => return None,
        })
    })
}

/// What to write instead of a command line with one word too many, which is `surplus`.
#[must_use]
pub fn of_surplus(words: &[OsString], surplus: &str) -> Option<String> {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let valued = |option: &str| {
        words.windows(2).any(|pair| pair[0] == option && parse_size(pair[1]).is_some())
    };
    let surplus = quoted(surplus);
    match *words.get(1)? {
        "check" => words
            .windows(2)
            .find(|pair| pair[0] == "--repair" && matches!(pair[1], "all" | "accounting"))
            .map(|pair| format!("= joins them: cairn check --repair={} IMAGE", pair[1])),
        "shell" => Some(format!("a script follows -f: cairn shell -f {surplus} IMAGE")),
        "run" => Some(format!("before the command put --: `cairn run IMAGE -- {surplus}`")),
        "mkfs" if valued("-m") => Some(
            "-m takes no number here (it is for zoned f2fs): make the volume, then set what is \
             reserved for root with `cairn tune -m PERCENT IMAGE`"
                .to_owned(),
        ),
        "mkfs" if valued("-i") => Some(
            "-i takes no number here (it is f2fs's large NAT bitmap): for another number of inodes \
             make the volume with mke2fs"
                .to_owned(),
        ),
        "mkfs" => words
            .iter()
            .find(|word| matches!(**word, "ext2" | "ext3" | "ext4" | "f2fs"))
            .map(|kind| format!("the type follows -t: cairn mkfs -t {kind} IMAGE")),
        _ => None,
    }
}
