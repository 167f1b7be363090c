//! Changes that are fsynced one by one, for tests of power cuts.
//!
//! After a power cut behind [`Synced::changes`], the volume must equal a digest of that moment,
//! except for files below [`LOOSE`], the times of directories, and the times of files below
//! [`UNTIMED`]. Each group of steps changes files of its own and ends with the `fsync` that makes
//! it durable. The seed decides the order of the groups.

use std::ops::Range;

use cairn_vfs::{AllocateMode, Timestamp};

use super::plan::{Content, Step};

/// Nothing below this directory is synced.
pub const LOOSE: &[u8] = b"loose";
/// Below this directory only `fdatasync` is called: contents and sizes are durable, times are not.
pub const UNTIMED: &[u8] = b"untimed";

const BLOCK: u64 = 4096;
/// Below the inode's own pointers, in direct nodes, behind an indirect node, behind the double
/// indirect one.
const FAR: [u64; 4] = [5 * BLOCK, 950 * BLOCK, 2900 * BLOCK, 2_100_000 * BLOCK];
/// Files made in one directory, each with an `fsync` of its own.
const MANY: u32 = 30;

/// The steps of a seed, in three parts.
#[derive(Clone, Debug)]
pub struct Synced {
    /// The first contents; ends with an `fsync` of the root.
    pub before: Vec<Step>,
    /// Changes, all synced.
    pub changes: Vec<Step>,
    /// Changes below [`LOOSE`] that are not synced.
    pub loose: Vec<Step>,
}

impl Synced {
    /// Plans the steps of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut maker = Maker { rng: fastrand::Rng::with_seed(seed) };
        let before = maker.before();
        let mut groups = maker.groups();
        maker.rng.shuffle(&mut groups);
        // Some files are changed again: their newest nodes follow their older ones in a chain.
        let mut changes: Vec<Step> = groups.into_iter().flatten().collect();
        for name in ["overwritten", "appended", "new", "inline grows", "huge"] {
            let size = 1 + maker.rng.u64(..9000);
            changes.extend([maker.write(name, 0..size), sync(name)]);
        }
        Self { before, changes, loose: maker.loose() }
    }
}

fn bytes(name: &str) -> Vec<u8> {
    name.as_bytes().to_vec()
}

fn sync(name: &str) -> Step {
    Step::Sync(bytes(name))
}

/// `fsync` of the root directory.
fn sync_root() -> Step {
    sync("")
}

fn rename(from: &str, to: &str) -> Step {
    Step::Rename(bytes(from), bytes(to))
}

struct Maker {
    rng: fastrand::Rng,
}

impl Maker {
    /// One run of data; the file ends with it.
    fn content(&mut self, data: Range<u64>) -> Content {
        let size = data.end;
        let data = Some(data).filter(|range| !range.is_empty()).into_iter().collect();
        Content { seed: self.rng.u64(..), size, data }
    }

    fn file(&mut self, name: &str, size: u64) -> Step {
        Step::File(bytes(name), self.content(0..size))
    }

    fn write(&mut self, name: &str, range: Range<u64>) -> Step {
        Step::Write(bytes(name), self.content(range))
    }

    fn xattr(&mut self, name: &str, attribute: &str, len: usize) -> Step {
        let value = (0..len).map(|_| self.rng.u8(..)).collect();
        Step::Xattr(bytes(name), bytes(attribute), value)
    }

    fn before(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for name in ["loose", "untimed", "many", "dir"] {
            steps.push(Step::Directory(bytes(name)));
        }
        let sizes = [
            ("overwritten", 900_000),
            ("appended", 3000),
            ("cut", 4_000_000),
            ("grown", 10_000),
            ("emptied", 500_000),
            ("moved", 20_000),
            ("replacing", 20_000),
            ("replaced", 30_000),
            ("linked", 10_000),
            ("attributes", 100),
            ("owned", 0),
            ("huge", 40_000),
            ("inline", 200),
            ("inline grows", 300),
            ("punched", 400_000),
            ("removed", 50_000),
            ("untimed/file", 200_000),
            ("loose/file", 300_000),
        ];
        for (name, size) in sizes {
            steps.push(self.file(name, size));
        }
        steps.push(self.xattr("attributes", "user.small", 20));
        steps.push(self.xattr("attributes", "user.large", 2500));
        steps.push(sync_root());
        steps
    }

    fn groups(&mut self) -> Vec<Vec<Step>> {
        let mut groups = self.contents();
        groups.extend(self.sizes());
        groups.extend(self.names());
        groups.extend(self.attributes());
        groups
    }

    fn contents(&mut self) -> Vec<Vec<Step>> {
        let mut groups = vec![
            vec![self.file("new", 70_000), sync("new")],
            vec![self.file("new and small", 90), sync("new and small")],
            vec![self.file("new and empty", 0), sync("new and empty")],
            vec![self.write("inline", 50..120), sync("inline")],
            vec![self.write("inline grows", 200..9000), sync("inline grows")],
            vec![self.write("untimed/file", 20_000..60_000), Step::SyncData(bytes("untimed/file"))],
        ];
        for _ in 0..4 {
            let at = self.rng.u64(..800_000);
            groups.push(vec![self.write("overwritten", at..at + 60_000), sync("overwritten")]);
        }
        // First one at a time, then all at once.
        let mut together = Vec::new();
        for base in FAR {
            groups.push(vec![self.write("huge", base..base + 3 * BLOCK), sync("huge")]);
            together.push(self.write("huge and new", base + 100..base + 5000));
        }
        together.insert(0, self.file("huge and new", 0));
        together.push(sync("huge and new"));
        groups.push(together);
        groups.push(
            (0..MANY).flat_map(|number| self.small_file(&format!("many/{number}"))).collect(),
        );
        groups
    }

    fn small_file(&mut self, name: &str) -> [Step; 2] {
        let size = self.rng.u64(..6000);
        [self.file(name, size), sync(name)]
    }

    fn sizes(&mut self) -> Vec<Vec<Step>> {
        let cut = self.rng.u64(1..3_900_000);
        let punched = 30_000..30_000 + self.rng.u64(1..300_000);
        vec![
            vec![self.write("appended", 3000..80_000), sync("appended")],
            vec![Step::Resize(bytes("cut"), cut), sync("cut")],
            vec![Step::Resize(bytes("grown"), 700_001), sync("grown")],
            vec![Step::Resize(bytes("emptied"), 0), sync("emptied")],
            vec![
                Step::Allocate(bytes("punched"), AllocateMode::PunchHole, punched),
                sync("punched"),
            ],
        ]
    }

    fn names(&mut self) -> Vec<Vec<Step>> {
        vec![
            vec![rename("moved", "dir/moved"), sync("dir/moved")],
            vec![rename("replacing", "replaced"), sync("replaced"), sync_root()],
            vec![
                self.file("temporary", 9000),
                sync("temporary"),
                rename("temporary", "final"),
                sync_root(),
            ],
            vec![Step::HardLink(bytes("linked"), bytes("dir/second")), sync("linked")],
            vec![Step::Remove(bytes("removed")), sync_root()],
            // The name is durable, the data is not.
            vec![self.file("dir/in a synced directory", 0), sync("dir")],
            vec![
                Step::Directory(bytes("fresh")),
                Step::Symlink(bytes("fresh/link"), bytes("../new")),
                self.file("fresh/file", 6000),
                sync("fresh/file"),
                sync("fresh"),
            ],
        ]
    }

    fn attributes(&mut self) -> Vec<Vec<Step>> {
        let time = Timestamp { seconds: 1_234_567_890, nanoseconds: 123_456_789 };
        vec![
            vec![self.xattr("attributes", "user.small", 30), sync("attributes")],
            vec![self.xattr("attributes", "user.another", 1200), sync("attributes")],
            vec![Step::RemoveXattr(bytes("attributes"), bytes("user.large")), sync("attributes")],
            vec![
                Step::Owner(bytes("owned"), 1000, 70_000),
                Step::Mode(bytes("owned"), 0o4751),
                Step::Times(bytes("owned"), time, time),
                sync("owned"),
            ],
        ]
    }

    fn loose(&mut self) -> Vec<Step> {
        vec![
            self.write("loose/file", 100_000..400_000),
            self.file("loose/new", 30_000),
            sync("loose/new"),
            self.write("loose/new", 0..10_000),
            self.file("loose/not synced", 50_000),
            rename("loose/not synced", "loose/renamed"),
        ]
    }
}
