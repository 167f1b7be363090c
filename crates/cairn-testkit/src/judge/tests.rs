use super::*;

fn image() -> tempfile::NamedTempFile {
    let image = tempfile::NamedTempFile::new().unwrap();
    mke2fs(image.path(), 8 << 20, &["-t", "ext4", "-L", "judged"]);
    image
}

#[test]
fn a_fresh_image_is_clean_and_a_broken_one_is_not() {
    let image = image();
    assert_clean(image.path());
    assert!(dumpe2fs(image.path()).contains("judged"));
    assert!(debugfs(image.path(), "ls -l /").contains("lost+found"));
    // Zero the first group's block bitmap.
    let mut bytes = std::fs::read(image.path()).unwrap();
    let len = bytes.len();
    bytes[len / 8..len / 4].fill(0xff);
    bytes[2048..8192].fill(0xff);
    std::fs::write(image.path(), bytes).unwrap();
    assert!(!e2fsck_check(image.path()).is_clean());
}

#[test]
fn the_kernel_mounts_what_we_give_it_and_lets_go() {
    assert!(is_root(), "this test needs root, for loop devices: run it with sudo");
    let image = image();
    let mount = KernelMount::new(image.path(), "");
    std::fs::write(mount.path().join("hello"), b"world").unwrap();
    let directory = mount.path().to_owned();
    mount.unmount();
    assert!(!directory.exists());
    assert_clean(image.path());

    let read_only = KernelMount::new(image.path(), "ro");
    assert_eq!(std::fs::read(read_only.path().join("hello")).unwrap(), b"world");
    assert!(std::fs::write(read_only.path().join("no"), b"").is_err());
    let directory = read_only.path().to_owned();
    drop(read_only);
    assert!(!directory.exists());
}

#[test]
fn a_remedy_names_the_package() {
    assert!(remedy("debugfs").contains("apt-get install e2fsprogs"));
    assert!(remedy("fsx").contains("scripts/install-deps"));
}

#[test]
#[should_panic(expected = "no-such-tool is not installed")]
fn a_missing_tool_fails() {
    let _ = tool("no-such-tool");
}

/// On a machine that has nothing and no apt-get, the script ends with the list of the packages.
/// A line that the shell cannot run would be told there as well.
#[test]
fn install_deps_asks_for_every_package() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-deps");
    let empty = tempfile::tempdir().unwrap();
    for program in ["dirname", "id"] {
        std::os::unix::fs::symlink(tool(program), empty.path().join(program)).unwrap();
    }
    let run = Command::new("/bin/sh")
        .arg(&script)
        .arg("deep")
        .env("PATH", empty.path())
        .env("CARGO_HOME", empty.path())
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(1));
    let said = String::from_utf8(run.stderr).unwrap();
    let list = said.strip_prefix("install-deps: please install the equivalents of these Debian");
    assert_eq!((list.is_some(), said.lines().count()), (true, 1), "{said}");

    // Programs of /usr/sbin are found whatever PATH says, so the list is not the whole.
    let text = std::fs::read_to_string(&script).unwrap();
    let wanted: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("want ")?.split_whitespace().nth(1))
        .collect();
    let essential = ["bsdutils", "libc-bin", "tar"];
    for (program, package) in PACKAGES {
        let asked = wanted.contains(&package) || essential.contains(&package);
        assert!(asked, "scripts/install-deps does not install {package} for {program}");
    }
}
