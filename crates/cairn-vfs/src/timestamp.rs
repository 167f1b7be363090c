//! Times of files.

use std::time::{SystemTime, UNIX_EPOCH};

/// A point in time: seconds since 1970 (may be negative) and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since the epoch.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self {
                seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                nanoseconds: since.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let borrow = i64::from(before.subsec_nanos() > 0);
                Self {
                    seconds: -i64::try_from(before.as_secs()).unwrap_or(i64::MAX) - borrow,
                    nanoseconds: (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_before_1970_have_positive_nanoseconds() {
        let before = UNIX_EPOCH - Duration::new(1, 250_000_000);
        assert_eq!(Timestamp::from(before), Timestamp { seconds: -2, nanoseconds: 750_000_000 });
        assert_eq!(
            Timestamp::from(UNIX_EPOCH - Duration::from_secs(3)),
            Timestamp { seconds: -3, nanoseconds: 0 }
        );
        assert_eq!(
            Timestamp::from(UNIX_EPOCH + Duration::new(5, 7)),
            Timestamp { seconds: 5, nanoseconds: 7 }
        );
    }
}
