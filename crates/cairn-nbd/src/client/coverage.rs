//! [`Coverage`]: which bytes of a read have come.

/// Parts of a range, without overlaps, in order. Parts that touch are one.
#[derive(Debug, Default)]
pub(super) struct Coverage(Vec<(u64, u64)>);

impl Coverage {
    /// Adds a part from `start` to `end`. False if a byte of it was there.
    pub(super) fn add(&mut self, start: u64, end: u64) -> bool {
        let at = self.0.partition_point(|part| part.0 < start);
        let before = at.checked_sub(1).and_then(|at| self.0.get(at)).copied();
        let after = self.0.get(at).copied();
        if before.is_some_and(|part| part.1 > start) || after.is_some_and(|part| part.0 < end) {
            return false;
        }
        let touches_before = before.is_some_and(|part| part.1 == start);
        let touches_after = after.is_some_and(|part| part.0 == end);
        match (touches_before, touches_after) {
            (true, true) => {
                self.0[at - 1].1 = self.0[at].1;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].1 = end,
            (false, true) => self.0[at].0 = start,
            (false, false) => self.0.insert(at, (start, end)),
        }
        true
    }

    /// Bytes that have come.
    pub(super) fn total(&self) -> u64 {
        self.0.iter().map(|part| part.1 - part.0).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_knows_what_a_set_knows(
            parts in proptest::collection::vec((0_u64..60, 1_u64..9), 0..40),
        ) {
            let (mut coverage, mut model) = (Coverage::default(), BTreeSet::new());
            for (start, len) in parts {
                let is_new = (start..start + len).all(|byte| !model.contains(&byte));
                prop_assert_eq!(coverage.add(start, start + len), is_new);
                if is_new {
                    model.extend(start..start + len);
                }
                prop_assert_eq!(coverage.total(), model.len() as u64);
                let apart = coverage.0.windows(2).all(|two| two[0].1 < two[1].0);
                prop_assert!(apart, "{:?}", coverage);
            }
        }
    }
}
