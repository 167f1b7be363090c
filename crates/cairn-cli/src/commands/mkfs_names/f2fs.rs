//! The command line of mkfs.f2fs(8).

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use cairn::{Format, MkfsOptions};

use super::asked::{Answer, Asked};
use super::letters::{owner, parsed, refused, split, wrong};
use crate::commands::f2fs_features::parse_preset;
use crate::commands::mkfs::parse_uuid;
use crate::failure::{Failure, Outcome};

const VALUED: &str = "acCdeEgHlLoOrRsStTUwzZ";
const PLAIN: &str = "fhimqVk";
/// Bytes of a sector, in which the size is given.
const SECTOR: u64 = 512;

const HELP: &str = "\
Usage: mkfs.f2fs [-a 0|1] [-c DEVICE] [-C utf8[:strict]] [-d LEVEL] [-f] [-g android] [-i]
       [-l LABEL] [-m] [-o PERCENT] [-O FEATURES] [-q] [-R UID:GID] [-s SEGMENTS] [-t 0|1]
       [-T SECONDS] [-U UUID] [-z SECTIONS] DEVICE [SECTORS]

Cairn's maker of filesystems with the options of mkfs.f2fs. SECTORS have 512 bytes; with them the
file is made, if it does not exist. cairn mkfs --help has more.
";

/// Reads a command line.
///
/// # Errors
/// An option is not known, or Cairn does not have it.
pub(super) fn parse(name: &str, words: &[OsString]) -> Outcome<Answer> {
    if words.is_empty() || words.iter().any(|word| word == "--help") {
        return Ok(Answer::Text(HELP.into()));
    }
    let line = split(words, VALUED, PLAIN)?;
    let mut options = MkfsOptions::new(Format::F2fs);
    let mut preset = None;
    for (letter, value) in &line.options {
        match letter {
            'h' => return Ok(Answer::Text(HELP.into())),
            'V' => {
                let version = env!("CARGO_PKG_VERSION");
                return Ok(Answer::Text(format!("{name} of cairn {version}\n")));
            }
            'g' => {
                let known = value.to_str().and_then(|name| parse_preset(name).ok());
                preset = Some(known.ok_or_else(|| wrong("-g", value, "android"))?);
            }
            _ => option(&mut options, *letter, value)?,
        }
    }
    if let Some(preset) = preset {
        // As there, whatever -R says.
        options.root_owner = Some((0, 0));
        options.features.splice(..0, preset.features());
    }
    let device = match line.operands.as_slice() {
        [device] => device,
        [device, sectors] => {
            let bytes = sectors.to_str().and_then(|text| text.parse::<u64>().ok());
            let bytes = bytes.and_then(|sectors| sectors.checked_mul(SECTOR));
            let wrong = || wrong("SECTORS", sectors, "a number of sectors of 512 bytes");
            options.size = Some(bytes.filter(|bytes| *bytes > 0).ok_or_else(wrong)?);
            device
        }
        [] => return Err(Failure::usage("no device is given: name a file or a device")),
        [_, _, more, ..] => {
            let more = more.to_string_lossy();
            return Err(Failure::usage(format!("'{more}' is one argument too many")));
        }
    };
    let device = device.clone();
    Ok(Answer::Make(Box::new(Asked { options, tree: None, device, asks: false })))
}

fn option(options: &mut MkfsOptions, letter: char, value: &OsStr) -> Outcome {
    match letter {
        'l' => {
            let label = value.to_str().map(str::to_owned);
            options.label = Some(label.ok_or_else(|| wrong("-l", value, "valid UTF-8"))?);
        }
        'o' => options.overprovision = Some(parsed('o', value, "per cent such as 5")?),
        'O' => {
            let text = value.to_str().ok_or_else(|| wrong("-O", value, "names of features"))?;
            options.features.extend(text.split(',').map(|name| name.trim().to_owned()));
        }
        'C' => {
            let text = value.to_str().map(str::to_owned);
            options.casefold = Some(text.ok_or_else(|| wrong("-C", value, "utf8"))?);
        }
        'f' => options.overwrite = true,
        'i' => options.large_nat_bitmap = true,
        'm' => options.zoned = true,
        'c' => options.devices.push(PathBuf::from(value)),
        's' => options.segments_per_section = Some(parsed('s', value, "a number such as 1")?),
        'z' => options.sections_per_zone = Some(parsed('z', value, "a number such as 1")?),
        'Z' => options.reserved_sections = Some(parsed('Z', value, "a number such as 8")?),
        'R' => options.root_owner = Some(owner("-R", value)?),
        'T' => options.time = Some(parsed('T', value, "seconds since 1970")?),
        'U' => {
            let parsed = value.to_str().map(parse_uuid);
            let parsed = parsed.unwrap_or_else(|| Err("give a UUID".into()));
            options.uuid = Some(parsed.map_err(|why| Failure::usage(format!("-U: {why}")))?);
        }
        // Logs lie one behind the other, and nothing is discarded.
        'a' | 't' if value == "0" || value == "1" => {}
        'a' | 't' => return Err(wrong(&format!("-{letter}"), value, "0 or 1")),
        // Cairn says little anyway.
        'q' => {}
        'd' => drop(parsed::<u32>('d', value, "a number")?),
        other => return Err(refused(&format!("-{other}"))),
    }
    Ok(())
}
