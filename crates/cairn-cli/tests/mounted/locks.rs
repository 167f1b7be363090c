//! Two programs that use one image under any names: Cairn and QEMU, Cairn and the kernel, Cairn and
//! Cairn.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use cairn_testkit::judge::{self, LoopDevice};

use crate::fixture::{CAIRN, Volume};

const SIZE: u64 = 64 << 20;

fn run(program: &str, arguments: &[&str]) -> Output {
    judge::command(program).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn cairn(arguments: &[&str]) -> Output {
    Command::new(CAIRN).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Asserts that the command is refused because the image is in use, with one line that has these
/// words.
#[track_caller]
fn in_use(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(6), 1), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
}

#[track_caller]
fn done(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[track_caller]
fn qemu_cannot_lock(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("lock"), "{}: {said}", output.status);
}

fn qemu_reads(image: &str) -> Output {
    run("qemu-io", &["-r", "-f", "raw", "-c", "read 0 512", image])
}

/// `qemu-io` that has an image open until it is dropped.
struct Qemu {
    process: Child,
    input: Option<ChildStdin>,
}

impl Qemu {
    fn open(image: &Path, flags: &[&str]) -> Self {
        let mut command = judge::command("qemu-io");
        command
            .args(flags)
            .args(["-f", "raw"])
            .arg(image)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut input = process.stdin.take().unwrap();
        // It answers when the image is open.
        input.write_all(b"read 0 512\n").unwrap();
        let mut said = Vec::new();
        let mut output = process.stdout.take().unwrap();
        while !said.windows(4).any(|word| word == b"ops;") {
            let mut byte = [0];
            assert_eq!(
                output.read(&mut byte).unwrap(),
                1,
                "qemu-io: {}",
                String::from_utf8_lossy(&said)
            );
            said.push(byte[0]);
        }
        Self { process, input: Some(input) }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

#[test]
fn qemu_keeps_off_a_mounted_image() {
    let mut volume = Volume::mounted(SIZE, "");
    let image = volume.image();
    let image = text(&image);
    let write = || run("qemu-io", &["-f", "raw", "-c", "write 0 512", image]);
    qemu_cannot_lock(&write());
    qemu_cannot_lock(&qemu_reads(image));
    qemu_cannot_lock(&run(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2", image, text(&volume.outside("converted"))],
    ));
    volume.unmount();
    volume.mount("ro");
    done(&qemu_reads(image));
    qemu_cannot_lock(&write());
    volume.unmount();
    done(&qemu_reads(image));
}

#[test]
fn cairn_keeps_off_what_qemu_has() {
    let mut volume = Volume::make(SIZE, &[]);
    let (image, root) = (volume.image(), volume.root());
    let (image, root) = (text(&image), text(&root));
    let writer = Qemu::open(Path::new(image), &[]);
    in_use(&cairn(&["mount", image, root]), &["in use by process", "qemu-io"]);
    in_use(&cairn(&["ls", image]), &["in use by process", "qemu-io"]);
    drop(writer);
    let reader = Qemu::open(Path::new(image), &["-r"]);
    done(&cairn(&["ls", image]));
    in_use(&cairn(&["mkdir", image, "/new"]), &["in use"]);
    drop(reader);
    done(&cairn(&["mkdir", image, "/new"]));
    volume.mount("");
    volume.unmount();
}

#[test]
fn an_image_and_a_loop_device_of_it_are_one() {
    let mut volume = Volume::mounted(SIZE, "");
    let image = volume.image();
    let other = volume.outside("elsewhere");
    fs::create_dir(&other).unwrap();
    let device = LoopDevice::attach(&image, false);
    let (node, point) = (text(device.path()), text(&other));
    // A second mount under the other name would write to the same blocks.
    in_use(&cairn(&["mount", node, point]), &["in use: mounted on", "cairn umount"]);
    in_use(&cairn(&["ls", node]), &["in use: mounted on", "cairn umount"]);
    let above = LoopDevice::attach(device.path(), false);
    in_use(&cairn(&["mount", text(above.path()), point]), &["in use: mounted on", "cairn umount"]);
    // Who replaces it takes it away from the mount.
    let build = cairn(&["build", "-F", text(&image), text(&other)]);
    in_use(&build, &["in use: mounted on", "cairn umount"]);
    volume.unmount();

    // The reverse order, and two loop devices.
    for node in [node, text(above.path())] {
        done(&cairn(&["mount", node, point]));
        in_use(&cairn(&["mount", text(&image), text(&volume.root())]), &["in use"]);
        in_use(&cairn(&["ls", text(&image)]), &["in use"]);
        qemu_cannot_lock(&qemu_reads(text(&image)));
        done(&cairn(&["umount", point]));
    }
    drop(above);
    volume.mount("");
    volume.unmount();
}

#[test]
fn what_the_kernel_has_mounted_is_left_alone_whatever_its_file_is_called_now() {
    let mut volume = Volume::make(SIZE, &[]);
    let (image, renamed) = (volume.image(), volume.outside("renamed"));
    let link = volume.outside("link");
    let device = LoopDevice::attach(&image, false);
    let above = LoopDevice::attach(device.path(), false);
    let point = volume.outside("kernel");
    fs::create_dir(&point).unwrap();
    let root = volume.root();
    for mounted in [device.path(), above.path()] {
        judge::run("mount", [mounted, &*point]);
        in_use(&cairn(&["mount", text(&image), text(&root)]), &["mounted on", text(&point)]);
        // Under a second name, under a new name, and after the removal of the first.
        fs::hard_link(&image, &link).unwrap();
        fs::rename(&image, &renamed).unwrap();
        for name in [&link, &renamed] {
            in_use(&cairn(&["mount", text(name), text(&root)]), &["mounted on", text(&point)]);
        }
        fs::remove_file(&renamed).unwrap();
        in_use(&cairn(&["mount", text(&link), text(&root)]), &["mounted on", text(&point)]);
        in_use(&cairn(&["mount", text(device.path()), text(&root)]), &["mounted on", text(&point)]);
        fs::rename(&link, &image).unwrap();
        judge::run("umount", [&point]);
    }
    // Another mount namespace has the mount, which is not in this process's table.
    let script = "mount \"$0\" \"$1\" && echo mounted && read -r line";
    let mut elsewhere = judge::command("unshare");
    elsewhere
        .args(["--mount", "sh", "-c", &[judge::FORGET_MOUNTS, script].concat()])
        .args([device.path(), &*point]);
    let mut elsewhere = elsewhere.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    elsewhere.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
    in_use(
        &cairn(&["mount", text(&image), text(&root)]),
        &["in use through the loop device", text(device.path())],
    );
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
    volume.mount("");
    volume.unmount();
}

#[test]
fn parts_of_an_image_can_be_had_at_once_but_none_twice() {
    let first = Volume::make(SIZE, &[]);
    let second = Volume::make(SIZE, &[]);
    // A disk with two volumes after the first mebibyte.
    let disk = first.outside("disk");
    let mut bytes = vec![0; 1 << 20];
    bytes.extend(fs::read(first.image()).unwrap());
    bytes.extend(fs::read(second.image()).unwrap());
    fs::write(&disk, bytes).unwrap();
    let attach = |offset: u64| {
        let (offset, limit) = (offset.to_string(), SIZE.to_string());
        let place = ["--find", "--show", "--offset", &offset, "--sizelimit", &limit, text(&disk)];
        judge::run("losetup", place).trim().to_owned()
    };
    let devices = [attach(1 << 20), attach((1 << 20) + SIZE), attach(1 << 20)];
    let (one, two) = (first.root(), second.root());
    done(&cairn(&["mount", &devices[0], text(&one)]));
    done(&cairn(&["mount", &devices[1], text(&two)]));
    let refusals =
        [cairn(&["ls", &devices[2]]), cairn(&["ls", text(&disk)]), qemu_reads(text(&disk))];
    done(&cairn(&["umount", text(&one)]));
    done(&cairn(&["umount", text(&two)]));
    done(&cairn(&["ls", &devices[2]]));
    for device in &devices {
        judge::run("losetup", ["--detach", device]);
    }
    in_use(&refusals[0], &["in use"]);
    in_use(&refusals[1], &["in use"]);
    qemu_cannot_lock(&refusals[2]);
}

#[test]
fn what_is_no_image_is_not_even_opened() {
    let volume = Volume::make(SIZE, &[]);
    let (fifo, link, root) = (volume.outside("fifo"), volume.outside("link"), volume.root());
    judge::run("mkfifo", [&fifo]);
    std::os::unix::fs::symlink(&fifo, &link).unwrap();
    for path in [&fifo, &link] {
        let commands: [&[&str]; 5] = [
            &["ls", text(path)],
            &["info", text(path)],
            &["mkdir", text(path), "/x"],
            &["mkfs", "-t", "ext4", "--size", "8M", text(path)],
            &["mount", text(path), text(&root)],
        ];
        for command in commands {
            // An open would wait for a process at the other end.
            let output = cairn(command);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains("FIFO"), "{command:?}: {said}");
        }
    }
    let output = cairn(&["ls", "/dev/tty"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("character device"), "{output:?}");
}
