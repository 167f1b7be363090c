//! Test suites of other projects, run on a mounted directory: `fsx` and `pjdfstest`
//! (`scripts/install-deps` builds them).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Output;

use crate::judge::command;

/// Timestamps must differ by more than the kernel's clock tick; the users must exist on every
/// system.
const PJDFSTEST_CONFIG: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

const FSX_CONFIG: &str = r"
flen = 1048576

[weights]
close_open = 1.0
invalidate = 1.0
mapread = 10.0
mapwrite = 10.0
read = 10.0
write = 10.0
truncate = 5.0
fsync = 1.0
fdatasync = 1.0
posix_fallocate = 2.0
punch_hole = 5.0
sendfile = 2.0
posix_fadvise = 1.0
copy_file_range = 5.0
";

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs fsx on a file that it makes.
///
/// # Panics
/// fsx finds a difference, or is not installed.
#[track_caller]
pub fn fsx(file: &Path, operations: u32, seed: u64) {
    let outside = tempfile::tempdir().expect("a directory for fsx");
    let config = outside.path().join("fsx.toml");
    std::fs::write(&config, FSX_CONFIG).expect("fsx's configuration is written");
    let mut command = command("fsx");
    command
        .args(["-N", &operations.to_string(), "-S", &seed.to_string(), "-P"])
        .arg(outside.path());
    let output = command.arg("-f").arg(&config).arg(file).output().expect("fsx starts");
    let text = text(&output);
    let end: String = text.chars().skip(text.chars().count().saturating_sub(4000)).collect();
    assert!(output.status.success(), "fsx, seed {seed}: {end}");
}

/// Results of the cases of pjdfstest, by name.
pub type Cases = BTreeMap<String, String>;

/// Runs pjdfstest in a directory.
///
/// # Panics
/// It runs too few cases, or is not installed.
#[track_caller]
#[must_use]
pub fn pjdfstest(directory: &Path) -> Cases {
    let outside = tempfile::tempdir().expect("a directory for pjdfstest");
    let config = outside.path().join("pjdfstest.toml");
    std::fs::write(&config, PJDFSTEST_CONFIG).expect("pjdfstest's configuration is written");
    let arguments = [OsStr::new("-c"), config.as_os_str(), OsStr::new("-p"), directory.as_os_str()];
    let text = text(&command("pjdfstest").args(arguments).output().expect("pjdfstest starts"));
    let cases: Cases = text.lines().filter_map(case).collect();
    assert!(cases.len() > 300, "pjdfstest ran {} cases: {text}", cases.len());
    cases
}

/// `name    status`, where a status may be followed by its reason.
fn case(line: &str) -> Option<(String, String)> {
    let (name, rest) = line.trim().split_once(char::is_whitespace)?;
    let status = rest.split_whitespace().next()?.to_lowercase();
    let known = ["success", "passed", "ok", "failed", "skipped"].contains(&status.as_str());
    (known && name.contains("::")).then(|| (name.to_owned(), status))
}

/// Cases that pass in `expected` and not in `found`. With `CAIRN_PJDFSTEST_OUT`, the results of
/// both are written to that file.
///
/// # Panics
/// That file cannot be written.
#[must_use]
pub fn worse<'a>(expected: &'a Cases, found: &Cases) -> Vec<&'a str> {
    if let Some(out) = std::env::var_os("CAIRN_PJDFSTEST_OUT") {
        let line = |name: &String| {
            format!("{name} kernel={:?} cairn={:?}\n", expected.get(name), found.get(name))
        };
        std::fs::write(out, expected.keys().map(line).collect::<String>())
            .expect("the results are written");
    }
    let passes = |results: &Cases, name: &str| {
        results.get(name).is_some_and(|status| !matches!(status.as_str(), "failed" | "skipped"))
    };
    // libc does not ask the filesystem: it derives the limit from the type of the filesystem, and
    // returns 127 for FUSE.
    let asked = |name: &str| name != "link::link_count_max";
    let names = expected.keys().map(String::as_str);
    names.filter(|name| asked(name) && passes(expected, name) && !passes(found, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_fails_or_is_missing_is_worse() {
        let results = |text: &str| text.lines().filter_map(case).collect::<Cases>();
        let expected = results(
            "a::b   ok\nc::d ok\ne::f   FAILED\ng::h  ok\nlink::link_count_max ok\nno case",
        );
        let found = results("a::b   ok\nc::d  FAILED\ne::f  ok");
        assert_eq!(expected.len(), 5);
        assert_eq!(worse(&expected, &found), ["c::d", "g::h"]);
    }
}
