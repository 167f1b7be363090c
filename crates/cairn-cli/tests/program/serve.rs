//! `cairn serve nbd`, judged by other clients; and killed under a volume that Cairn has open.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use cairn::{FileSystem, ImageSpec, OpenOptions};
use cairn_base::runtime::threads::Threads;
use cairn_base::units::Ino;
use cairn_nbd::{Address, Client, ConnectOptions};
use cairn_testkit::judge;
use cairn_vfs::{Caller, IoFlags, NewInode, OpenMode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{fails, in_dir, works};

/// A server that has told its address.
pub(crate) struct Served {
    child: Child,
    pub(crate) address: String,
    stderr: ChildStderr,
}

impl Served {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
        command.args(["serve", "nbd"]).args(arguments).env_remove("CAIRN_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let stderr = child.stderr.take().unwrap();
        let mut served = Self { child, address: address.trim_end().to_owned(), stderr };
        if served.address.is_empty() {
            panic!("{arguments:?}: {}", served.said());
        }
        served
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        said
    }

    /// Ends it with a signal that asks for it.
    pub(crate) fn end(mut self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!((status.code(), self.said().as_str()), (Some(0), ""));
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn nbdcopy(from: &str, to: &str) {
    let status = Command::new("nbdcopy").args(["--flush", from, to]).status().unwrap();
    assert!(status.success(), "nbdcopy {from} {to}: {status}");
}

#[test]
fn an_image_is_served_until_a_signal() {
    let (dir, image) = in_dir("disk.img");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    judge::mke2fs(Path::new(&image), 8 << 20, &["-t", "ext4"]);
    let bytes = std::fs::read(&image).unwrap();
    let served = Served::start(&["--socket", &at("sock et"), "--export", "a b", &image]);
    assert!(served.address.starts_with("nbd+unix:///a%20b?socket=/"), "{}", served.address);
    nbdcopy(&served.address, &at("copy"));
    assert!(std::fs::read(at("copy")).unwrap() == bytes);
    // It has the image's lock.
    assert!(fails(&["touch", &image, "/x"], 6).contains("in use"));
    let again = fails(&["serve", "nbd", "--socket", &at("sock et"), &at("copy")], 6);
    assert!(again.contains("another server listens there"), "{again}");
    works(&["touch", &at("copy"), "/x"]);
    nbdcopy(&at("copy"), &served.address);
    served.end();
    assert!(!Path::new(&at("sock et")).exists());
    assert!(works(&["ls", &image]).contains('x'));
    // Without a name for the socket, it is in a directory that goes at the end.
    let served = Served::start(&["--read-only", &image]);
    let (_, socket) = served.address.split_once("?socket=").unwrap();
    let socket = socket.to_owned();
    assert!(Path::new(&socket).exists());
    served.end();
    assert!(!Path::new(&socket).parent().unwrap().exists());
}

/// The map of an export: where extents begin, how long they are, and whether they are holes.
fn map(address: &str) -> Vec<(u64, u64, bool)> {
    let output = Command::new("nbdinfo").args(["--map", "--json", address]).output().unwrap();
    let extents: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |extent: &serde_json::Value, name: &str| extent[name].as_u64().unwrap();
    let extents = extents.as_array().unwrap().iter();
    extents
        .map(|one| (number(one, "offset"), number(one, "length"), number(one, "type") == 3))
        .collect()
}

#[test]
fn holes_are_told() {
    const MIB: u64 = 1 << 20;
    let (dir, image) = in_dir("disk.img");
    let file = std::fs::File::create(&image).unwrap();
    file.set_len(16 * MIB).unwrap();
    for at in [3, 10] {
        file.write_all_at(&[5; MIB as usize], at * MIB).unwrap();
    }
    let qcow2 = dir.path().join("disk.qcow2").to_str().unwrap().to_owned();
    let convert = ["convert", "-f", "raw", "-O", "qcow2", &image, &qcow2];
    assert!(Command::new("qemu-img").args(convert).status().unwrap().success());
    let whole = [(0, 3, true), (3, 1, false), (4, 6, true), (10, 1, false), (11, 5, true)];
    let whole = whole.map(|(at, len, hole)| (at * MIB, len * MIB, hole));
    for image in [&image, &qcow2] {
        let served = Served::start(&["--read-only", image]);
        assert_eq!(map(&served.address), whole, "{image}");
        let output = Command::new("qemu-img").args(["map", "-f", "raw", &served.address]).output();
        let told = String::from_utf8(output.unwrap().stdout).unwrap();
        let starts: Vec<&str> =
            told.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(starts, ["0x300000", "0xa00000"], "{told}");
        served.end();
    }
}

#[test]
fn a_partition_is_served_over_tcp() {
    let (dir, image) = in_dir("disk.img");
    std::fs::write(&image, crate::mkfs_safety::disk("gpt")).unwrap();
    let part = format!("{image}#2");
    works(&["mkfs", &part]);
    let served = Served::start(&["--listen", "127.0.0.1:0", "-r", &part]);
    let copy = dir.path().join("copy").to_str().unwrap().to_owned();
    nbdcopy(&served.address, &copy);
    works(&["check", &copy]);
    let wrong = Command::new("nbdcopy").args([&copy, &served.address]).output().unwrap();
    assert!(!wrong.status.success());
    served.end();
}

#[test]
fn mistakes() {
    let (dir, image) = in_dir("disk.img");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let missing = dir.path().join("missing").to_str().unwrap().to_owned();
    fails(&["serve", "nbd", &missing], 3);
    let is_file = fails(&["serve", "nbd", "--socket", &image, &image], 6);
    assert!(is_file.contains("there is a file of this name"), "{is_file}");
    let nowhere = dir.path().join("no/socket").to_str().unwrap().to_owned();
    assert!(fails(&["serve", "nbd", "--socket", &nowhere, &image], 1).contains("listen at"));
    let nothing = dir.path().to_str().unwrap();
    let without = fails(&["serve", "nbd", "--tls-certificates", nothing, &image], 3);
    assert!(without.contains("server-cert.pem"), "{without}");
    let long = "a".repeat(5000);
    fails(&["serve", "nbd", "--export", &long, &image], 2);
    assert!(fails(&["serve", "nbd", &format!("{image}#1")], 3).contains("partition"));
}

/// Files of a volume behind the server, and which of them were fsynced.
struct Load {
    filesystem: Arc<dyn FileSystem>,
    synced: Mutex<Vec<(String, u8)>>,
    count: AtomicU64,
    stop: AtomicBool,
}

const LEN: usize = 20_000;

impl Load {
    fn run(&self, number: u64) {
        let root = self.filesystem.root();
        for file in 0_u64.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let (name, fill) = (format!("{number}-{file}"), (number * 50 + file) as u8);
            self.write(root, &name, fill);
            self.synced.lock().unwrap().push((name, fill));
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn write(&self, root: Ino, name: &str, fill: u8) {
        let fs = &self.filesystem;
        let new = NewInode::Regular;
        let made = fs.create(root, name.as_bytes(), new, 0o644, &Caller::ROOT).unwrap();
        let handle = fs.open(made.ino, OpenMode { write: true, direct: false }).unwrap();
        fs.write(made.ino, 0, &[fill; LEN], IoFlags::default()).unwrap();
        fs.fsync(made.ino, handle, false).unwrap();
        fs.release(made.ino, handle);
        fs.forget(made.ino, 1);
    }
}

/// The server is killed and started again. The volume goes on, and nothing fsynced is lost.
#[test]
fn a_volume_survives_its_server() {
    let kills = if std::env::var_os("CAIRN_DEEP").is_some() { 50 } else { 4 };
    let (dir, image) = in_dir("disk.img");
    let socket = dir.path().join("socket").to_str().unwrap().to_owned();
    judge::mke2fs(Path::new(&image), 256 << 20, &["-t", "ext4"]);
    let start = || Served::start(&["--socket", &socket, &image]);
    let mut served = start();
    let address = Address::parse(&served.address).unwrap();
    let options = ConnectOptions { write: true, ..ConnectOptions::default() };
    let client = Arc::new(Client::connect(&address, &options).unwrap());
    let volume = cairn::open_on(client.clone(), Threads::new(), &OpenOptions::default()).unwrap();
    let load = Arc::new(Load {
        filesystem: volume.filesystem().clone(),
        synced: Mutex::default(),
        count: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let writers: Vec<_> = (0..4)
        .map(|number| {
            let load = load.clone();
            thread::spawn(move || load.run(number))
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..kills {
        let until = load.count.load(Ordering::SeqCst) + random.u64(1..40);
        while load.count.load(Ordering::SeqCst) < until {
            assert!(writers.iter().all(|writer| !writer.is_finished()), "a writer has failed");
            thread::yield_now();
        }
        served.kill();
        served = start();
    }
    load.stop.store(true, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    volume.filesystem().unmount().unwrap();
    let synced = std::mem::take(&mut *load.synced.lock().unwrap());
    drop((load, volume, client));
    served.end();
    let verdict = judge::e2fsck_check(Path::new(&image));
    assert!(verdict.is_clean(), "{}", verdict.output);
    let spec = ImageSpec::whole(&image);
    let volume = cairn::open(&spec, &OpenOptions { read_only: true, ..OpenOptions::default() });
    let volume = volume.unwrap();
    let fs = volume.filesystem();
    assert!(synced.len() > kills * 4, "{} files", synced.len());
    for (name, fill) in synced {
        let found = fs.lookup(fs.root(), name.as_bytes()).unwrap();
        let mut bytes = vec![0; LEN + 1];
        let len = fs.read(found.ino, 0, &mut bytes, IoFlags::default()).unwrap();
        assert!(len == LEN && bytes[..LEN].iter().all(|byte| *byte == fill), "{name}");
        fs.forget(found.ino, 1);
    }
    fs.unmount().unwrap();
}
