//! The Python package, as a wheel would install it: pytest's suite, and the seeded tree.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use cairn::{Format, ImageSpec, MkfsOptions, Volume};
use cairn_testkit::judge;
use cairn_testkit::tree::{Step, judge_library, listing, script};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The interpreter that has pytest and fsspec.
fn interpreter() -> PathBuf {
    let found = here("../../target/python/bin/python");
    assert!(
        found.exists(),
        "{} is missing: run scripts/install-deps, which makes an environment with pytest and \
         fsspec there",
        found.display()
    );
    found
}

fn toml_string<'a>(text: &'a str, key: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))).unwrap();
    line.trim_matches('"')
}

/// A directory with the package, its native part as cargo has built it with this test, and what
/// tells fsspec of it.
fn package(dir: &Path) {
    let to = dir.join("cairn");
    std::fs::create_dir(&to).unwrap();
    for file in std::fs::read_dir(here("python/cairn")).unwrap() {
        let file = file.unwrap();
        symlink(file.path(), to.join(file.file_name())).unwrap();
    }
    let test = std::env::current_exe().unwrap();
    let native = test.parent().unwrap().join("libcairn_python.so");
    assert!(native.exists(), "{} is not built: cargo build -p cairn-python", native.display());
    symlink(native, to.join("_cairn.abi3.so")).unwrap();

    let project = std::fs::read_to_string(here("pyproject.toml")).unwrap();
    let (name, version) = (toml_string(&project, "name"), toml_string(&project, "version"));
    let info = dir.join(format!("{}-{version}.dist-info", name.replace('-', "_")));
    std::fs::create_dir(&info).unwrap();
    let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
    std::fs::write(info.join("METADATA"), metadata).unwrap();
    let (_, entry) = project.split_once("[project.entry-points.\"fsspec.specs\"]\n").unwrap();
    let entry = entry.lines().next().unwrap().replace('"', "");
    std::fs::write(info.join("entry_points.txt"), format!("[fsspec.specs]\n{entry}\n")).unwrap();
}

/// A command of Python that finds the package.
fn python(package: &Path) -> Command {
    let mut command = Command::new(interpreter());
    command.env("PYTHONPATH", package).env("PYTHONDONTWRITEBYTECODE", "1").env("LC_ALL", "C");
    command
}

#[track_caller]
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}{errors}", output.status);
    text
}

#[test]
fn pytest_s_suite_passes() {
    let dir = tempfile::tempdir().unwrap();
    package(dir.path());
    let mut command = python(dir.path());
    command.args(["-m", "pytest", "--basetemp"]).arg(dir.path().join("tmp"));
    let text = said(command.current_dir(here(".")));
    print!("{text}");
    let passed = text.split_whitespace().zip(text.split_whitespace().skip(1));
    let passed = passed.filter(|(_, word)| word.starts_with("passed")).map(|(count, _)| count);
    let passed: usize = passed.last().and_then(|count| count.parse().ok()).unwrap_or(0);
    assert!(passed > 30, "{text}");
}

/// A tree that Python has written is the one that Rust writes, and the tools of the format accept
/// it.
#[test]
fn python_writes_walks_reads_and_checks_a_seeded_tree() {
    let dir = tempfile::tempdir().unwrap();
    package(dir.path());
    let tree = || {
        let mut command = python(dir.path());
        command.arg(here("tests/tree.py"));
        command
    };
    let text = dir.path().join("script");
    let write = |image: &Path, steps: &[Step]| {
        std::fs::write(&text, script(steps)).unwrap();
        said(tree().arg("apply").args([image, &text]));
        assert_eq!(said(tree().arg("check").arg(image)), "0 defects\n");
    };
    judge_library(&write, &|image| said(tree().arg("list").arg(image)), &|image| {
        listing(&**Volume::open(image).unwrap().filesystem())
    });
}

/// The example of docs/library.md.
#[test]
fn the_example_runs() {
    let dir = tempfile::tempdir().unwrap();
    package(dir.path());
    let image = dir.path().join("image");
    let options = MkfsOptions { size: Some(16 << 20), ..MkfsOptions::new(Format::Ext4) };
    cairn::mkfs(&ImageSpec::whole(&image), &options).unwrap();
    for line in ["first", "second"] {
        let mut command = python(dir.path());
        command.arg(here("examples/edit.py")).arg(&image).args(["/notes", line]);
        let told = said(&mut command);
        assert!(told.lines().any(|line| line.ends_with(" /notes")), "{told}");
    }
    let volume = Volume::open(&image).unwrap();
    assert_eq!(volume.read_to_string("/notes").unwrap(), "first\nsecond\n");
    drop(volume);
    judge::assert_clean(&image);
}

/// The stubs name what the package has.
#[test]
fn the_stubs_are_complete() {
    let dir = tempfile::tempdir().unwrap();
    package(dir.path());
    said(python(dir.path()).arg(here("tests/stubs.py")).arg(here("python/cairn")));
}

/// The wheel's version is the workspace's, and the one that the book installs.
#[test]
fn the_package_has_the_version_of_the_crates() {
    let project = std::fs::read_to_string(here("pyproject.toml")).unwrap();
    let version = toml_string(&project, "version");
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    let (_, python) = toml_string(&project, "requires-python").split_once(">=3.").unwrap();
    let page = std::fs::read_to_string(here("../../book/start.md")).unwrap();
    let wheel = format!("cairn_fs-{version}-cp3{python}-abi3-manylinux_2_34_x86_64.whl");
    for name in [&wheel, &format!("cairn_{version}-1_"), &format!("cairn-{version}-")] {
        assert!(page.contains(name), "{name} in the book's page for who installs it");
    }
}
