//! A search in a process that may not have much memory or time.

use std::ops::Range;

use cairn_testkit::judge::command;

use crate::volume::Kind;

/// Carries the search to the process.
const VARIABLE: &str = "CAIRN_HOSTILE_SEARCH";
/// The image, its copies, the caches of 32 MiB and the stacks of threads fit.
const MEMORY: u64 = 768 << 20;
/// Seconds of processor time for one image: a hundred times what it takes.
const SECONDS: u64 = 4;
/// So much longer may it take by the clock.
const WAITING: u64 = 4;

/// Which images are damaged, and what is done to them.
pub struct Search {
    /// Of which kind of volume.
    pub kind: Kind,
    /// Volumes are opened for writing, and written.
    pub writing: bool,
    pub seeds: Range<u64>,
}

impl Search {
    /// What the process is to do, if it was started by [`Search::run`].
    pub fn from_environment() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        let words: Vec<u64> = text.split(' ').map(|word| word.parse().unwrap()).collect();
        let [kind, writing, start, end] = words[..] else { panic!("{VARIABLE}={text}") };
        Some(Self { kind: Kind::ALL[kind as usize], writing: writing > 0, seeds: start..end })
    }

    /// Runs it; also a panic of a thread in the background is a failure.
    #[track_caller]
    pub fn run(self) {
        let Self { kind, writing, seeds } = self;
        let job = format!("{} {} {} {}", kind as u8, u8::from(writing), seeds.start, seeds.end);
        let seconds = 60 + SECONDS * (seeds.end - seeds.start);
        // Who waits for ever takes no processor time.
        let output = command("timeout")
            .args([
                "--signal=KILL".to_owned(),
                (WAITING * seconds).to_string(),
                "prlimit".to_owned(),
            ])
            .args([format!("--data={MEMORY}"), format!("--cpu={seconds}"), "--core=0".to_owned()])
            .arg(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "in_a_small_process", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, job)
            .output()
            .unwrap();
        let (said, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let last = said.lines().rfind(|line| line.starts_with("seed"));
        assert!(
            output.status.success() && !errors.contains("panicked"),
            "{} at {}:\n{errors}{}",
            output.status,
            last.unwrap_or("the start"),
            said.lines().rev().take(5).collect::<Vec<_>>().join("\n")
        );
    }
}
