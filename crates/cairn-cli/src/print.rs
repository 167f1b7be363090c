//! Text forms of attributes.

use std::borrow::Cow;

use cairn_base::names::{Escaped, is_hidden};
use cairn_vfs::{Attributes, FileKind, Timestamp};

/// `-rwxr-sr-x`, as `ls -l` prints it.
#[must_use]
pub fn mode(attributes: &Attributes) -> String {
    let bits = attributes.permissions;
    let mut text = String::from(kind_letter(attributes.kind));
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let class = bits >> shift;
        text.push(if class & 4 != 0 { 'r' } else { '-' });
        text.push(if class & 2 != 0 { 'w' } else { '-' });
        text.push(match (class & 1 != 0, bits & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
        });
    }
    text
}

const fn kind_letter(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "-",
        FileKind::Directory => "d",
        FileKind::Symlink => "l",
        FileKind::BlockDevice => "b",
        FileKind::CharDevice => "c",
        FileKind::Fifo => "p",
        FileKind::Socket => "s",
    }
}

/// The kind in words, as `stat` prints it.
#[must_use]
pub const fn kind(kind: FileKind) -> &'static str {
    kind.words()
}

/// `2026-11-21 05:21:00` in UTC.
#[must_use]
pub fn time(at: Timestamp) -> String {
    let days = at.seconds.div_euclid(86_400);
    let second = at.seconds.rem_euclid(86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// With nanoseconds and the zone, as `stat` prints it.
#[must_use]
pub fn time_exact(at: Timestamp) -> String {
    format!("{}.{:09} +0000", time(at), at.nanoseconds)
}

/// Rows in columns, two spaces apart.
#[must_use]
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// A name for people, as `ls -b` prints it: control characters, backslashes and bytes that are not
/// UTF-8 become `\n`, `\\` or three octal digits (`\033`). The result is one line, and no two names
/// have the same one.
#[must_use]
pub fn escaped(name: &[u8]) -> String {
    name.escaped()
}

/// A message as one harmless line: control characters that are still in it are escaped. What
/// [`escaped`] has made stays as it is.
#[must_use]
pub fn harmless(message: &str) -> Cow<'_, str> {
    if !message.chars().any(is_hidden) {
        return Cow::Borrowed(message);
    }
    let mut parts = message.split('\\').map(|part| escaped(part.as_bytes()));
    let first = parts.next().unwrap_or_default();
    Cow::Owned(parts.fold(first, |text, part| text + "\\" + &part))
}

/// Year, month and day of a day counted from 1970 (proleptic Gregorian calendar): eras of 400 years
/// that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Mode, links, owner, group, size (or device numbers) and time, in the columns of `ls -l`.
#[must_use]
pub fn long(attributes: &Attributes, human_readable: bool) -> String {
    let size = match attributes.kind {
        FileKind::BlockDevice | FileKind::CharDevice => {
            let (major, minor) = cairn_vfs::decode_device(attributes.device);
            format!("{major}, {minor}")
        }
        _ if human_readable => size_short(attributes.size),
        _ => attributes.size.to_string(),
    };
    format!(
        "{} {:>3} {:>5} {:>5} {size:>10} {}",
        mode(attributes),
        attributes.links,
        attributes.uid,
        attributes.gid,
        time(attributes.mtime),
    )
}

/// `1.5 GiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut scaled = bytes;
    let mut tenths = 0;
    while scaled >= 1024 && unit + 1 < UNITS.len() {
        tenths = scaled % 1024 * 10 / 1024;
        scaled /= 1024;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{scaled}.{tenths} {}", UNITS[unit]) }
}

/// `1.5G`, as du -h and df -h print it: rounded up, without a space.
#[must_use]
pub fn size_short(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let (mut unit, mut one) = (0, 1_u64);
    while bytes.div_ceil(one) >= 1024 && unit + 1 < UNITS.len() {
        unit += 1;
        one <<= 10;
    }
    // With tenths if there is one digit before the point.
    let tenths = u64::try_from((u128::from(bytes) * 10).div_ceil(one.into())).unwrap_or(u64::MAX);
    if unit > 0 && tenths < 100 {
        format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit])
    } else {
        format!("{}{}", bytes.div_ceil(one), UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 0 }
    }

    #[test]
    fn times_before_and_after_the_epoch() {
        assert_eq!(time(at(0)), "1970-01-01 00:00:00");
        assert_eq!(time(at(-1)), "1969-12-31 23:59:59");
        assert_eq!(time(at(951_782_400)), "2000-02-29 00:00:00");
        assert_eq!(time(at(4_107_542_399)), "2100-02-28 23:59:59");
        assert_eq!(time(at(4_107_542_400)), "2100-03-01 00:00:00");
        assert_eq!(
            time_exact(Timestamp { seconds: 1, nanoseconds: 5 }),
            "1970-01-01 00:00:01.000000005 +0000"
        );
    }

    #[test]
    fn names_are_one_line_and_harmless() {
        assert_eq!(escaped("plain náme".as_bytes()), "plain náme");
        assert_eq!(escaped(b"a\nb\tc\\d\x1b[31m\xff\xfe"), "a\\nb\\tc\\\\d\\033[31m\\377\\376");
        assert_eq!(escaped("\u{202e}gnp.exe\u{85}".as_bytes()), "\\342\\200\\256gnp.exe\\302\\205");
    }

    #[test]
    fn messages_are_escaped_once() {
        let message = format!("{}: gone", escaped(b"a\nb\\c"));
        assert_eq!(harmless(&message), message);
        assert_eq!(harmless("a\n\\n\x1b[2J: gone"), "a\\n\\n\\033[2J: gone");
        assert!(matches!(harmless("plain náme\\"), Cow::Borrowed(_)));
    }

    #[test]
    fn short_sizes_are_rounded_up() {
        for (bytes, shown) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 << 10, "10K"),
            (1 << 20, "1.0M"),
        ] {
            assert_eq!(size_short(bytes), shown);
        }
        assert_eq!(
            (size_short((1 << 20) - 1), size_short(u64::MAX)),
            ("1.0M".into(), "16E".into())
        );
    }

    #[test]
    fn sizes() {
        assert_eq!(
            (size(1023), size(1536), size(1 << 30)),
            ("1023 B".into(), "1.5 KiB".into(), "1.0 GiB".into())
        );
    }
}
