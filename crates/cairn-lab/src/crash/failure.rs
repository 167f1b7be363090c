//! A failure as a text of a few lines, which can be replayed.
//!
//! ```text
//! # fsck.f2fs: after recovery …
//! format f2fs
//! mode lfs
//! seed 7
//! state lost 124
//! create 4097 a
//! fsync 4097
//! ```
//! For a history of the exhaustive search, `history …` stands in the place of seed and operations.

use std::fmt;
use std::str::FromStr;

use cairn_crash::durability::History;
use cairn_crash::states::Cut;
use cairn_crash::workload::Op;

use super::kinds::{Format, Kind};

/// What was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// Operations; the seed decides when daemons work, and how the run ends.
    Ops { seed: u64, ops: Vec<Op> },
    /// A history.
    History(History),
}

/// A wrong crash state, and what leads to it.
#[derive(Clone, Debug)]
pub struct Failure {
    pub(super) kind: &'static Kind,
    pub(super) run: Run,
    /// The cut, which is looked at first.
    pub(super) cut: Option<Cut>,
    /// What is wrong.
    pub error: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.error.lines() {
            writeln!(f, "# {line}")?;
        }
        writeln!(f, "format {}\nmode {}", self.kind.format, self.kind.mode)?;
        if let Run::Ops { seed, .. } = &self.run {
            writeln!(f, "seed {seed}")?;
        }
        if let Some(cut) = &self.cut {
            writeln!(f, "state {}", cut.words())?;
        }
        match &self.run {
            Run::Ops { ops, .. } => ops.iter().try_for_each(|op| writeln!(f, "{op}")),
            Run::History(history) => writeln!(f, "history {history}"),
        }
    }
}

impl FromStr for Failure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut format, mut mode, mut seed) = (Format::Ext4, "default".to_owned(), 0);
        let (mut cut, mut history, mut ops) = (None, None, Vec::new());
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            let wrong = |error: String| format!("line {}: {error}", number + 1);
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "" => {}
                _ if line.starts_with('#') => {}
                "format" => format = parse_format(rest).map_err(wrong)?,
                "mode" => mode = rest.trim().to_owned(),
                "seed" => {
                    seed = rest.trim().parse().map_err(|_| {
                        wrong(format!("'{rest}' is no seed: give a number, such as 7"))
                    })?;
                }
                "state" => cut = Some(rest.parse().map_err(wrong)?),
                "history" => history = Some(rest.parse().map_err(wrong)?),
                _ => ops.push(line.parse().map_err(wrong)?),
            }
        }
        if history.is_none() && ops.is_empty() {
            return Err("there is no operation and no history: give at least one".into());
        }
        let kind = Kind::find(format, &mode).map_err(|error| error.to_string())?;
        let run = history.map_or(Run::Ops { seed, ops }, Run::History);
        Ok(Self { kind, run, cut, error: String::new() })
    }
}

fn parse_format(text: &str) -> Result<Format, String> {
    match text.trim() {
        "ext4" => Ok(Format::Ext4),
        "f2fs" => Ok(Format::F2fs),
        other => Err(format!("no format '{other}': give ext4 or f2fs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_read_as_it_is_written() {
        for text in [
            "# e2fsck: -p exits 4:\n# it is wrong\nformat ext4\nmode small-log\nseed 7\n\
             state torn 12 0x1f\ncreate 4097 a\nfsync 4097\n",
            "format f2fs\nmode lfs\nstate lost 3\nhistory Create Rename, Nothing, File\n",
        ] {
            let mut read: Failure = text.parse().unwrap();
            let error: Vec<&str> =
                text.lines().filter_map(|line| line.strip_prefix("# ")).collect();
            read.error = error.join("\n");
            assert_eq!(read.to_string(), text);
        }
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        for (text, expected) in [
            ("", "there is no operation and no history: give at least one"),
            ("format xfs\nsync", "line 1: no format 'xfs': give ext4 or f2fs"),
            ("sync\n\nfsink 3", "line 3: 'fsink 3': no operation 'fsink'"),
            ("seed x", "line 1: 'x' is no seed: give a number, such as 7"),
        ] {
            assert_eq!(text.parse::<Failure>().err().as_deref(), Some(expected));
        }
        let modes = "mode fast\nsync".parse::<Failure>().unwrap_err();
        assert!(
            modes.contains("ext4 has no mode 'fast': give one of default, small-log"),
            "{modes}"
        );
    }
}
