use proptest::prelude::*;

use super::*;

/// Bit by bit, straight from the definition.
fn naive(map: &[u8]) -> Vec<bool> {
    map.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)).collect()
}

fn first(bits: &[bool], from: usize, end: usize, wanted: bool) -> Option<usize> {
    (from..end).find(|bit| bits[*bit] == wanted)
}

/// Maps with long runs as well as noise, and a range within.
fn map_and_range() -> impl Strategy<Value = (Vec<u8>, usize, usize)> {
    let byte = prop_oneof![Just(0_u8), Just(0xff), any::<u8>()];
    let runs = prop::collection::vec((byte, 1..12_usize), 1..8);
    runs.prop_map(|runs| {
        runs.into_iter().flat_map(|(byte, times)| vec![byte; times]).collect::<Vec<u8>>()
    })
    .prop_flat_map(|map| {
        let bits = map.len() * 8;
        (Just(map), 0..=bits, 0..=bits)
    })
}

proptest! {
    #[test]
    fn reads_agree_with_the_definition((map, a, b) in map_and_range()) {
        let bits = naive(&map);
        let (from, end) = (a.min(b), a.max(b));
        prop_assert_eq!(next_set(&map, from, end), first(&bits, from, end, true));
        prop_assert_eq!(next_clear(&map, from, end), first(&bits, from, end, false));
        let mut other = map.clone();
        other.reverse();
        let both: Vec<bool> = naive(&other).iter().zip(&bits).map(|(one, two)| one | two).collect();
        prop_assert_eq!(next_clear_in_both(&map, &other, from, end),
            first(&both, from, end, false));
        prop_assert_eq!(count_set(&map, from, end - from),
            bits[from..end].iter().filter(|bit| **bit).count());
        for (bit, value) in bits.iter().enumerate() {
            prop_assert_eq!(test(&map, bit), *value);
        }
        prop_assert_eq!(next_set(&map, end, from),
            if from == end { None } else { first(&bits, end, from, true) });
    }

    #[test]
    fn ranges_agree_with_the_definition((map, a, b) in map_and_range(), ones: bool) {
        let (from, end) = (a.min(b), a.max(b));
        let mut bits = naive(&map);
        bits[from..end].fill(ones);
        let mut changed = map;
        if ones {
            set_range(&mut changed, from, end - from);
        } else {
            clear_range(&mut changed, from, end - from);
        }
        prop_assert_eq!(naive(&changed), bits);
    }

    #[test]
    fn single_bits_agree_with_the_definition((map, a, b) in map_and_range()) {
        let mut bits = naive(&map);
        let mut changed = map;
        let last = bits.len() - 1;
        let (a, b) = (a.min(last), b.min(last));
        prop_assert_eq!(set(&mut changed, a), std::mem::replace(&mut bits[a], true));
        prop_assert_eq!(clear(&mut changed, b), std::mem::replace(&mut bits[b], false));
        prop_assert_eq!(naive(&changed), bits);
    }
}

#[test]
#[should_panic(expected = "bit range ends at 65, bitmap has 64 bits")]
fn a_search_beyond_the_map_is_a_bug() {
    let _ = next_set(&[0; 8], 0, 65);
}
