//! Times of inodes: 32 signed bits of seconds; larger inodes have two more bits and nanoseconds.
//!
//! Source: "Inode Timestamps" in the kernel's ext4 documentation.

use cairn_vfs::types::Timestamp;

const NANOS_PER_SECOND: u32 = 1_000_000_000;
/// First second of the wide form.
pub(crate) const FIRST: i64 = -(1 << 31);
/// Last second of the wide form (the year 2446).
pub(crate) const LAST: i64 = (1 << 34) + FIRST - 1;

/// Decodes a time. `extra` is `None` if the inode has no room for it.
#[must_use]
pub(crate) fn decode(seconds: u32, extra: Option<u32>) -> Timestamp {
    let base = i64::from(seconds.cast_signed());
    match extra {
        None => Timestamp { seconds: base, nanoseconds: 0 },
        Some(extra) => Timestamp {
            seconds: base.saturating_add(i64::from(extra & 3) << 32),
            nanoseconds: (extra >> 2).min(NANOS_PER_SECOND - 1),
        },
    }
}

/// The nearest time that can be stored, as Linux truncates it: whole seconds in the short form, and
/// the limits of the range.
#[must_use]
pub fn storable(time: Timestamp, wide: bool) -> Timestamp {
    let last = if wide { LAST } else { i64::from(i32::MAX) };
    let seconds = time.seconds.clamp(FIRST, last);
    let whole = !wide || seconds == FIRST || seconds == last;
    Timestamp { seconds, nanoseconds: if whole { 0 } else { time.nanoseconds } }
}

/// Encodes the nearest [`storable`] time as `(seconds, extra)`.
#[must_use]
pub(crate) fn encode(time: Timestamp, wide: bool) -> (u32, u32) {
    let Timestamp { seconds, nanoseconds } = storable(time, wide);
    let low = u32::try_from(seconds & 0xffff_ffff).unwrap_or(0);
    if !wide {
        return (low, 0);
    }
    let epoch =
        u32::try_from(seconds.saturating_sub(i64::from(low.cast_signed())) >> 32).unwrap_or(0);
    (low, epoch & 3 | nanoseconds.min(NANOS_PER_SECOND - 1) << 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_times_round_trip() {
        for seconds in
            [FIRST + 1, -1, 0, 1, i64::from(i32::MAX), 1 << 31, 1 << 32, (1 << 33) + 7, LAST - 1]
        {
            for nanoseconds in [0, 1, 999_999_999] {
                let time = Timestamp { seconds, nanoseconds };
                let (low, extra) = encode(time, true);
                assert_eq!(decode(low, Some(extra)), time);
            }
        }
    }

    #[test]
    fn values_of_the_specification() {
        // The table of the ext4 documentation: extra bits, 32-bit time, first second.
        for (epoch, low, seconds) in [
            (0, 0x8000_0000_u32, -0x8000_0000_i64),
            (0, 0, 0),
            (1, 0x8000_0000, 0x8000_0000),
            (1, 0, 0x1_0000_0000),
            (2, 0x8000_0000, 0x1_8000_0000),
            (3, 0x7fff_ffff, 0x3_7fff_ffff),
        ] {
            assert_eq!(decode(low, Some(epoch)).seconds, seconds);
            assert_eq!(encode(Timestamp { seconds, nanoseconds: 0 }, true), (low, epoch));
        }
    }

    #[test]
    fn out_of_range_is_clamped() {
        let far = Timestamp { seconds: i64::MAX, nanoseconds: 5 };
        assert_eq!(encode(far, false), (i32::MAX.cast_unsigned(), 0));
        let (low, extra) = encode(far, true);
        assert_eq!(decode(low, Some(extra)), Timestamp { seconds: LAST, nanoseconds: 0 });
        assert_eq!(storable(far, true), Timestamp { seconds: LAST, nanoseconds: 0 });
        let time = Timestamp { seconds: 7, nanoseconds: 5 };
        assert_eq!((storable(time, true), storable(time, false).nanoseconds), (time, 0));
        assert_eq!(decode(0, Some(u32::MAX)).nanoseconds, 999_999_999);
    }
}
