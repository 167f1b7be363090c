//! The device tables of genext2fs (`-D`) and of buildroot (`makedevs`):
//! `NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT`, where `-` stands for what is not given.
//! A line `|xattr CAPABILITIES` belongs to the file before it.
//!
//! COUNT is the number of devices, from START on, as in buildroot. To genext2fs it is the number
//! behind the last one, which is the same for rows from 0 on.

use cairn_vfs::FileKind;

use super::capability::{self, Capabilities};
use super::entry::{Act, Changes, Entry, Missing, New, There};
use super::words::{self, Parsed, shown};
use crate::path::MemberPath;

/// Most devices that a line makes.
const COUNT_MAX: u32 = 65_536;
/// Most entries of a table.
const ENTRIES_MAX: usize = 1 << 20;
const XATTR: &[u8] = b"|xattr";

/// True if only this form has such a line.
pub(super) fn is_line(line: &[u8]) -> bool {
    let fields: Vec<&[u8]> = words::fields(line).collect();
    match fields.as_slice() {
        [first, ..] if *first == XATTR => true,
        [name, kind, mode, _, _, rest @ ..] if name.starts_with(b"/") && is_mode(mode) => {
            let is_number = |word: &&[u8]| *word == b"-" || words::decimal(word).is_ok();
            match *kind {
                b"F" | b"p" | b"r" => rest.iter().all(is_number),
                b"f" | b"d" | b"b" | b"c" => {
                    rest.iter().all(is_number)
                        && (rest.len() > 2 || (*kind == b"f" && rest.is_empty()))
                }
                _ => false,
            }
        }
        _ => false,
    }
}

fn is_mode(word: &[u8]) -> bool {
    word == b"-1" || words::permissions(word).is_ok()
}

/// The entries of a file.
///
/// # Errors
/// The number of a line that cannot be read, and why.
pub(super) fn parse(text: &[u8]) -> Result<Vec<Entry>, (usize, String)> {
    let mut entries: Vec<Entry> = Vec::new();
    // Of the entries from the second number on.
    let mut capabilities = (Capabilities::default(), 0);
    for (line, bytes) in words::lines(text) {
        let at_line = |why| (line, why);
        if let Some(words) = bytes.trim_ascii_start().strip_prefix(XATTR) {
            let (of, first) = &mut capabilities;
            let entries = entries.get_mut(*first..).filter(|entries| !entries.is_empty());
            let entries = entries.ok_or((line, "no file stands before it".to_owned()))?;
            of.add(words).map_err(at_line)?;
            entries.iter_mut().for_each(|entry| entry.set.set_xattr(capability::NAME, of.value()));
            continue;
        }
        capabilities = (Capabilities::default(), entries.len());
        entry(line, bytes, &mut entries).map_err(at_line)?;
        if entries.len() > ENTRIES_MAX {
            return Err((line, format!("more than {ENTRIES_MAX} files")));
        }
    }
    Ok(entries)
}

/// Numbers from the sixth field on; 0 if they are not given.
struct Numbers {
    major: u32,
    minor: u32,
    start: u32,
    step: u32,
    count: u32,
}

fn entry(line: usize, bytes: &[u8], entries: &mut Vec<Entry>) -> Parsed<()> {
    let mut fields = words::fields(bytes);
    let mut field = |what: &str| fields.next().ok_or_else(|| format!("it has no {what}"));
    let name = field("name")?;
    if !name.starts_with(b"/") {
        return Err(format!("the name {} does not begin with a slash", shown(name)));
    }
    let (kind, mode) = (field("type")?, field("mode")?);
    let (uid, gid) = (field("owner")?, field("group")?);
    let owner = |word: &[u8]| match word {
        b"-" | b"-1" => Ok(None),
        word => words::owner(word).map(Some),
    };
    let set = Changes {
        permissions: match mode {
            b"-" | b"-1" => None,
            mode => Some(words::permissions(mode)?),
        },
        uid: owner(uid)?,
        gid: owner(gid)?,
        ..Changes::default()
    };
    let mut number = || match fields.next() {
        None | Some(b"-") => Ok(0),
        Some(word) => words::small(word),
    };
    let numbers = Numbers {
        major: number()?,
        minor: number()?,
        start: number()?,
        step: number()?,
        count: number()?,
    };
    if let Some(more) = fields.next() {
        return Err(format!("{} is one field too many", shown(more)));
    }
    let one = |act| -> Parsed<Entry> {
        Ok(Entry { line, path: MemberPath::relative(name)?, act, set: set.clone() })
    };
    let change = |kind, below, missing| one(Act::Change { kind: Some(kind), below, missing });
    entries.push(match kind {
        b"f" => change(FileKind::Regular, false, Missing::Error)?,
        b"F" => change(FileKind::Regular, false, Missing::Ignore)?,
        b"r" => change(FileKind::Directory, true, Missing::Error)?,
        b"d" => one(Act::Put { new: New::Directory, there: There::Restate })?,
        b"p" => one(Act::Put { new: New::Fifo, there: There::Replace })?,
        b"s" => one(Act::Put { new: New::Socket, there: There::Replace })?,
        b"c" | b"b" => return devices(line, name, *kind == *b"b", &numbers, &set, entries),
        other => {
            let shown = shown(other);
            return Err(format!(
                "there is no type {shown}: the types are f, F, d, r, c, b, p and s"
            ));
        }
    });
    Ok(())
}

/// A device, or with a count as many, with numbers behind their names.
fn devices(
    line: usize,
    name: &[u8],
    block: bool,
    numbers: &Numbers,
    set: &Changes,
    entries: &mut Vec<Entry>,
) -> Parsed<()> {
    if numbers.count > COUNT_MAX {
        return Err(format!("{} devices are too many: at most {COUNT_MAX}", numbers.count));
    }
    for index in 0..numbers.count.max(1) {
        let mut name = name.to_vec();
        if numbers.count > 0 {
            let number = u64::from(numbers.start) + u64::from(index);
            name.extend_from_slice(number.to_string().as_bytes());
        }
        let minor = u64::from(numbers.minor) + u64::from(index) * u64::from(numbers.step);
        let minor = u32::try_from(minor).map_err(|_| format!("minor number {minor}"))?;
        let device = words::device(numbers.major, minor)?;
        let new = if block { New::BlockDevice(device) } else { New::CharDevice(device) };
        entries.push(Entry {
            line,
            path: MemberPath::relative(&name)?,
            act: Act::Put { new, there: There::Replace },
            set: set.clone(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::entry::Id;

    #[test]
    fn a_row_of_devices() {
        let text = b"# table\n/dev/sda b 640 0 disk 3 1 1 1 15\n/dev/tty c 666 0 0 5 0 - - -\n";
        let entries = parse(text).unwrap();
        assert_eq!(entries.len(), 16);
        assert_eq!(entries[0].path.bytes(), b"dev/sda1");
        assert_eq!(entries[14].path.bytes(), b"dev/sda15");
        let device = words::device(3, 15).unwrap();
        assert!(
            matches!(entries[14].act, Act::Put { new: New::BlockDevice(d), .. } if d == device)
        );
        assert_eq!(entries[3].set.gid, Some(Id::Name((*b"disk").into())));
        assert_eq!(entries[15].path.bytes(), b"dev/tty");
    }

    #[test]
    fn what_is_not_given_stays() {
        let entries = parse(b"/srv r -1 5 - - - - - -\n/a F 644 0 0\n").unwrap();
        assert_eq!(entries[0].set.permissions, None);
        assert_eq!((&entries[0].set.uid, &entries[0].set.gid), (&Some(Id::Number(5)), &None));
        assert!(matches!(entries[1].act, Act::Change { missing: Missing::Ignore, .. }));
    }

    #[test]
    fn capabilities_belong_to_the_line_before() {
        let text = b"/a f 755 0 0 - - - - -\n|xattr cap_net_raw+ep\n|xattr cap_chown+ep\n";
        let entries = parse(text).unwrap();
        assert_eq!(entries[0].set.xattrs.len(), 1);
        assert_eq!(entries[0].set.xattrs[0].value[4..8], [1, 0x20, 0, 0]);
        assert_eq!(parse(b"|xattr cap_chown+p").unwrap_err().0, 1);
    }

    #[test]
    fn lines_that_cannot_be_read() {
        for (wrong, why) in [
            (&b"dev d 755 0 0"[..], "slash"),
            (b"/dev x 755 0 0", "types"),
            (b"/dev d 788 0 0", "octal"),
            (b"/dev d 755 0", "group"),
            (b"/dev c 755 0 0 5000 0 - - -", "5000:0"),
            (b"/dev c 755 0 0 5 0 0 1 99999", "99999"),
            (b"/dev c 755 0 0 5 0 0 1 1 1", "too many"),
            (b"/dev c 755 0 0 5 0 0 4294967295 9", "5:4294967295"),
            (b"/../dev d 755 0 0", "'..'"),
            (b"/dev d 755 -5 0", "neither"),
        ] {
            let (line, said) = parse(wrong).unwrap_err();
            assert!(line == 1 && said.contains(why), "{}: {said}", wrong.escape_ascii());
        }
    }
}
