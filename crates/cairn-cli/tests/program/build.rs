//! `build`, `export` and `diff` as programs of a script: options, statuses, users.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use cairn_testkit::judge;

use crate::support::{cairn, fails, in_dir, works};

/// A tree with owners, a device and a privilege, and an archive of it.
pub fn tree(at: &Path) {
    let script = "
        mkdir -p rootfs/bin rootfs/dev rootfs/home/user rootfs/var/cache
        echo program >rootfs/bin/ping; echo x >rootfs/var/cache/x; echo y >rootfs/home/user/a.tmp
        mknod rootfs/dev/null c 1 3; chown -R 100005:100006 rootfs/home; chmod 4755 \
rootfs/bin/ping
        setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 \
rootfs/bin/ping
        tar --xattrs --xattrs-include='*' -C rootfs -cf rootfs.tar .";
    judge::run("sh", ["-ec", &format!("cd {}; {script}", at.display())]);
}

/// Owners, devices and privileges come from the archive, so a user without rights makes the same
/// bytes.
#[test]
fn an_ordinary_user_makes_the_same_image() {
    let (dir, image) = in_dir("image");
    tree(dir.path());
    let archive = dir.path().join("rootfs.tar");
    std::fs::set_permissions(&archive, std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .unwrap();
    // Readable for all, and with a program that all may run.
    let open = tempfile::Builder::new().prefix("build-").tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(open.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .unwrap();
    let program = open.path().join("cairn");
    judge::copy_program(Path::new(env!("CARGO_BIN_EXE_cairn")), &program);
    std::fs::copy(&archive, open.path().join("rootfs.tar")).unwrap();
    let mut command = Command::new(&program);
    command.args(["build", "image", "rootfs.tar"]).current_dir(open.path()).uid(65_534).gid(65_534);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    works(&["build", &image, archive.to_str().unwrap()]);
    let read = |path: &Path| std::fs::read(path).unwrap();
    assert!(read(Path::new(&image)) == read(&open.path().join("image")), "the bytes differ");
    judge::assert_clean(Path::new(&image));
    assert!(works(&["stat", &image, "/dev/null"]).contains("1, 3"));
    assert!(works(&["getfattr", "-m", "-", &image, "/bin/ping"]).contains("security.capability"));
}

#[test]
fn owners_dates_and_names_follow_the_options() {
    let (dir, image) = in_dir("image");
    tree(dir.path());
    let source = format!("{}/", dir.path().join("rootfs").display());
    let facts = |path: &str| works(&["stat", "-c", "%u:%g %Y", &image, path]).trim().to_owned();
    let map = ["--uid-map", "100000:0:65536", "--gid-map", "100006:7", "--mtime", "@1000000000"];
    works(&[&["build"], &map[..], &[&image, &source]].concat());
    assert_eq!(facts("/home/user"), "5:7 1000000000");
    assert_eq!(facts("/bin"), "0:0 1000000000");
    let exclude = ["--exclude", "*.tmp", "--exclude", "/var/cache", "--owner", "3:4", "-F"];
    works(&[&["build"], &exclude[..], &[&image, &source]].concat());
    assert!(facts("/home/user").starts_with("3:4 "));
    assert_eq!(works(&["ls", &image, "/home/user"]), "");
    assert_eq!(works(&["ls", &image, "/var"]), "");
    let options = ["-L", "root", "--no-journal", "--size", "32M", "-F", "-m", "5"];
    works(&[&["build"], &options[..], &[&image, &source]].concat());
    let info = judge::dumpe2fs(Path::new(&image));
    assert!(info.contains("root") && !info.contains("has_journal"), "{info}");
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 32 << 20);
    judge::assert_clean(Path::new(&image));
}

#[test]
fn what_is_wrong_has_a_status_and_leaves_nothing() {
    let (dir, image) = in_dir("image");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("text"), "no archive").unwrap();
    std::fs::create_dir(at("empty")).unwrap();
    assert!(fails(&["build", &image, &at("none")], 1).contains("no such file"));
    assert!(fails(&["build", &image, &at("text")], 4).contains("it is text"));
    std::fs::write(at("bytes"), [7; 2048]).unwrap();
    assert!(fails(&["build", &image, &at("bytes")], 4).contains("neither"));
    std::fs::remove_file(at("bytes")).unwrap();
    // Not the advice to make a filesystem in a source.
    std::fs::write(at("nothing"), []).unwrap();
    let said = fails(&["build", &image, &at("nothing")], 4);
    assert!(said.contains("give a directory, an archive or an image"), "{said}");
    std::fs::remove_file(at("nothing")).unwrap();
    assert!(fails(&["build", "--size", "x", &image], 2).contains("512M"));
    assert!(fails(&["build", "-t", "f2fs", "--no-journal", &image], 2).contains("journal"));
    assert!(fails(&["build", &at("none/image")], 1).contains("no such file"));
    assert!(fails(&["build", "--size", "1G", "--free", "5M", &image], 2).contains("--size auto"));
    std::fs::write(at("disk"), [b"KDMV".as_slice(), &[0; 4096]].concat()).unwrap();
    assert!(fails(&["build", &image, &at("disk")], 4).contains("qemu-img convert"));
    std::fs::remove_file(at("disk")).unwrap();
    // The name of a partition is not taken for that of a file.
    let said = fails(&["build", &format!("{image}#2"), &at("empty/")], 2);
    assert!(said.contains("there is no such disk: `cairn build --partition gpt`"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    // The size that the message names is enough.
    std::fs::write(at("empty/large"), vec![1; 5 << 20]).unwrap();
    let said = fails(&["build", "--size", "3M", &image, &at("empty/")], 1);
    let size = said.split_whitespace().skip_while(|word| *word != "--size").nth(1).unwrap();
    works(&["build", "--size", size, &image, &at("empty/")]);
    std::fs::remove_file(at("empty/large")).unwrap();
    std::fs::remove_file(&image).unwrap();
    works(&["build", &image, &at("empty/")]);
    assert!(fails(&["build", &image, &at("empty/")], 1).contains("--force"));
    // An image beside its sources is not put into itself.
    works(&["build", "-F", &image, &format!("{}/", dir.path().display())]);
    let listed = works(&["ls", &image]);
    assert_eq!(listed, "empty\nlost+found\ntext\n");
}

/// A build that is ended leaves neither an image nor its beginning.
#[test]
fn a_signal_ends_a_build_without_a_trace() {
    let (dir, image) = in_dir("image");
    let pipe = dir.path().join("pipe");
    judge::run("mkfifo", [&pipe]);
    for signal in ["INT", "TERM", "HUP"] {
        // From a shell without job control SIGINT would be ignored.
        let mut build = Command::new("env")
            .args(["--default-signal", env!("CARGO_BIN_EXE_cairn"), "build", &image])
            .arg(&pipe)
            .spawn()
            .unwrap();
        let writer = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        judge::run("kill", ["-s", signal, &build.id().to_string()]);
        let status = build.wait().unwrap();
        assert!(matches!(status.code(), Some(129 | 130 | 143)), "{signal}: {status}");
        drop(writer);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{signal}");
    }
}

/// SIGKILL leaves the beginning of an image, which the next build in its directory removes. A build
/// that goes on meanwhile keeps its own.
#[test]
fn what_a_killed_build_leaves_is_removed_by_the_next() {
    let (dir, image) = in_dir("image");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for pipe in ["killed", "lives"] {
        judge::run("mkfifo", [at(pipe)]);
    }
    judge::run("tar", ["-C", &at(""), "-cf", &at("a.tar"), "lives"]);
    let start = |image: &str, pipe: &str| {
        let program = env!("CARGO_BIN_EXE_cairn");
        let build = Command::new(program).args(["build", image, &at(pipe)]).spawn().unwrap();
        (build, std::fs::OpenOptions::new().write(true).open(at(pipe)).unwrap())
    };
    let unfinished = || {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.ends_with(".unfinished")).collect();
        names.sort();
        names
    };
    let (mut killed, writer) = start(&at("other"), "killed");
    judge::run("kill", ["-s", "KILL", &killed.id().to_string()]);
    killed.wait().unwrap();
    drop(writer);
    assert_eq!(unfinished().len(), 1);
    let (mut lives, mut writer) = start(&image, "lives");
    let left = unfinished();
    assert!(left.len() == 1 && left[0].starts_with(".image."), "{left:?}");
    works(&["build", &at("third")]);
    assert_eq!(unfinished(), left);
    std::io::copy(&mut std::fs::File::open(at("a.tar")).unwrap(), &mut writer).unwrap();
    drop(writer);
    assert!(lives.wait().unwrap().success());
    assert!(unfinished().is_empty());
    judge::assert_clean(Path::new(&image));
}

/// The same for directories, of which none has its name before it is whole.
#[test]
fn what_a_killed_export_leaves_is_removed_by_the_next() {
    let (dir, image) = in_dir("image");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    works(&["build", &image]);
    judge::run("mkfifo", [at("pipe")]);
    let left = || {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name.ends_with(".unfinished"));
        names
    };
    for output in [at("out/"), format!("oci:{}", at("out"))] {
        std::fs::create_dir_all(at(".out.abcdef.unfinished")).unwrap();
        let words = ["export", &at("pipe"), "-o", &output];
        let mut export = Command::new(env!("CARGO_BIN_EXE_cairn")).args(words).spawn().unwrap();
        let writer = std::fs::OpenOptions::new().write(true).open(at("pipe")).unwrap();
        judge::run("kill", ["-s", "KILL", &export.id().to_string()]);
        export.wait().unwrap();
        drop(writer);
        assert!(left().len() == 2 && !Path::new(&at("out")).exists(), "{:?}", left());
        works(&["export", &image, "-o", &at("other/")]);
        std::fs::remove_dir_all(at("other")).unwrap();
        // What somebody has called so stays.
        assert_eq!(left(), [".out.abcdef.unfinished"]);
    }
}

/// Who asks for free space will write to the image. It has a journal, whatever its size is.
#[test]
fn an_image_with_free_space_has_a_journal() {
    let (dir, image) = in_dir("image");
    tree(dir.path());
    let source = format!("{}/", dir.path().join("rootfs").display());
    for (options, has) in [
        (&["--free", "20%"][..], true),
        (&["--free", "64K"], true),
        (&["--free", "7M"], true),
        (&["--free", "20%", "--no-journal"], false),
        (&["--free", "20%", "--read-only"], false),
        (&[], false),
        (&["--size", "16M"], true),
    ] {
        works(&[&["build", "-F"], options, &[&image, &source]].concat());
        let info = judge::dumpe2fs(Path::new(&image));
        assert_eq!(info.contains("has_journal"), has, "{options:?}: {info}");
        judge::assert_clean(Path::new(&image));
        let size = std::fs::metadata(&image).unwrap().len();
        assert!(!has || (8 << 20..=16 << 20).contains(&size), "{options:?}: {size}");
        assert!(has || size < 1 << 20, "{options:?}: {size}");
    }
    // What is asked for is free.
    works(&["build", "-F", "--free", "7M", &image, &source]);
    let free = works(&["df", "--json", &image]);
    let free: serde_json::Value = serde_json::from_str(&free).unwrap();
    println!("{free:#}");
}

#[test]
fn an_image_goes_through_a_pipe_and_comes_back() {
    let (dir, image) = in_dir("image");
    tree(dir.path());
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    works(&["build", "-t", "f2fs", &image, &format!("{}/", at("rootfs"))]);
    let program = env!("CARGO_BIN_EXE_cairn");
    let script = format!("{program} export {image} -o - | {program} build {} -", at("again"));
    judge::run("sh", ["-ec", &script]);
    judge::assert_clean(Path::new(&at("again")));
    let slash =
        |path: &str| if path.ends_with("rootfs") { format!("{path}/") } else { path.into() };
    for other in [at("again"), at("rootfs"), at("rootfs.tar")] {
        // tar without --format=pax stores seconds.
        let times: &[&str] = if other.ends_with("tar") { &["--no-times"] } else { &[] };
        assert_eq!(works(&[&["diff"], times, &[&image, &slash(&other)]].concat()), "", "{other}");
    }
    works(&["chmod", &at("again"), "600", "/bin/ping"]);
    let (status, said, _) = cairn(&["diff", "--no-times", &image, &at("again")]);
    assert_eq!((status, said.as_str()), (1, "/bin/ping: mode (4755, 0600)\n"));
    let (status, said, _) = cairn(&["diff", "-q", &image, &at("again")]);
    assert_eq!((status, said.as_str()), (1, ""));
    fails(&["diff", &image, &at("none")], 2);
}

/// Equal files of a tree are stored once. The kernel and e2fsck judge the volume; for users it is
/// the one that was built without the feature.
#[test]
fn equal_files_are_stored_once_where_that_is_asked_for() {
    let (dir, image) = in_dir("image");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let script = "mkdir -p rootfs/a rootfs/b; cd rootfs; seq 200000 >a/one; cp a/one b/two
        chown 7:8 b/two; chmod 640 b/two; cp a/one b/three; echo more >>b/three; ln b/two b/link";
    judge::run("sh", ["-ec", &format!("cd {}; {script}", dir.path().display())]);
    let (plain, source) = (at("plain"), at("rootfs/"));
    works(&["build", "--read-only", &plain, &source]);
    works(&["build", "--read-only", "-O", "shared_blocks", &image, &source]);
    let size = |path: &str| std::fs::metadata(path).unwrap().len();
    let (one, saved) = (size(&at("rootfs/a/one")), size(&plain) - size(&image));
    assert!(saved >= one && saved < one + (64 << 10), "{saved} bytes saved, {one} in a file");
    judge::assert_clean(Path::new(&image));
    works(&["check", &image]);
    assert_eq!(works(&["diff", &image, &plain]), "");
    let mount = judge::KernelMount::new(Path::new(&image), "ro");
    let (there, here) = (mount.path().to_str().unwrap(), at("rootfs"));
    judge::run("diff", ["-r", "-x", "lost+found", there, &here]);
    let facts = |root: &str| judge::run("stat", ["-c", "%u:%g %a %h", &format!("{root}/b/two")]);
    assert_eq!(facts(there), facts(&here));
    mount.unmount();
    assert!(fails(&["mkdir", &image, "/new"], 5).contains("unshare_blocks"));
}
