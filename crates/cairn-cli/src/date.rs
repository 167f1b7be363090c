//! Parses points in time as people write them. All are UTC.

use cairn_vfs::Timestamp;

/// Parses `@SECONDS`, `YYYY-MM-DD`, or that with `HH:MM[:SS[.FRACTION]]` behind a space or `T`; `Z`
/// or ` UTC` may follow.
///
/// # Errors
/// The text has none of these forms.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    let wrong = || {
        "give a date in UTC: 2026-11-21, '2026-11-21 05:21:00' or @SECONDS since 1970".to_owned()
    };
    let text = text.trim();
    let text = text.strip_suffix(" UTC").or_else(|| text.strip_suffix('Z')).unwrap_or(text);
    if let Some(number) = text.strip_prefix('@') {
        let (seconds, nanoseconds) =
            number.split_once('.').map_or((number, Some(0)), |(s, f)| (s, fraction(f)));
        let seconds = seconds.parse().map_err(|_| wrong())?;
        return Ok(Timestamp { seconds, nanoseconds: nanoseconds.ok_or_else(wrong)? });
    }
    let (day, time) = text.split_once([' ', 'T']).unwrap_or((text, "00:00"));
    let days = parse_day(day).ok_or_else(wrong)?;
    let (seconds, nanoseconds) = parse_time(time).ok_or_else(wrong)?;
    Ok(Timestamp { seconds: days * 86_400 + seconds, nanoseconds })
}

/// Parses `[[CC]YY]MMDDhhmm[.ss]`, as `touch -t` takes it; without a year it is that of `now`.
///
/// # Errors
/// The text does not have this form.
pub fn parse_stamp(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let parse = || {
        let (stamp, second) = text.split_once('.').unwrap_or((text, "00"));
        let two = |at: usize| stamp.get(at..at + 2).filter(|_| second.len() == 2);
        let (year, at) = match stamp.len() {
            8 => (crate::print::time(now).get(..4)?.to_owned(), 0),
            // As POSIX says: 69 to 99 are of the last century.
            10 => (format!("{}{}", if two(0)? < "69" { 20 } else { 19 }, two(0)?), 2),
            12 => (stamp.get(..4)?.to_owned(), 4),
            _ => return None,
        };
        let days = parse_day(&format!("{year}-{}-{}", two(at)?, two(at + 2)?))?;
        let (seconds, nanoseconds) =
            parse_time(&format!("{}:{}:{second}", two(at + 4)?, two(at + 6)?))?;
        Some(Timestamp { seconds: days * 86_400 + seconds, nanoseconds })
    };
    parse()
        .ok_or_else(|| "give a stamp in UTC: [[CC]YY]MMDDhhmm[.ss], as 202611210521.00".to_owned())
}

fn digits(text: &str, least: i64, most: i64) -> Option<i64> {
    let number = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    (least..=most).contains(&number).then_some(number)
}

fn parse_day(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let (year, month) = (digits(year, 0, 9999)?, digits(month, 1, 12)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let day = digits(day, 1, longest)?;
    parts.next().is_none().then(|| days_since_1970(year, month, day))
}

/// Days to a date of the proleptic Gregorian calendar, by years that begin in March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn parse_time(text: &str) -> Option<(i64, u32)> {
    let (text, nanoseconds) = match text.split_once('.') {
        Some((text, fraction_digits)) => (text, fraction(fraction_digits)?),
        None => (text, 0),
    };
    let mut parts = text.split(':');
    let (hour, minute) = (digits(parts.next()?, 0, 23)?, digits(parts.next()?, 0, 59)?);
    let second = parts.next().map_or(Some(0), |second| digits(second, 0, 59))?;
    parts.next().is_none().then_some((hour * 3600 + minute * 60 + second, nanoseconds))
}

/// Nanoseconds of the digits behind a decimal point.
fn fraction(text: &str) -> Option<u32> {
    let nine: String = text.chars().chain("000000000".chars()).take(9).collect();
    u32::try_from(digits(&nine, 0, 999_999_999).filter(|_| !text.is_empty())?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print;

    #[test]
    fn dates_are_read_as_they_are_printed() {
        for text in [
            "1970-01-01 00:00:00",
            "2000-02-29 23:59:59",
            "1969-12-31 12:00:01",
            "2100-03-01 00:00:00",
        ] {
            assert_eq!(print::time(parse(text).unwrap()), text);
        }
        assert_eq!(parse("2026-11-21"), parse("2026-11-21T00:00:00Z"));
        assert_eq!(
            parse("1970-01-01 00:01:00.25 UTC"),
            Ok(Timestamp { seconds: 60, nanoseconds: 250_000_000 })
        );
        assert_eq!(parse("@-5"), Ok(Timestamp { seconds: -5, nanoseconds: 0 }));
    }

    #[test]
    fn stamps_are_those_of_touch() {
        let now = parse("2026-11-22").unwrap();
        for (stamp, date) in [
            ("202002290102.03", "2020-02-29 01:02:03"),
            ("6901010000", "1969-01-01 00:00:00"),
            ("6812312359", "2068-12-31 23:59:00"),
            ("03040506", "2026-03-04 05:06:00"),
        ] {
            assert_eq!(parse_stamp(stamp, now), parse(date), "{stamp}");
        }
        for bad in [
            "",
            "1",
            "202002300102",
            "03040560",
            "03040506.6",
            "03040506.60",
            "é3040506",
            "+3040506",
        ] {
            assert!(parse_stamp(bad, now).is_err(), "{bad}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "today",
            "2025-02-29",
            "2026-13-01",
            "2026-11-21 24:00",
            "@",
            "@1.",
            "2026-1",
            "2026-11-21 1:2:3:4",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
