//! What a transport must survive: clients that are killed or get signals in every kind of request,
//! a daemon that stands still, more waiting requests than a queue has entries, and crowds. Each
//! test runs once on `/dev/fuse` and once on FUSE over io_uring, where the machine has it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cairn_testkit::{deep, judge};
use rustix::process::Signal;

use crate::fixture::{CAIRN, Volume, transports};

const SIZE: u64 = 64 << 20;

/// Waits until every request that came through rings is answered.
#[track_caller]
fn assert_nothing_waits(volume: &Volume) {
    let started = Instant::now();
    loop {
        let stats = volume.stats();
        let ring = &stats["fuse"]["ring"];
        if stats["fuse"]["queue_now"] == 0 && ring["taken"] == ring["answered"] {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "unanswered: {}", stats["fuse"]);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A shell in the mount's root, with a limit of a minute.
#[track_caller]
fn shell(volume: &Volume, script: &str) -> String {
    let mut command = judge::command("timeout");
    command.args(["60", "sh", "-c", script]).current_dir(volume.root());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two processes for each kind of request. They begin when a line is read; then one is killed and
/// the other gets a signal that it handles. A second line is written when that is done, and a third
/// when all have ended.
const EVERY_KIND: &str = r#"
import ctypes, fcntl, mmap, os, signal, sys, time
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None)
def make(n):
    os.mkdir(f'd{n}'); os.mkdir(f'd{n}/empty'); os.symlink('x', f'd{n}/link')
    for name in ('f', 'gone', 'from'):
        with open(f'd{n}/{name}', 'wb') as file: file.write(b'x' * 70000)
    os.setxattr(f'd{n}/f', 'user.a', b'1')
    fd = os.open(f'd{n}/f', os.O_RDWR); os.fsync(fd)
    direct = os.open(f'd{n}/f', os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, 65536)
    mapped = mmap.mmap(fd, 65536)
    return n, fd, direct, page, mapped, os.open(f'd{n}', os.O_RDONLY), os.open(f'd{n}/from', os.O_RDONLY)
KINDS = [
    lambda n, *_: os.path.exists(f'd{n}/absent'),
    lambda n, *_: os.statvfs('.'),
    lambda n, *_: os.chmod(f'd{n}/f', 0o600),
    lambda n, fd, *_: os.ftruncate(fd, 100000),
    lambda n, *_: os.mkfifo(f'd{n}/fifo'),
    lambda n, *_: os.mkdir(f'd{n}/new'),
    lambda n, *_: os.symlink('y', f'd{n}/new'),
    lambda n, *_: os.link(f'd{n}/f', f'd{n}/new'),
    lambda n, *_: os.unlink(f'd{n}/gone'),
    lambda n, *_: os.rmdir(f'd{n}/empty'),
    lambda n, *_: os.rename(f'd{n}/gone', f'd{n}/new'),
    lambda n, *_: os.readlink(f'd{n}/link'),
    lambda n, *_: os.open(f'd{n}/f', os.O_RDONLY),
    lambda n, *_: os.open(f'd{n}/new', os.O_CREAT | os.O_RDWR),
    lambda n, *_: os.open(f'd{n}', os.O_TMPFILE | os.O_RDWR),
    lambda n, fd, direct, page, *_: os.preadv(direct, [page], 0),
    lambda n, fd, direct, page, *_: os.pwritev(direct, [page], 0),
    lambda n, fd, *_: (os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED), os.pread(fd, 300000, 0)),
    lambda n, fd, *_: (os.pwrite(fd, b'z' * 200000, 50000), os.fsync(fd)),
    lambda n, fd, *_: (os.pwrite(fd, b'z', 299999), os.fdatasync(fd)),
    lambda n, fd, d, p, mapped, *_: (mapped.__setitem__(0, 65), mapped.flush()),
    lambda n, fd, d, p, m, directory, f: os.fsync(directory),
    lambda n, fd, *_: libc.syncfs(fd),
    lambda n, *_: os.listdir(f'd{n}'),
    lambda n, *_: os.getxattr(f'd{n}/f', 'user.b') if os.listxattr(f'd{n}/f') else None,
    lambda n, *_: os.setxattr(f'd{n}/f', 'user.b', b'2'),
    lambda n, *_: os.removexattr(f'd{n}/f', 'user.a'),
    lambda n, fd, *_: os.posix_fallocate(fd, 0, 400000),
    lambda n, fd, d, p, m, directory, source: os.copy_file_range(source, fd, 200000),
    lambda n, fd, *_: os.lseek(fd, 0, os.SEEK_HOLE),
    lambda n, fd, *_: fcntl.ioctl(fd, 0x80086601, bytes(8)),
    lambda n, fd, *_: os.close(fd),
]
begin, release = os.pipe()
children = []
for n in range(2 * len(KINDS)):
    things = make(n)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGUSR1, lambda *_: None)
        os.close(release)
        os.read(begin, 1)
        try: KINDS[n // 2](*things)
        except OSError: pass
        os._exit(0)
    children.append(pid)
del things
print('ready', flush=True); sys.stdin.readline()
os.close(release)
time.sleep(0.15)
for n, pid in enumerate(children):
    for _ in range(3): os.kill(pid, signal.SIGUSR1 if n % 2 else signal.SIGKILL)
time.sleep(0.05)
print('told', flush=True)
ended = [os.waitpid(pid, 0)[1] for pid in children]
assert not any(ended[1::2]), ended
print('ended', flush=True)
"#;

/// While the daemon stands still, and after it goes on, in every kind of request.
#[test]
fn clients_are_killed_and_get_signals_in_every_kind_of_request() {
    for transport in transports() {
        for mut volume in [Volume::mounted(SIZE, transport), Volume::f2fs(SIZE, transport)] {
            let mut clients = judge::command("timeout")
                .args(["60", "python3", "-c", EVERY_KIND])
                .arg(volume.root())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut input = clients.stdin.take().unwrap();
            let mut lines = BufReader::new(clients.stdout.take().unwrap()).lines();
            let mut line = || lines.next().and_then(Result::ok).unwrap_or_default();
            assert_eq!(line(), "ready", "{transport}");
            volume.signal(Signal::STOP);
            input.write_all(b"\n").unwrap();
            let told = line();
            volume.signal(Signal::CONT);
            assert_eq!((&*told, &*line()), ("told", "ended"), "{transport}");
            assert!(clients.wait().unwrap().success(), "{transport}");
            fs::write(volume.path("after"), "alive").unwrap();
            assert_nothing_waits(&volume);
            volume.unmount();
        }
    }
}

/// dd prints its figures at each signal, and goes on. A signal also cuts its reads of zeros short.
#[test]
fn signals_during_long_requests_lose_nothing() {
    const SCRIPT: &str = r#"
dd if=/dev/zero of=zeros bs=1M count=24 iflag=fullblock oflag=dsync 2>/dev/null & dd=$!
sleep 0.1
while kill -USR1 $dd 2>/dev/null; do sleep 0.002; done
wait $dd || exit 1
stat -c %s zeros; tr -d '\0' < zeros | wc -c"#;
    for transport in transports() {
        let mut volume = Volume::mounted(SIZE, transport);
        assert_eq!(shell(&volume, SCRIPT), "25165824\n0\n", "{transport}");
        assert_nothing_waits(&volume);
        volume.unmount();
    }
}

/// Hundreds of processes come, start others, and go.
#[test]
fn crowds_of_processes_are_served() {
    const SCRIPT: &str = r#"
for i in $(seq 60); do (
    for j in 1 2 3; do (
        echo $i.$j > b$i.$j; cat b$i.$j > c$i.$j; mv c$i.$j e$i.$j; rm b$i.$j
        [ "$(cat e$i.$j)" = $i.$j ] || echo "e$i.$j differs"
    ) & done; wait
) & done; wait; ls | grep -c e"#;
    for transport in transports() {
        let mut volume = Volume::mounted(SIZE, transport);
        assert_eq!(shell(&volume, SCRIPT), "180\n", "{transport}");
        assert_nothing_waits(&volume);
        volume.unmount();
    }
}

/// Its arguments are a directory and a number of files.
const OPEN: &str = r#"
import os, resource, sys
os.chdir(sys.argv[1]); count = int(sys.argv[2])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 50), hard))
os.mkdir('d'); os.chdir('d')
files = [os.open(f'f{n}', os.O_CREAT | os.O_RDWR) for n in range(count)]
for n, fd in enumerate(files): os.write(fd, b'%d' % n)
for n in range(count): os.unlink(f'f{n}')
for n, fd in enumerate(files): assert os.pread(fd, 20, 0) == b'%d' % n and os.fstat(fd).st_nlink == 0
os.chdir('..'); os.rmdir('d')
"#;

#[test]
fn many_files_are_open_at_once_and_removed_meanwhile() {
    let count = if deep() { "10000" } else { "1000" };
    for transport in transports() {
        // Not nearly full, where each file written costs more with each one that is open.
        let mut volume = Volume::mounted(1 << 30, transport);
        let before = volume.free();
        judge::run("python3", [Path::new("-c"), OPEN.as_ref(), &volume.root(), count.as_ref()]);
        crate::space::wait_for_free(&volume, before);
        volume.unmount();
    }
}

/// Near full, the kernel asks before each write, and the answer may wait for data that the kernel
/// then sends through the same queue. The writers of one processor have more such questions than
/// its queue has entries.
#[test]
fn questions_of_one_processor_near_full_are_all_answered() {
    const SCRIPT: &str = r#"
for i in $(seq 48); do
    (taskset -c 0 dd if=/dev/zero of=w$i bs=70000 2>&1 | grep -c "No space" ) &
done | sort | uniq -c | tr -d ' \n'; wait"#;
    for transport in transports() {
        let mut volume = Volume::mounted(48 << 20, transport);
        assert_eq!(shell(&volume, SCRIPT), "481", "{transport}: each writer is told");
        assert_eq!(volume.stats()["fuse"]["room"]["near_full"], true);
        assert_nothing_waits(&volume);
        volume.unmount();
    }
}

/// Thaws also when the test fails: whoever waits for a frozen mount cannot be killed.
struct Frozen<'a>(&'a Volume);

impl Frozen<'_> {
    fn thaw(&self) -> bool {
        let mut command = judge::command("timeout");
        command.args(["20", CAIRN, "thaw"]).arg(self.0.root()).stderr(Stdio::null());
        command.status().unwrap().success()
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.thaw();
    }
}

/// More calls of one processor wait for the thaw than its queue has entries. Reads go on there.
#[test]
fn a_frozen_mount_is_read_while_more_calls_wait_than_a_queue_has_entries() {
    for transport in transports() {
        let mut volume = Volume::mounted(SIZE, transport);
        let names: Vec<String> = (0..40).map(|n| format!("d{n}")).collect();
        for name in &names {
            fs::create_dir(volume.path(name)).unwrap();
        }
        fs::write(volume.path("file"), "read").unwrap();
        assert!(Command::new(CAIRN).arg("freeze").arg(volume.root()).status().unwrap().success());
        let frozen = Frozen(&volume);
        // All at once: most are in the kernel's queue before the first is looked at.
        let mut script = "exec 2>/dev/null; ".to_owned();
        for name in &names {
            script += &format!("taskset -c 0 mkdir {name}/new & ");
        }
        let mut clients = judge::command("sh")
            .args(["-c", &(script + "wait")])
            .current_dir(volume.root())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(300));
        for _ in 0..10 {
            let mut command = judge::command("timeout");
            command.args(["-s", "KILL", "5", "taskset", "-c", "0", "dd", "iflag=direct"]);
            command.arg(format!("if={}", volume.path("file").display()));
            let output = command.output().unwrap();
            assert!(output.status.success() && output.stdout == b"read", "{transport}");
        }
        assert!(frozen.thaw());
        assert!(clients.wait().unwrap().success());
        drop(frozen);
        assert!(names.iter().all(|name| volume.path(name).join("new").is_dir()));
        assert_nothing_waits(&volume);
        volume.unmount();
    }
}
