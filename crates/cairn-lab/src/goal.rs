//! Goals: a number that an improvement should reach, and the number that was measured.

use serde::{Deserialize, Serialize};

/// Which side of the target meets the goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// The measured value must be at least the target.
    AtLeast,
    /// The measured value must be at most the target.
    AtMost,
    /// The measured value must be below the target.
    Below,
}

/// Outcome of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The measured value meets the target.
    Met,
    /// It does not meet the target.
    NotMet,
    /// This run could not measure it; the notes say why.
    NotMeasured,
    /// It was measured with too little work for a verdict.
    NotJudged,
}

/// One number that an experiment should reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// What the number is.
    pub(crate) text: String,
    /// Which side of `target` meets the goal.
    pub(crate) relation: Relation,
    /// The target.
    pub(crate) target: f64,
    /// The measured value: a median, or the worst of several.
    pub(crate) measured: Option<f64>,
    /// Whether the goal is met.
    pub(crate) verdict: Verdict,
}

impl Goal {
    /// Judges `measured`; `None` means that it could not be measured.
    #[must_use]
    pub(crate) fn judge(
        text: impl Into<String>,
        relation: Relation,
        target: f64,
        measured: Option<f64>,
    ) -> Self {
        let measured = measured.filter(|value| value.is_finite());
        let verdict = match measured {
            None => Verdict::NotMeasured,
            Some(value) if relation.holds(value, target) => Verdict::Met,
            Some(_) => Verdict::NotMet,
        };
        Self { text: text.into(), relation, target, measured, verdict }
    }

    /// The same without a verdict on what was measured.
    #[must_use]
    pub(crate) fn without_verdict(mut self) -> Self {
        if self.measured.is_some() {
            self.verdict = Verdict::NotJudged;
        }
        self
    }
}

impl Relation {
    fn holds(self, measured: f64, target: f64) -> bool {
        match self {
            Self::AtLeast => measured >= target,
            Self::AtMost => measured <= target,
            Self::Below => measured < target,
        }
    }

    /// `≥`, `≤` or `<`.
    #[must_use]
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => "≥",
            Self::AtMost => "≤",
            Self::Below => "<",
        }
    }
}

impl Verdict {
    /// The relation in words.
    #[must_use]
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::NotMeasured => "not measured",
            Self::NotJudged => "not judged",
        }
    }
}

/// The worst of several measurements for a goal with this relation. `None` if any of them is
/// missing.
#[must_use]
pub(crate) fn worst(
    relation: Relation,
    values: impl IntoIterator<Item = Option<f64>>,
) -> Option<f64> {
    let mut worst: Option<f64> = None;
    for value in values {
        let value = value?;
        worst = Some(match (worst, relation) {
            (None, _) => value,
            (Some(worst), Relation::AtLeast) => worst.min(value),
            (Some(worst), Relation::AtMost | Relation::Below) => worst.max(value),
        });
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let verdict =
            |relation, target, measured| Goal::judge("x", relation, target, measured).verdict;
        assert_eq!(verdict(Relation::AtLeast, 2.6, Some(2.6)), Verdict::Met);
        assert_eq!(verdict(Relation::AtLeast, 2.6, Some(2.59)), Verdict::NotMet);
        assert_eq!(verdict(Relation::AtMost, 1.0, Some(1.0)), Verdict::Met);
        assert_eq!(verdict(Relation::Below, 1.0, Some(1.0)), Verdict::NotMet);
        assert_eq!(verdict(Relation::AtLeast, 1.0, None), Verdict::NotMeasured);
        assert_eq!(verdict(Relation::AtLeast, 1.0, Some(f64::NAN)), Verdict::NotMeasured);
        let without =
            |measured| Goal::judge("x", Relation::AtLeast, 1.0, measured).without_verdict().verdict;
        assert_eq!(without(Some(2.0)), Verdict::NotJudged);
        assert_eq!(without(None), Verdict::NotMeasured);
    }

    #[test]
    fn the_worst_counts_and_a_gap_spoils_all() {
        assert_eq!(worst(Relation::AtLeast, [Some(3.0), Some(2.0)]), Some(2.0));
        assert_eq!(worst(Relation::AtMost, [Some(3.0), Some(2.0)]), Some(3.0));
        assert_eq!(worst(Relation::AtMost, [Some(3.0), None]), None);
        assert_eq!(worst(Relation::AtMost, []), None);
    }
}
