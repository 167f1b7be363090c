//! The rows of the proposal: 9 of reads, 6 of cached writes, 24 of writes to a device.

/// Where the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Ramdisk,
    Disk,
}

/// When written data must be on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durable {
    /// It stays in the cache.
    Never,
    /// Once, at the end of a pass.
    AtEnd,
    /// After each write.
    EachWrite,
}

/// The work of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    ReadHole,
    ReadData,
    Append(Durable),
    Overwrite(Durable),
}

/// One row.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Index into [`SECTIONS`].
    pub(super) section: usize,
    pub(super) name: String,
    pub(super) medium: Medium,
    pub(super) work: Work,
    /// Bytes of a call.
    pub(super) block: usize,
}

/// Ids and titles of the tables.
pub(super) const SECTIONS: [(&str, &str); 4] = [
    ("reads", "Reads, cold cache"),
    ("writes-cached", "Writes into the cache"),
    ("writes-ramdisk", "Writes to a ramdisk"),
    ("writes-disk", "Writes to a disk"),
];

const BLOCKS: [(usize, &str); 3] = [(4 << 10, "4K"), (64 << 10, "64K"), (1 << 20, "1M")];

impl Line {
    /// How often each byte is copied at least: into the cache or out of it, and from a device in
    /// memory or to it. `None` if nothing is copied, or a disk is slower.
    pub(super) fn copies(&self) -> Option<f64> {
        match (self.medium, self.work) {
            (Medium::Disk, _) | (_, Work::ReadHole) => None,
            _ if self.is_cached_write() => Some(1.0),
            _ => Some(2.0),
        }
    }

    pub(super) fn is_cached_write(&self) -> bool {
        matches!(self.work, Work::Append(Durable::Never) | Work::Overwrite(Durable::Never))
    }
}

/// All rows, table by table.
pub(super) fn all() -> Vec<Line> {
    use {Durable as D, Medium as M, Work as W};
    let mut kinds = vec![
        (0, M::Ramdisk, W::ReadHole, "hole".to_owned()),
        (0, M::Ramdisk, W::ReadData, "ramdisk".to_owned()),
        (0, M::Disk, W::ReadData, "disk".to_owned()),
        (1, M::Ramdisk, W::Append(D::Never), "cached append".to_owned()),
        (1, M::Ramdisk, W::Overwrite(D::Never), "cached overwrite".to_owned()),
    ];
    for (section, medium, name) in [(2, M::Ramdisk, "ramdisk"), (3, M::Disk, "disk")] {
        for (durable, how) in [(D::AtEnd, "write-back"), (D::EachWrite, "sync")] {
            kinds.push((section, medium, W::Append(durable), format!("{name} append {how}")));
            kinds.push((section, medium, W::Overwrite(durable), format!("{name} overwrite {how}")));
        }
    }
    let lines = kinds.into_iter().flat_map(|(section, medium, work, kind)| {
        BLOCKS.map(|(block, size)| Line {
            section,
            name: format!("{kind} {size}"),
            medium,
            work,
            block,
        })
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_the_proposal() {
        let lines = all();
        let in_section = |section| lines.iter().filter(|line| line.section == section).count();
        assert_eq!([0, 1, 2, 3].map(in_section), [9, 6, 12, 12]);
        let mut names: Vec<_> = lines.iter().map(|line| line.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 39);
        assert!(names.contains(&"ramdisk append sync 64K") && names.contains(&"hole 1M"));
        let copies =
            |name: &str| lines.iter().find(|line| line.name == name).and_then(Line::copies);
        assert_eq!((copies("hole 4K"), copies("cached append 1M")), (None, Some(1.0)));
        assert_eq!((copies("ramdisk 1M"), copies("disk append sync 1M")), (Some(2.0), None));
    }
}
