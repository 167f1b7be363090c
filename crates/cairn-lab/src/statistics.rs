//! Statistics of repeated measurements: median, quartiles, extremes.

use serde::{Deserialize, Serialize};

/// The distribution of one figure over the repetitions, in the unit of its metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub(crate) median: f64,
    /// The smallest sample.
    pub(crate) min: f64,
    /// The largest sample.
    pub(crate) max: f64,
    /// First quartile.
    pub(crate) q1: f64,
    /// Third quartile.
    pub(crate) q3: f64,
    /// All samples, in the order of the repetitions.
    pub(crate) samples: Vec<f64>,
}

impl Spread {
    /// The distribution of the finite samples. `None` if there is none.
    #[must_use]
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let samples: Vec<f64> =
            samples.iter().copied().filter(|sample| sample.is_finite()).collect();
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let at = |fraction| quantile(&sorted, fraction);
        Some(Self { median: at(0.5), min, max, q1: at(0.25), q3: at(0.75), samples })
    }

    /// Divides by `base` repetition by repetition, which cancels drift of the machine. If the
    /// repetitions differ in number, the ratio of the medians.
    #[must_use]
    pub(crate) fn ratio_to(&self, base: &Self) -> Option<Self> {
        if self.samples.len() == base.samples.len() {
            let paired: Vec<f64> =
                self.samples.iter().zip(&base.samples).map(|(own, base)| own / base).collect();
            if paired.iter().all(|ratio| ratio.is_finite()) {
                return Self::of(&paired);
            }
        }
        Self::of(&[self.median / base.median])
    }
}

/// The quantile of sorted samples, linear between neighbours (definition R-7, as NumPy and
/// spreadsheets use).
fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = fraction * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_and_even_numbers_of_samples() {
        let odd = Spread::of(&[5.0, 1.0, 3.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max, odd.q1, odd.q3), (3.0, 1.0, 5.0, 2.0, 4.0));
        assert_eq!(odd.samples, [5.0, 1.0, 3.0]);
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        let one = Spread::of(&[7.0]).unwrap();
        assert_eq!((one.median, one.q1, one.q3), (7.0, 7.0, 7.0));
    }

    #[test]
    fn what_is_not_a_number_is_no_sample() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[f64::NAN, f64::INFINITY]), None);
        assert_eq!(Spread::of(&[f64::NAN, 2.0]).unwrap().samples, [2.0]);
    }

    #[test]
    fn ratios_are_taken_within_repetitions() {
        // The machine became twice as slow in the second half, and the ratio stays the same.
        let own = Spread::of(&[20.0, 20.0, 10.0, 10.0]).unwrap();
        let base = Spread::of(&[10.0, 10.0, 5.0, 5.0]).unwrap();
        let ratio = own.ratio_to(&base).unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (2.0, 2.0, 2.0));
        let short = Spread::of(&[5.0]).unwrap();
        assert_eq!(own.ratio_to(&short).unwrap().median, 3.0);
        let zero = Spread::of(&[0.0]).unwrap();
        assert_eq!(short.ratio_to(&zero), None);
    }
}
