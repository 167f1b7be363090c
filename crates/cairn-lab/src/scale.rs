//! The amount of work of an experiment.

use serde::{Deserialize, Serialize};

/// The amount of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Half a minute: a rough figure, no verdicts.
    Quick,
    /// Less than ten minutes on two cores: the published tables.
    #[default]
    Default,
    /// No time limit: sizes near those of the proposals.
    Full,
}

impl std::fmt::Display for Scale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.pick("quick", "default", "full"))
    }
}

impl Scale {
    /// Selects a value by scale.
    pub(crate) fn pick<T>(self, quick: T, default: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Default => default,
            Self::Full => full,
        }
    }
}
