//! Suites that others wrote, where they are installed (`cargo install fsx pjdfstest`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cairn_fuse::MountOptions;

use crate::fixture::{Mounted, can_mount};

/// Timestamps must be told apart by the kernel's clock tick; the users must exist everywhere.
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

/// A program on the path or where cargo installs.
fn program(name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).chain(home).map(|dir| dir.join(name)).find(|path| path.exists());
    if found.is_none() {
        eprintln!("not tested: {name} is not installed");
    }
    found
}

fn run(program: &Path, arguments: &[&OsStr]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn fsx_finds_no_difference() {
    let Some(fsx) = program("fsx").filter(|_| can_mount()) else { return };
    let outside = tempfile::tempdir().unwrap();
    let config = outside.path().join("fsx.toml");
    fs::write(&config, FSX_CONFIG).unwrap();
    let through = MountOptions { writeback_cache: false, no_open: false, ..MountOptions::new("model") };
    for (seed, options) in [("1", MountOptions::new("model")), ("2", through)] {
        let mounted = Mounted::with(&options);
        let file = mounted.path("fsx");
        let arguments = ["-N", "20000", "-S", seed, "-P"].map(OsStr::new);
        let paths = [outside.path().as_os_str(), OsStr::new("-f"), config.as_os_str(), file.as_os_str()];
        let output = run(&fsx, &[&arguments[..], &paths].concat());
        let text = text(&output);
        assert!(output.status.success(), "seed {seed}: {}", &text[text.len().saturating_sub(4000)..]);
        mounted.finish();
    }
}

/// Result of each case that pjdfstest ran in a directory.
fn pjdfstest(program: &Path, config: &Path, directory: &Path) -> BTreeMap<String, String> {
    let arguments = [OsStr::new("-c"), config.as_os_str(), OsStr::new("-p"), directory.as_os_str()];
    let text = text(&run(program, &arguments));
    let cases: BTreeMap<_, _> = text.lines().filter_map(case).collect();
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

/// The kernel's own ext4 on a loop device.
struct KernelExt4 {
    dir: tempfile::TempDir,
}

impl KernelExt4 {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        // The suite's other users must get in.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (image, mount_point) = (dir.path().join("image"), dir.path().join("mnt"));
        fs::create_dir(&mount_point).unwrap();
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let made = Command::new("mkfs.ext4").arg("-q").arg(&image).status().is_ok_and(|status| status.success());
        let mount = ["-o", "loop"].map(OsStr::new).into_iter().chain([image.as_os_str(), mount_point.as_os_str()]);
        let mounted = made && Command::new("mount").args(mount).status().is_ok_and(|status| status.success());
        if !mounted {
            eprintln!("not compared: no loop mount of ext4");
        }
        mounted.then_some(Self { dir })
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }
}

impl Drop for KernelExt4 {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

/// What passes on the kernel's ext4 passes here. With `CAIRN_PJDFSTEST_OUT`, the results of both are left in that file.
#[test]
fn pjdfstest_agrees_with_the_kernels_ext4() {
    let Some(suite) = program("pjdfstest").filter(|_| can_mount()) else { return };
    let Some(kernel) = KernelExt4::mount() else { return };
    let outside = tempfile::tempdir().unwrap();
    let config = outside.path().join("pjdfstest.toml");
    fs::write(&config, PJDFSTEST_CONFIG).unwrap();
    let expected = pjdfstest(&suite, &config, &kernel.path());
    let mounted = Mounted::new();
    let found = pjdfstest(&suite, &config, &mounted.path(""));
    let passes = |results: &BTreeMap<String, String>, name: &String| {
        results.get(name).is_some_and(|status| !matches!(status.as_str(), "failed" | "skipped"))
    };
    if let Some(out) = std::env::var_os("CAIRN_PJDFSTEST_OUT") {
        let line = |name: &String| format!("{name} kernel={:?} cairn={:?}\n", expected.get(name), found.get(name));
        fs::write(out, expected.keys().map(line).collect::<String>()).unwrap();
    }
    // Not asked of us: libc makes the limit up from the type of the filesystem, and says 127 for FUSE.
    let asked = |name: &&String| *name != "link::link_count_max";
    let worse: Vec<_> = expected.keys().filter(|name| passes(&expected, name) && !passes(&found, name)).collect();
    let worse: Vec<_> = worse.into_iter().filter(asked).collect();
    assert!(worse.is_empty(), "pass on the kernel's ext4, not here: {worse:#?}");
    mounted.finish();
}
