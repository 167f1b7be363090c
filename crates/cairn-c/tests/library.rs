//! Programs in C use the library as it is installed: header, shared and static library, pkg-config.

use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use cairn::{Format, ImageSpec, MkfsOptions, Volume};
use cairn_testkit::judge;
use cairn_testkit::place::Place;
use cairn_testkit::tree::{judge_library, listing, script, Step};

const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-Wpedantic", "-g"];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// What cargo has built with this test: a file of the library.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found = test.parent().expect("a test is in a directory").join(name);
    assert!(found.exists(), "{} is not built: cargo build -p cairn-c", found.display());
    found
}

/// A directory with the library as a linker looks for it.
fn library(dir: &Path) -> PathBuf {
    let lib = dir.join("lib");
    std::fs::create_dir(&lib).unwrap();
    for name in ["libcairn.so", "libcairn.so.0"] {
        symlink(built("libcairn_c.so"), lib.join(name)).unwrap();
    }
    lib
}

/// Compiles a program of C11 and links it with the shared library.
#[track_caller]
fn compile(dir: &Path, source: &Path, flags: &[&str]) -> PathBuf {
    let lib = library(dir);
    let program = dir.join(source.file_stem().unwrap());
    let mut command = judge::command("cc");
    command.args(["-std=c11", "-D_GNU_SOURCE", "-pthread", "-I"]).arg(here("include"));
    command.arg(format!("-DVERSION=\"{}\"", env!("CARGO_PKG_VERSION")));
    command.args(WARNINGS).args(flags).arg(source).arg("-o").arg(&program);
    command.arg("-L").arg(&lib).arg("-lcairn").arg(format!("-Wl,-rpath,{}", lib.display()));
    said(&mut command);
    program
}

#[track_caller]
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// A tree that C has written is the one that Rust writes, and the tools of the format accept it.
#[test]
fn c_writes_walks_reads_and_checks_a_seeded_tree() {
    let dir = tempfile::tempdir().unwrap();
    let tree = compile(
        dir.path(),
        &here("tests/programs/tree.c"),
        &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    );
    let text = dir.path().join("script");
    let write = |image: &Path, steps: &[Step]| {
        std::fs::write(&text, script(steps)).unwrap();
        said(Command::new(&tree).arg("apply").args([image, &text]));
        assert_eq!(said(Command::new(&tree).arg("check").arg(image)), "0 defects\n");
    };
    judge_library(&write, &|image| said(Command::new(&tree).arg("list").arg(image)), &|image| {
        listing(&**Volume::open(image).unwrap().filesystem())
    });
}

/// Errors, handles and threads, under valgrind: it sees what the library does with memory.
#[test]
fn calls_keep_their_promises_under_valgrind() {
    let dir = tempfile::tempdir().unwrap();
    let calls = compile(dir.path(), &here("tests/programs/calls.c"), &[]);
    let image = dir.path().join("image");
    let mut command = judge::command("valgrind");
    command.args([
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--show-leak-kinds=definite",
    ]);
    command.arg("--errors-for-leak-kinds=definite").arg(calls).arg(&image);
    assert_eq!(said(&mut command), "all calls keep their promises\n");
    judge::assert_f2fs_clean(&image);
}

/// Every call that takes a path of the host or of the volume gives Linux's number, and names the
/// path.
#[test]
fn errors_have_the_numbers_of_linux() {
    let place = Place::new();
    let dir = place.path();
    let errnos = compile(dir, &here("tests/programs/errnos.c"), &[]);
    let at = |name: &str| dir.join(name);
    for name in ["directory", "ro", "full", "secret"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    std::fs::write(at("file"), vec![b'x'; 9000]).unwrap();
    symlink("loop", at("loop")).unwrap();
    let mount = |options: &str, name: &str| {
        said(judge::command("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at(name)));
    };
    mount("ro", "ro");
    mount("size=64k", "full");
    let options = MkfsOptions { size: Some(16 << 20), ..MkfsOptions::new(Format::Ext4) };
    for name in ["image", "secret/image"] {
        cairn::mkfs(&ImageSpec::whole(at(name)), &options).unwrap();
    }
    for (name, mode) in [("", 0o755), ("secret", 0o700), ("image", 0o600)] {
        std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    assert_eq!(said(Command::new(errnos).arg(dir)), "all errors have their numbers\n");
    judge::assert_clean(&at("image"));
}

#[test]
fn the_header_is_also_one_of_c_plus_plus() {
    let mut command = judge::command("c++");
    command.args(["-std=c++17", "-fsyntax-only", "-x", "c++", "-D_GNU_SOURCE"]).args(WARNINGS);
    command.arg("-I").arg(here("include")).arg(here("tests/programs/tree.c"));
    said(&mut command);
}

/// cbindgen makes it of the sources again.
#[test]
fn the_header_is_current() {
    let dir = tempfile::tempdir().unwrap();
    let made = dir.path().join("cairn.h");
    said(judge::command("sh").arg(here("../../scripts/header")).arg(&made));
    let [made, kept] = [made, here("include/cairn.h")].map(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    assert!(made == kept, "the sources have changed: make header");
}

/// A panic and an error of memory leave no way out of a function that C has called.
#[test]
fn every_entry_keeps_panics_inside() {
    let mut entries = 0;
    for file in std::fs::read_dir(here("src")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for entry in text.split("#[no_mangle]").skip(1) {
            let body = entry.split("\n}\n").next().unwrap();
            let name = body.split('(').next().unwrap().trim();
            let guarded =
                ["enter(", "count(", "at(", "tell("].iter().any(|call| body.contains(call));
            let plain = ["cairn_version", "cairn_format", "cairn_last_error"];
            assert!(guarded || plain.iter().any(|plain| name.ends_with(plain)), "{name}");
            entries += 1;
        }
        let is_raw = path.ends_with("raw.rs");
        assert!(is_raw || !text.contains("unsafe {"), "{}: unsafe code", path.display());
    }
    assert!(entries > 40, "{entries}");
}

/// The example of docs/library.md, against the library as it is installed; static and shared.
#[test]
fn the_example_compiles_with_pkg_config() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("built");
    std::fs::create_dir(&from).unwrap();
    symlink(built("libcairn_c.so"), from.join("libcairn_c.so")).unwrap();
    symlink(built("libcairn_c.a"), from.join("libcairn_c.a")).unwrap();
    let root = dir.path().join("root");
    let mut install = judge::command("sh");
    install.arg(here("../../scripts/install-library")).arg(&from);
    said(install.env("DESTDIR", &root).env("PREFIX", "/usr"));

    let flags = |more: &[&str]| {
        let mut command = judge::command("pkg-config");
        command.args(more).args(["--cflags", "--libs", "cairn"]);
        command.env("PKG_CONFIG_LIBDIR", root.join("usr/lib/pkgconfig"));
        command.env("PKG_CONFIG_SYSROOT_DIR", &root);
        // What a compiler knows by itself is not left out: this is not its directory.
        command.env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1");
        command.env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1");
        let text = said(&mut command);
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let image = dir.path().join("image");
    let options = MkfsOptions { size: Some(16 << 20), ..MkfsOptions::new(Format::Ext4) };
    cairn::mkfs(&ImageSpec::whole(&image), &options).unwrap();
    let volume = Volume::open_writable(&image).unwrap();
    volume.write("/file", "read by C\n").unwrap();
    volume.close().unwrap();
    for linked in ["shared", "static"] {
        let program = dir.path().join(linked);
        let mut command = judge::command("cc");
        command.args(WARNINGS).arg("-std=c11").arg(here("examples/read_file.c"));
        command.arg("-o").arg(&program);
        match linked {
            "static" => {
                // The archive alone, and what it needs of the system.
                std::fs::remove_file(root.join("usr/lib/libcairn.so")).unwrap();
                command.args(flags(&["--static"]));
            }
            _ => {
                command.args(flags(&[])).arg(format!("-Wl,-rpath,{}/usr/lib", root.display()));
            }
        }
        said(&mut command);
        let read = said(Command::new(&program).arg(&image).arg("/file"));
        assert_eq!(read, "read by C\n", "{linked}");
        let missing = Command::new(&program).arg(&image).arg("/none").output().unwrap();
        let words = String::from_utf8_lossy(&missing.stderr).into_owned();
        assert_eq!(missing.status.code(), Some(1), "{words}");
        assert!(words.contains("/none: no such file"), "{words}");
    }
}
