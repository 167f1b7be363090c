//! `--part`: the fields of a partition, in the words of sfdisk's scripts where it has some.

use std::path::PathBuf;

use cairn::Format;
use cairn::partition::{Flags, PartitionKind};
use cairn_base::nearest::did_you_mean;
use cairn_base::options::parse_size;
use cairn_build::{Contents, KindWish, PartitionOptions, Source};
use uuid::Uuid;

use super::super::mkfs::parse_uuid;

const FIELDS: [&str; 13] = [
    "type",
    "size",
    "name",
    "uuid",
    "file",
    "source",
    "fs",
    "label",
    "bootable",
    "read-only",
    "no-auto",
    "grow",
    "empty",
];

/// A partition as it was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Part {
    kind: Option<KindWish>,
    size: Option<u64>,
    name: Option<String>,
    uuid: Option<Uuid>,
    file: Option<PathBuf>,
    sources: Vec<String>,
    format: Option<Format>,
    label: Option<String>,
    is_empty: bool,
    flags: Flags,
}

/// The UUID of a disk, or the number of an MBR as its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiskId {
    pub(super) uuid: Uuid,
    pub(super) is_short: bool,
}

/// Parses a UUID, or 0x and up to eight digits.
pub(super) fn parse_disk_id(text: &str) -> Result<DiskId, String> {
    let Some(digits) = text.strip_prefix("0x") else {
        return parse_uuid(text).map(|uuid| DiskId { uuid, is_short: false });
    };
    match u32::from_str_radix(digits, 16) {
        Ok(number) if number > 0 => {
            let uuid = Uuid::from_fields(number, 0, 0, &[0; 8]);
            Ok(DiskId { uuid, is_short: true })
        }
        _ => Err("give a UUID, or a number such as 0x12345678".into()),
    }
}

/// Splits at commas outside of quotes, and removes the quotes.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for letter in text.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            letter => fields.last_mut().expect("one at least").push(letter),
        }
    }
    if is_quoted { Err("a quote is not closed: add \"".into()) } else { Ok(fields) }
}

/// Parses the fields of a partition.
pub(super) fn parse(text: &str) -> Result<Part, String> {
    let mut part = Part::default();
    let mut seen: Vec<String> = Vec::new();
    for field in split(text)?.iter().map(|field| field.trim()).filter(|field| !field.is_empty()) {
        let (key, value) = field.split_once('=').unwrap_or((field, ""));
        if seen.iter().any(|before| before == key) && key != "source" {
            return Err(format!("{key} is given twice: leave one of them out"));
        }
        part.set(key.trim(), value.trim(), field.contains('='))?;
        seen.push(key.to_owned());
    }
    part.check()?;
    Ok(part)
}

impl Part {
    fn set(&mut self, key: &str, value: &str, has_value: bool) -> Result<(), String> {
        let flag = match key {
            "bootable" => Some(&mut self.flags.bootable),
            "read-only" => Some(&mut self.flags.read_only),
            "no-auto" => Some(&mut self.flags.no_auto),
            "grow" => Some(&mut self.flags.grow),
            "empty" => Some(&mut self.is_empty),
            _ => None,
        };
        match flag {
            Some(_) if has_value => return Err(format!("{key} has no value: leave `=` out")),
            Some(flag) => {
                *flag = true;
                return Ok(());
            }
            None if FIELDS.contains(&key) && value.is_empty() => {
                return Err(format!("{key} needs a value: write {key}=..."));
            }
            None => {}
        }
        let text = value.to_owned();
        match key {
            "type" if value.eq_ignore_ascii_case("root") => self.kind = Some(KindWish::Root),
            "type" => self.kind = Some(KindWish::Is(PartitionKind::parse(value)?)),
            "size" => {
                let size = parse_size(value).filter(|size| *size > 0);
                self.size = Some(size.ok_or("size= needs bytes with K, M, G or T, such as 512M")?);
            }
            "name" => self.name = Some(text),
            "uuid" => self.uuid = Some(parse_uuid(value)?),
            "file" => self.file = Some(value.into()),
            "source" => self.sources.push(text),
            "fs" => {
                let format = Format::from_name(value);
                self.format = Some(format.ok_or("the types are: ext4, f2fs")?);
            }
            "label" => self.label = Some(text),
            _ => {
                let meant = did_you_mean(key, FIELDS);
                return Err(format!("`{key}` is no field{meant}: there are {}", FIELDS.join(", ")));
            }
        }
        // A word for a type is a name, as systemd-repart has it.
        if key == "type" && self.name.is_none() && is_word(value) {
            self.name = Some(value.to_ascii_lowercase());
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let contents = [self.file.is_some(), !self.sources.is_empty(), self.is_empty];
        if contents.iter().filter(|given| **given).count() > 1 {
            return Err("file=, source= and empty exclude each other: give one of them".into());
        }
        if self.sources.is_empty() && (self.format.is_some() || self.label.is_some()) {
            let why = "fs= and label= go with source=: use -t and -L for the other volume";
            return Err(why.into());
        }
        if !contents.contains(&true) && self.is_for_firmware() {
            let why = "a partition of this type holds no root: add file=FILE, its source= or empty";
            return Err(why.into());
        }
        Ok(())
    }

    /// True if boot loaders and firmware read it.
    fn is_for_firmware(&self) -> bool {
        let is = |name: &&str| {
            PartitionKind::parse(name).is_ok_and(|kind| self.kind == Some(KindWish::Is(kind)))
        };
        ["esp", "xbootldr", "bios"].iter().any(is)
    }

    fn is_swap(&self) -> bool {
        matches!(self.kind, Some(KindWish::Is(kind)) if kind.is_swap())
    }

    /// What the builder takes. `format` is that of the other volumes.
    pub(super) fn options(&self, format: Format, platform: &Option<String>) -> PartitionOptions {
        let source = |name: &String| Source { name: name.into(), platform: platform.clone() };
        let contents = match &self.file {
            Some(file) => Contents::File(file.clone()),
            None if self.is_empty => Contents::Nothing,
            None if !self.sources.is_empty() => Contents::Volume {
                sources: self.sources.iter().map(source).collect(),
                format: self.format.unwrap_or(format),
                label: self.label.clone(),
            },
            None if self.is_swap() => Contents::Swap,
            None => Contents::Sources,
        };
        let kind = match contents {
            Contents::Sources => KindWish::Root,
            _ => KindWish::Is(PartitionKind::linux()),
        };
        let name = match contents {
            Contents::Sources => "root",
            _ => "",
        };
        PartitionOptions {
            kind: self.kind.unwrap_or(kind),
            contents,
            size: self.size,
            name: self.name.clone().unwrap_or_else(|| name.to_owned()),
            uuid: self.uuid,
            flags: self.flags,
        }
    }
}

/// True for a word that stands for a type, and not the UUID or the number of one.
fn is_word(text: &str) -> bool {
    text.eq_ignore_ascii_case("root")
        || PartitionKind::parse(text).is_ok_and(|kind| kind.gpt.is_some())
            && Uuid::try_parse(text).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> PartitionOptions {
        parse(text).unwrap_or_else(|why| panic!("{text}: {why}")).options(Format::Ext4, &None)
    }

    #[test]
    fn fields_say_what_a_partition_holds() {
        let esp = options("type=esp, file=boot/esp.img, bootable");
        assert!(matches!(&esp.contents, Contents::File(path) if path.ends_with("esp.img")));
        assert!(esp.name == "esp" && esp.flags.bootable && esp.size.is_none());
        let root = options("size=2G");
        assert!(matches!(root.contents, Contents::Sources) && root.kind == KindWish::Root);
        assert_eq!((root.name.as_str(), root.size), ("root", Some(2 << 30)));
        assert!(matches!(options("type=swap,size=1G").contents, Contents::Swap));
        assert!(matches!(options("type=82,size=1G").contents, Contents::Swap));
        assert!(matches!(options("empty,size=1G").contents, Contents::Nothing));
        let home = options(r#"type=home,source=a/,source="b,c/",fs=f2fs,label=data,name="h,m""#);
        match home.contents {
            Contents::Volume { sources, format: Format::F2fs, label } => {
                assert_eq!(sources.iter().map(|one| &one.name).collect::<Vec<_>>(), ["a/", "b,c/"]);
                assert_eq!((label.as_deref(), home.name.as_str()), (Some("data"), "h,m"));
            }
            other => panic!("{other:?}"),
        }
        let typed = options("type=0FC63DAF-8483-4772-8E79-3D69D8477DE4,source=a");
        assert!(typed.kind == KindWish::Is(PartitionKind { mbr: None, ..PartitionKind::linux() }));
        assert_eq!(typed.name, "");
    }

    #[test]
    fn what_is_wrong_says_what_there_is() {
        for (text, said) in [
            ("type=epd", "esp"),
            ("typ=esp", "`type`"),
            ("size=", "size=..."),
            ("size=x", "512M"),
            ("bootable=yes", "leave `=` out"),
            ("name=\"a", "quote"),
            ("file=a,empty", "exclude"),
            ("fs=ext4", "source="),
            ("type=esp,size=40M", "file=FILE"),
            ("type=bios", "empty"),
            ("size=1G,size=2G", "twice"),
        ] {
            let why = parse(text).expect_err(text);
            assert!(why.contains(said), "{text}: {why}");
        }
    }

    #[test]
    fn a_disk_has_a_uuid_or_a_number() {
        assert_eq!(parse_disk_id("0x12345678").map(|id| id.uuid.as_bytes()[0]), Ok(0x12));
        assert!(parse_disk_id("0x0").is_err() && parse_disk_id("x").is_err());
        assert!(parse_disk_id("11111111-2222-3333-4444-555555555555").is_ok_and(|id| !id.is_short));
    }
}
