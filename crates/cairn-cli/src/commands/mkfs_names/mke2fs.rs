//! The command line of mke2fs(8).

use std::ffi::{OsStr, OsString};

use cairn::{Format, MkfsOptions};
use uuid::Uuid;

use super::asked::{Answer, Asked, size};
use super::letters::{Line, owner, parsed, refused, split, wrong};
use crate::commands::mkfs::{NOT_IN_EXT2, NOT_IN_EXT3, parse_uuid};
use crate::failure::{Failure, Outcome};

const VALUED: &str = "bCdeEgGiIJlLmMNoOrtTUz";
const PLAIN: &str = "cDFhjKnqSvV";

const HELP: &str = "\
Usage: mke2fs [-t ext2|ext3|ext4] [-b BLOCK-SIZE] [-d DIRECTORY|ARCHIVE] [-E OPTIONS] [-F]
       [-i BYTES-PER-INODE] [-I INODE-SIZE] [-j] [-J size=MEGABYTES] [-L LABEL] [-m PERCENT]
       [-N INODES] [-O FEATURES] [-q] [-r 1] [-T USAGE] [-U UUID] [-v] DEVICE [SIZE]

Cairn's maker of filesystems with the options of mke2fs. Of -E it has root_owner, hash_seed,
lazy_itable_init, lazy_journal_init, discard and nodiscard; nothing is left for later, and nothing
is discarded. With -d blocks have 4096 bytes. SIZE is in KiB, or with -b in blocks, or has a letter
(k, m, g, t, s). cairn mkfs --help and cairn build --help have more.
";

/// What -T says: a usage, the bytes of a block and those for an inode.
const USAGES: &[(&str, Option<u32>, u64)] = &[
    ("floppy", Some(1024), 8192),
    ("small", Some(1024), 4096),
    ("default", None, 16_384),
    ("big", None, 32_768),
    ("huge", None, 65_536),
    ("news", None, 4096),
    ("largefile", None, 1 << 20),
    ("largefile4", None, 4 << 20),
];

/// Reads a command line.
///
/// # Errors
/// An option is not known, or Cairn does not have it.
pub(super) fn parse(name: &str, kind: u8, words: &[OsString]) -> Outcome<Answer> {
    if words.is_empty() || words.iter().any(|word| word == "--help") {
        return Ok(Answer::Text(HELP.replace("mke2fs [", &format!("{name} ["))));
    }
    let line = split(words, VALUED, PLAIN)?;
    if line.options.iter().any(|(letter, _)| *letter == 'h') {
        return Ok(Answer::Text(HELP.into()));
    }
    if line.options.iter().any(|(letter, _)| *letter == 'V') {
        return Ok(Answer::Text(format!("{name} of cairn {}\n", env!("CARGO_PKG_VERSION"))));
    }
    let mut reading =
        Reading { options: MkfsOptions::new(Format::Ext4), kind, ..Reading::default() };
    for (letter, value) in &line.options {
        reading.option(*letter, value)?;
    }
    reading.finish(&line)
}

struct Reading {
    options: MkfsOptions,
    kind: u8,
    journal: bool,
    tree: Option<OsString>,
    features: Vec<String>,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            options: MkfsOptions::new(Format::Ext4),
            kind: 0,
            journal: false,
            tree: None,
            features: Vec::new(),
        }
    }
}

impl Reading {
    fn option(&mut self, letter: char, value: &OsStr) -> Outcome {
        let options = &mut self.options;
        match letter {
            'b' => {
                let bytes: u32 = parsed('b', value, "1024 to 65536")?;
                options.block_size = Some(bytes);
            }
            'd' => self.tree = Some(value.to_owned()),
            'E' => self.extended(value)?,
            'F' => options.overwrite = true,
            'i' => options.tuning.inode_ratio = Some(parsed('i', value, "bytes such as 16384")?),
            'I' => options.tuning.inode_size = Some(parsed('I', value, "128 or 256")?),
            'j' => self.journal = true,
            'J' => self.journal_options(value)?,
            'L' => options.label = Some(text('L', value)?),
            'm' => options.reserved_percent = Some(parsed('m', value, "0 to 50")?),
            'N' => {
                let inodes: u32 = parsed('N', value, "a number such as 10000")?;
                options.inodes = Some(inodes).filter(|inodes| *inodes > 0);
            }
            'O' => self.features.push(text('O', value)?),
            'r' if value == "1" => {}
            'r' => return Err(wrong("-r", value, "1, the only revision")),
            't' => {
                let kinds = [("ext2", 2), ("ext3", 3), ("ext4", 4)];
                let kind = kinds.iter().find(|(name, _)| value == *name);
                self.kind = kind.ok_or_else(|| wrong("-t", value, "ext2, ext3 or ext4"))?.1;
            }
            'T' => self.usage(value)?,
            'U' => {
                options.uuid = match value.to_str() {
                    Some("clear") => Some(Uuid::nil()),
                    Some("random" | "time") => None,
                    Some(text) => {
                        Some(parse_uuid(text).map_err(|why| Failure::usage(format!("-U: {why}")))?)
                    }
                    None => return Err(wrong("-U", value, "a UUID, or random")),
                }
            }
            // What they ask for is so anyway.
            'q' | 'v' => {}
            other => return Err(refused(&format!("-{other}"))),
        }
        Ok(())
    }

    fn extended(&mut self, value: &OsStr) -> Outcome {
        for word in text('E', value)?.split(',').filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "root_owner" if value.is_empty() => {
                    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
                    self.options.root_owner = Some((uid.as_raw(), gid.as_raw()));
                }
                "root_owner" => {
                    let owner = owner("-E root_owner", value.as_ref())?;
                    self.options.root_owner = Some(owner);
                }
                "hash_seed" => {
                    let seed = value.parse();
                    let wrong = |_| wrong("-E hash_seed", value.as_ref(), "a UUID");
                    self.options.tuning.hash_seed = Some(seed.map_err(wrong)?);
                }
                "lazy_itable_init" | "lazy_journal_init" if matches!(value, "" | "0" | "1") => {}
                "discard" | "nodiscard" if value.is_empty() => {}
                _ => return Err(refused(&format!("-E {word}"))),
            }
        }
        Ok(())
    }

    fn journal_options(&mut self, value: &OsStr) -> Outcome {
        self.journal = true;
        for word in text('J', value)?.split(',').filter(|word| !word.is_empty()) {
            let megabytes =
                word.strip_prefix("size=").ok_or_else(|| refused(&format!("-J {word}")))?;
            let bytes = megabytes.parse().ok().and_then(|number: u64| number.checked_mul(1 << 20));
            let wrong = || wrong("-J size", megabytes.as_ref(), "megabytes such as 16");
            self.options.tuning.journal_size = Some(bytes.ok_or_else(wrong)?);
        }
        Ok(())
    }

    fn usage(&mut self, value: &OsStr) -> Outcome {
        for word in text('T', value)?.split(',') {
            if let "ext2" | "ext3" | "ext4" = word {
                return self.option('t', word.as_ref());
            }
            let known = USAGES.iter().find(|(name, ..)| *name == word);
            let names: Vec<&str> = USAGES.iter().map(|(name, ..)| *name).collect();
            let wrong = || wrong("-T", word.as_ref(), &format!("one of {}", names.join(", ")));
            let (_, block, ratio) = known.ok_or_else(wrong)?;
            let options = &mut self.options;
            options.block_size = options.block_size.or(*block);
            options.tuning.inode_ratio = options.tuning.inode_ratio.or(Some(*ratio));
        }
        Ok(())
    }

    fn finish(self, line: &Line) -> Outcome<Answer> {
        let Self { mut options, kind, journal, tree, features } = self;
        let (device, blocks) = match line.operands.as_slice() {
            [device] => (device, None),
            [device, blocks] => (device, Some(blocks)),
            [] => return Err(Failure::usage("no device is given: name a file or a device")),
            [_, _, more, ..] => {
                let more = more.to_string_lossy();
                return Err(Failure::usage(format!("'{more}' is one argument too many")));
            }
        };
        let unit = options.block_size.map_or(1024, u64::from);
        if let Some(blocks) = blocks {
            let bytes = size(blocks, unit);
            options.size = Some(bytes.ok_or_else(|| wrong("SIZE", blocks, "a size such as 64m"))?);
        }
        let lacks =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        // mke2fs without a type makes ext2.
        let mut all = if kind < 4 { lacks(NOT_IN_EXT3) } else { Vec::new() };
        if kind < 3 && !journal {
            all.extend(lacks(NOT_IN_EXT2));
        }
        all.extend(features);
        options.features = all;
        let device = device.clone();
        Ok(Answer::Make(Box::new(Asked { options, tree, device, asks: true })))
    }
}

fn text(option: char, value: &OsStr) -> Outcome<String> {
    let text = value.to_str().map(str::to_owned);
    text.ok_or_else(|| wrong(&format!("-{option}"), value, "valid UTF-8"))
}
