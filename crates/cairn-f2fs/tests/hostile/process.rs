//! A search in a process with limited memory and processor time.

use std::ops::Range;

use cairn_testkit::judge::command;

use crate::volume::Kind;

/// Environment variable with the search, for the process.
const VARIABLE: &str = "CAIRN_HOSTILE_SEARCH";
/// Enough for the image, its copies, caches of 32 MiB and the stacks of threads.
const MEMORY: u64 = 768 << 20;
/// Seconds of processor time for one image: a hundred times the usual time.
const SECONDS: u64 = 4;
/// Factor for the time by the clock.
const WAITING: u64 = 4;

/// The images to damage, and the use of them.
pub struct Search {
    /// The kind of volume.
    pub kind: Kind,
    /// True if volumes are opened for writing and written.
    pub writing: bool,
    pub seeds: Range<u64>,
}

impl Search {
    /// The search of this process, if [`Search::run`] has started it.
    pub fn from_environment() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        let words: Vec<u64> = text.split(' ').map(|word| word.parse().unwrap()).collect();
        let [kind, writing, start, end] = words[..] else { panic!("{VARIABLE}={text}") };
        Some(Self { kind: Kind::ALL[kind as usize], writing: writing > 0, seeds: start..end })
    }

    /// Runs it. A panic of a background thread is a failure, too.
    #[track_caller]
    pub fn run(self) {
        let Self { kind, writing, seeds } = self;
        let job = format!("{} {} {} {}", kind as u8, u8::from(writing), seeds.start, seeds.end);
        let seconds = 60 + SECONDS * (seeds.end - seeds.start);
        // A process that hangs uses no processor time.
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
