//! Which thread serves which of the kernel's queues.

use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Entries of each online processor's queue.
fn depth(processors: usize) -> usize {
    (64 / processors.max(1)).clamp(4, 16)
}

/// A queue, and how many entries it gets.
pub(crate) type Home = (u16, usize);

/// The processors of this machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The kernel has this many queues.
    possible: usize,
    /// Those that can run a caller now.
    online: Vec<usize>,
}

impl Placement {
    pub(crate) fn here() -> io::Result<Self> {
        let list = |name: &str| fs::read_to_string(format!("/sys/devices/system/cpu/{name}"));
        Self::of(&list("possible")?, &list("online")?).ok_or_else(|| {
            io::Error::other("the processors of /sys/devices/system/cpu are unclear")
        })
    }

    fn of(possible: &str, online: &str) -> Option<Self> {
        let possible = parse(possible)?.len();
        let online: Vec<usize> = parse(online)?.into_iter().filter(|at| *at < possible).collect();
        // The number of a queue has 16 bits.
        (!online.is_empty() && possible <= usize::from(u16::MAX))
            .then_some(Self { possible, online })
    }

    /// For each ring: the processor of its thread, and its queues. The first one also serves the
    /// processors that are switched off.
    pub(crate) fn rings(&self) -> Vec<(usize, Vec<Home>)> {
        let depth = depth(self.online.len());
        let mut rings: Vec<(usize, Vec<Home>)> =
            self.online.iter().map(|at| (*at, vec![(*at as u16, depth)])).collect();
        let off = (0..self.possible).filter(|at| !self.online.contains(at));
        rings[0].1.extend(off.map(|at| (at as u16, 1)));
        rings
    }
}

/// Lets the calling thread run on one processor only. False if this process may not use it.
pub(crate) fn pin(processor: usize) -> bool {
    let mut only = CpuSet::new();
    if processor >= CpuSet::MAX_CPU {
        return false;
    }
    only.set(processor);
    sched_setaffinity(None, &only).is_ok()
}

/// A list of the kernel's, such as `0-3,8`.
fn parse(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last > usize::from(u16::MAX) {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_has_an_entry_and_every_processor_a_ring() {
        let rings = Placement::of("0-7\n", "1-2,4\n").unwrap().rings();
        let processors: Vec<usize> = rings.iter().map(|ring| ring.0).collect();
        assert_eq!(processors, [1, 2, 4]);
        let mut queues: Vec<u16> =
            rings.iter().flat_map(|ring| &ring.1).map(|home| home.0).collect();
        queues.sort_unstable();
        assert_eq!(queues, (0..8).collect::<Vec<u16>>());
        assert_eq!(rings[1].1, [(2, 16)]);
        assert_eq!(rings[0].1, [(1, 16), (0, 1), (3, 1), (5, 1), (6, 1), (7, 1)]);
    }

    #[test]
    fn entries_are_bounded() {
        let entries = |processors: usize| {
            let list = format!("0-{}", processors - 1);
            let rings = Placement::of(&list, &list).unwrap().rings();
            rings.iter().flat_map(|ring| &ring.1).map(|home| home.1).sum::<usize>()
        };
        assert_eq!((entries(1), entries(2), entries(8), entries(64)), (16, 32, 64, 256));
    }

    #[test]
    fn unclear_lists_are_refused() {
        for (possible, online) in [("0-3", ""), ("x", "0"), ("0-99999", "0"), ("0", "3")] {
            assert_eq!(Placement::of(possible, online), None, "{possible} {online}");
        }
    }
}
