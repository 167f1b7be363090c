//! Zipf's distribution, with the popular blocks scattered over the file.

use crate::random::Rng;

/// Zipf's distribution: the probability of the n-th most popular block is n to the power of `-s`
/// times that of the first.
pub(super) struct Zipf {
    /// Sums of the weights up to each rank.
    sums: Vec<f64>,
    /// The block of each rank.
    blocks: Vec<u32>,
}

impl Zipf {
    pub(super) fn new(blocks: u64, s: f64, rng: &mut Rng) -> Self {
        let mut total = 0.0;
        let sums = (1..=blocks)
            .map(|rank| {
                total += (rank as f64).powf(-s);
                total
            })
            .collect();
        let mut order: Vec<u32> = (0..blocks as u32).collect();
        for at in (1..order.len()).rev() {
            let other = rng.below(at as u64 + 1) as usize;
            order.swap(at, other);
        }
        Self { sums, blocks: order }
    }

    pub(super) fn next(&self, rng: &mut Rng) -> u64 {
        let point = rng.unit() * self.sums.last().copied().unwrap_or(0.0);
        let rank = self.sums.partition_point(|sum| *sum <= point).min(self.sums.len() - 1);
        self.blocks[rank].into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_as_popular_as_they_should() {
        let mut rng = Rng::new(1);
        let zipf = Zipf::new(1000, 1.0, &mut rng);
        let mut counts = vec![0_u32; 1000];
        (0..100_000).for_each(|_| counts[zipf.next(&mut rng) as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // The first block has a share of 1 / 7.485.
        assert!(
            (12_900..13_800).contains(&counts[0]) && (6_300..7_100).contains(&counts[1]),
            "{:?}",
            &counts[..3]
        );
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut rng = Rng::new(7);
        let mut seen = [false; 10];
        (0..1000).for_each(|_| seen[rng.below(10) as usize] = true);
        assert!(seen.iter().all(|seen| *seen));
    }
}
