//! How much work an experiment does.

use serde::{Deserialize, Serialize};

/// How much work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Half a minute: does it work, roughly how fast.
    Quick,
    /// Less than ten minutes on two cores: the published tables.
    #[default]
    Default,
    /// As long as it takes: sizes near the proposals'.
    Full,
}

impl Scale {
    /// One of three, by scale.
    pub(crate) fn pick<T>(self, quick: T, default: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Default => default,
            Self::Full => full,
        }
    }
}
