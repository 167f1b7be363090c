//! [`Made`]: the list of what a run makes on an image for its mounts.
//!
//! Records end with NUL. Those that begin with `/` are paths, a directory before what is in it. The
//! others are directories in which something was made: the word `times`, modification time and
//! change time before, modification time afterwards (`-` before everything is made), permission
//! bits, path.

use cairn_vfs::Timestamp;

/// The attribute of the root directory with the list.
pub const LEFTOVERS: &str = "user.cairn.run";

/// The first word of a record of a directory.
const TIMES: &str = "times";

/// A directory in which something was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Its path.
    pub path: Vec<u8>,
    /// Modification and change time before.
    pub before: [Timestamp; 2],
    /// Modification time when everything was made.
    pub after: Option<Timestamp>,
    /// Permission bits.
    pub permissions: u32,
}

/// What a run has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    paths: Vec<Vec<u8>>,
    touched: Vec<Touched>,
}

/// The directory of a path.
pub(super) fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        None | Some(0) => b"/",
        Some(end) => path.get(..end).unwrap_or_default(),
    }
}

impl Made {
    /// Adds what will be made.
    pub fn add(&mut self, path: &[u8]) {
        self.paths.push(path.to_vec());
    }

    /// Adds a directory, as it is before something is made in it.
    pub fn touch(&mut self, directory: Touched) {
        if self.touched(&directory.path).is_none() {
            self.touched.push(directory);
        }
    }

    /// The paths, in order.
    pub fn paths(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.paths.iter().map(Vec::as_slice)
    }

    /// Directories, to add what they are afterwards.
    pub fn touched_mut(&mut self) -> impl Iterator<Item = &mut Touched> {
        self.touched.iter_mut()
    }

    pub(super) fn all_touched(&self) -> impl Iterator<Item = &Touched> {
        self.touched.iter()
    }

    pub(super) fn touched(&self, path: &[u8]) -> Option<&Touched> {
        self.touched.iter().find(|directory| directory.path == path)
    }

    /// The value of the attribute.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut list = Vec::new();
        for directory in &self.touched {
            let [mtime, ctime] = directory.before.map(written);
            let after = directory.after.map_or("-".into(), written);
            let head = format!("{TIMES} {mtime} {ctime} {after} {:o} ", directory.permissions);
            list.extend([head.as_bytes(), directory.path.as_slice(), b"\0"].concat());
        }
        self.paths.iter().for_each(|path| list.extend([path.as_slice(), b"\0"].concat()));
        list
    }

    /// Reads a value. What is no record counts as none.
    #[must_use]
    pub fn decode(list: &[u8]) -> Self {
        let mut made = Self::default();
        for record in list.split(|byte| *byte == 0) {
            if record.starts_with(b"/") {
                made.add(record);
            } else if let Some(directory) = Touched::decode(record) {
                made.touch(directory);
            }
        }
        made
    }
}

impl Touched {
    fn decode(record: &[u8]) -> Option<Self> {
        let mut words = record.splitn(6, |byte| *byte == b' ');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        if word()? != TIMES {
            return None;
        }
        let before = [read(word()?)?, read(word()?)?];
        let after = match word()? {
            "-" => None,
            after => Some(read(after)?),
        };
        let permissions = u32::from_str_radix(word()?, 8).ok()?;
        Some(Self { path: words.next()?.to_vec(), before, after, permissions })
    }
}

fn written(time: Timestamp) -> String {
    format!("{}.{:09}", time.seconds, time.nanoseconds)
}

fn read(text: &str) -> Option<Timestamp> {
    let (seconds, nanoseconds) = text.split_once('.')?;
    Some(Timestamp { seconds: seconds.parse().ok()?, nanoseconds: nanoseconds.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_back_and_other_bytes_are_none() {
        let time = |seconds| Timestamp { seconds, nanoseconds: 7 };
        let mut made = Made::default();
        let before = [time(-1), time(5)];
        let directory = |path: &[u8], after| Touched {
            path: path.to_vec(),
            before,
            after,
            permissions: 0o1755,
        };
        made.touch(directory(b"/", None));
        made.touch(directory(b"/a b", Some(time(9))));
        made.add(b"/proc");
        made.add(b"/a b/\xff");
        assert_eq!(Made::decode(&made.encode()), made);
        for wrong in [&b""[..], b"\0", b"times", b"times 1 2 3 4 /", b"times 1.0 2.0 x 7 /", b"x"] {
            assert_eq!(Made::decode(wrong), Made::default());
        }
        assert_eq!(
            (parent(b"/a/b"), parent(b"/a"), parent(b"a")),
            (&b"/a"[..], &b"/"[..], &b"/"[..])
        );
    }
}
