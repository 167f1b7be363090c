//! [`Owners`]: the users and groups that a mount can show.
//!
//! In a user namespace the kernel knows only the ids that are mapped there. It refuses changes of
//! files with other owners, even to the namespace's root. Such files are shown as root's; on the
//! volume they keep their owners until somebody gives them new ones.

use std::fs;
use std::io;
use std::ops::Range;

/// Ids, each range without its end.
type Ranges = Vec<Range<u64>>;

/// One behind the largest id.
const ALL: u64 = 1 << 32;

/// Which users and groups are shown as they are. All by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    users: Option<Ranges>,
    groups: Option<Ranges>,
}

impl Owners {
    /// Those that the kernel knows in the user namespace of this process.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn of_this_namespace() -> io::Result<Self> {
        let users = ranges(&fs::read_to_string("/proc/self/uid_map")?);
        let groups = ranges(&fs::read_to_string("/proc/self/gid_map")?);
        Ok(Self { users, groups })
    }

    /// The user that the kernel is told of.
    pub(crate) fn user(&self, id: u32) -> u32 {
        shown(self.users.as_ref(), id)
    }

    /// The group that the kernel is told of.
    pub(crate) fn group(&self, id: u32) -> u32 {
        shown(self.groups.as_ref(), id)
    }
}

fn shown(ranges: Option<&Ranges>, id: u32) -> u32 {
    let known = |ranges: &Ranges| ranges.iter().any(|range| range.contains(&id.into()));
    if ranges.is_none_or(known) { id } else { 0 }
}

/// The ids inside, by a map of the kernel: lines of the first id inside, the first outside, and
/// their number. `None` if they are all.
fn ranges(map: &str) -> Option<Ranges> {
    let range = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (start, _, count) = (numbers.next()?.ok()?, numbers.next()?, numbers.next()?.ok()?);
        Some(start..start.saturating_add(count))
    };
    let ranges: Ranges = map.lines().filter_map(range).collect();
    // The last id of all means "none".
    let is_all = |range: &Range<u64>| range.start == 0 && range.end + 1 >= ALL;
    if ranges.iter().any(is_all) { None } else { Some(ranges) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_the_kernel_does_not_know_are_root_s() {
        assert_eq!(ranges("         0          0 4294967295\n"), None);
        let users = ranges("         0       1000          1\n         1     100000      65535\n");
        let owners = Owners { users, groups: ranges("0 1000 1\n") };
        assert_eq!(
            [0, 33, 65_535, 65_536, 100_000].map(|id| owners.user(id)),
            [0, 33, 65_535, 0, 0]
        );
        assert_eq!([0, 33].map(|id| owners.group(id)), [0, 0]);
        assert_eq!(Owners::default().user(70_000), 70_000);
    }
}
