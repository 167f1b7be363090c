//! Trees in a machine: the test program runs in it, and builds and digests trees with the host's
//! code.
//!
//! Such a program has one ignored test that only calls [`serve`]. The machine runs this test.

use std::path::Path;
use std::process::Stdio;

use crate::judge::command;
use crate::tree::{
    PathTarget, Snapshot, SnapshotOptions, Synced, TreeSpec, build, digest_path, plan,
};

/// Carries the job from the script to [`serve`].
const VARIABLE: &str = "CAIRN_VM_JOB";
const BEGIN: &str = "@@snapshot";
const END: &str = "@@snapshot-end";

/// A job for the machine.
#[derive(Clone, Debug)]
pub enum Job {
    /// Builds the tree of a specification in a directory.
    Build(TreeSpec, String),
    /// Prints the contents of a directory; [`Job::snapshots`] finds them in the output.
    Digest(String),
    /// [`Job::Digest`], with allocated sectors and holes.
    DigestAll(String),
    /// Makes the start of a seed's changes, in a directory.
    Before(u64, String),
    /// Makes the changes of a seed and syncs each.
    Synced(u64, String),
    /// Makes changes without a sync.
    Loose(u64, String),
}

impl Job {
    /// The line of a script that does it. `test` is the name of the ignored test.
    #[must_use]
    pub fn line(&self, test: &str) -> String {
        let job = match self {
            Self::Build(spec, directory) => {
                let TreeSpec { seed, directories, files, size_max, privileged, xattrs } = spec;
                format!(
                    "build {seed} {directories} {files} {size_max} {privileged} {xattrs} \
                     {directory}"
                )
            }
            Self::Digest(directory) => format!("digest {directory}"),
            Self::DigestAll(directory) => format!("digest-all {directory}"),
            Self::Before(seed, directory) => format!("before {seed} {directory}"),
            Self::Synced(seed, directory) => format!("synced {seed} {directory}"),
            Self::Loose(seed, directory) => format!("loose {seed} {directory}"),
        };
        format!("{VARIABLE}='{job}' agent --ignored --exact {test} --nocapture --test-threads=1\n")
    }

    /// The snapshots in a script's output, in their order.
    ///
    /// # Panics
    /// One is damaged.
    #[must_use]
    pub fn snapshots(text: &str) -> Vec<Snapshot> {
        let mut found = Vec::new();
        let mut rest = text;
        while let Some((_, after)) = rest.split_once(&format!("{BEGIN}\n")) {
            let (inside, after) =
                after.split_once(&format!("{END}\n")).expect("a snapshot has an end");
            found.push(
                Snapshot::parse(inside).unwrap_or_else(|| panic!("a damaged snapshot:\n{inside}")),
            );
            rest = after;
        }
        found
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        match words.next()? {
            "build" => {
                let spec = TreeSpec {
                    seed: words.next()?.parse().ok()?,
                    directories: words.next()?.parse().ok()?,
                    files: words.next()?.parse().ok()?,
                    size_max: words.next()?.parse().ok()?,
                    privileged: words.next()?.parse().ok()?,
                    xattrs: words.next()?.parse().ok()?,
                };
                Some(Self::Build(spec, words.next()?.to_owned()))
            }
            "digest" => Some(Self::Digest(words.next()?.to_owned())),
            "digest-all" => Some(Self::DigestAll(words.next()?.to_owned())),
            "before" => Some(Self::Before(words.next()?.parse().ok()?, words.next()?.to_owned())),
            "synced" => Some(Self::Synced(words.next()?.parse().ok()?, words.next()?.to_owned())),
            "loose" => Some(Self::Loose(words.next()?.parse().ok()?, words.next()?.to_owned())),
            _ => None,
        }
    }
}

/// Does the job that the script gave. The ignored test calls it. Outside of a machine (in a run of
/// all ignored tests) there is no job.
///
/// # Panics
/// The job is unknown or fails.
pub fn serve() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    match Job::parse(&text).unwrap_or_else(|| panic!("no such job: {text}")) {
        Job::Build(spec, directory) => build(&PathTarget::new(directory), &plan(&spec)),
        Job::Digest(directory) => print(&directory, SnapshotOptions::default()),
        Job::DigestAll(directory) => {
            print(&directory, SnapshotOptions { sectors: true, ..SnapshotOptions::default() })
        }
        Job::Before(seed, directory) => {
            build(&PathTarget::new(directory), &Synced::new(seed).before)
        }
        Job::Synced(seed, directory) => {
            build(&PathTarget::new(directory), &Synced::new(seed).changes)
        }
        Job::Loose(seed, directory) => build(&PathTarget::new(directory), &Synced::new(seed).loose),
    }
}

fn print(directory: &str, options: SnapshotOptions) {
    let snapshot = digest_path(Path::new(directory), options).expect("the tree is read");
    println!("\n{BEGIN}\n{}{END}", snapshot.to_text());
}

/// The running test program without its debugging information, in `directory`.
pub(super) fn stripped_self(directory: &Path) -> std::path::PathBuf {
    let program = std::env::current_exe().expect("the test program has a path");
    let copy = directory.join("agent");
    let output =
        command("strip").arg("-o").arg(&copy).arg(&program).stderr(Stdio::piped()).output();
    let output = output.expect("strip starts");
    assert!(output.status.success(), "strip: {}", String::from_utf8_lossy(&output.stderr));
    copy
}
