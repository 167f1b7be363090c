//! Servers that end at any byte of a conversation, and lose what was not flushed.
//!
//! A relay stands for the network. At a random moment it stops, the server ends, the device loses a
//! random part of what was not flushed, and a new server takes its place. The client must hide all
//! of it: every read sees the last write, and after a flush everything is on the medium.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use cairn_base::sabotage::{Safeguard, without};
use cairn_block::{BlockDevice, BlockDeviceExt, Durability};
use cairn_nbd::{Client, ConnectOptions};

use crate::volatile::Volatile;
use crate::{address, serve, writing};

const BLOCK: u64 = 4096;
/// Blocks of one writer.
const BLOCKS: u64 = 24;
const WRITERS: u64 = 4;

/// Passes bytes on, until so many have passed.
struct Relay {
    behind: PathBuf,
    left: AtomicI64,
    cut: AtomicBool,
    streams: Mutex<Vec<UnixStream>>,
}

impl Relay {
    fn start(front: &Path, behind: PathBuf) -> Arc<Self> {
        let listener = UnixListener::bind(front).unwrap();
        let relay = Arc::new(Self {
            behind,
            left: AtomicI64::new(i64::MAX),
            cut: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let shared = Arc::downgrade(&relay);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Some(relay)) = (client, shared.upgrade()) else { return };
                relay.connect(client);
            }
        });
        relay
    }

    fn connect(self: &Arc<Self>, client: UnixStream) {
        let Ok(server) = UnixStream::connect(&self.behind) else { return };
        let mut streams = self.streams.lock().unwrap();
        if self.cut.load(Ordering::SeqCst) {
            return;
        }
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let relay = self.clone();
            thread::spawn(move || relay.pass(from, to));
        }
        streams.extend([client, server]);
    }

    fn pass(&self, mut from: UnixStream, mut to: UnixStream) {
        let mut bytes = vec![0; 3000];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let before = self.left.fetch_sub(count as i64, Ordering::SeqCst);
            let passes = usize::try_from(before.clamp(0, count as i64)).unwrap();
            if to.write_all(&bytes[..passes]).is_err() || passes < count {
                // What follows does not arrive, but the other side sees no end yet.
                return;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }

    /// True if the conversation has stopped.
    fn is_stopped(&self) -> bool {
        self.left.load(Ordering::SeqCst) <= 0
    }
}

/// Lets the server crash so many times, at random bytes.
fn crash(relay: &Relay, socket: &Path, device: &Arc<Volatile>, times: u32, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..times {
        let server = serve(socket, device.clone());
        relay.cut.store(false, Ordering::SeqCst);
        relay.left.store(random.i64(1..600_000), Ordering::SeqCst);
        while !relay.is_stopped() {
            thread::yield_now();
        }
        relay.cut.store(true, Ordering::SeqCst);
        let streams = std::mem::take(&mut *relay.streams.lock().unwrap());
        // The server carries out what it has got; the client sees nothing of it.
        streams.iter().skip(1).step_by(2).for_each(|server| {
            let _ = server.shutdown(Shutdown::Both);
        });
        drop(server);
        device.cut(&mut random, 5);
        streams.iter().for_each(|stream| {
            let _ = stream.shutdown(Shutdown::Both);
        });
    }
    // The last server stays.
    relay.left.store(i64::MAX, Ordering::SeqCst);
    relay.cut.store(false, Ordering::SeqCst);
}

struct Writer {
    client: Arc<Client>,
    device: Arc<Volatile>,
    first: u64,
    model: Vec<u8>,
    /// The bytes that each block may have on the medium if client and server end now.
    allowed: Vec<Vec<u8>>,
    random: fastrand::Rng,
}

impl Writer {
    /// Returns what the medium must hold, whatever ends then.
    fn run(mut self, stop: &AtomicBool) -> (u64, Vec<Vec<u8>>) {
        let mut step = 0_u32;
        while !stop.load(Ordering::SeqCst) {
            self.step(step);
            step += 1;
        }
        (self.first, self.allowed)
    }

    /// These blocks have new bytes; with `forced` they have reached the medium.
    fn wrote(&mut self, blocks: std::ops::Range<u64>, fill: u8, forced: bool) {
        for block in blocks {
            let allowed = &mut self.allowed[block as usize];
            if forced {
                allowed.clear();
            }
            allowed.push(fill);
        }
    }

    fn step(&mut self, step: u32) {
        let start = self.random.u64(0..BLOCKS);
        let count = self.random.u64(1..=(BLOCKS - start).min(6));
        let (offset, len) = ((self.first + start) * BLOCK, count * BLOCK);
        let range = (start * BLOCK) as usize..((start + count) * BLOCK) as usize;
        match self.random.u8(0..12) {
            0..=5 => {
                let fill = (step as u8) ^ (step >> 8) as u8 ^ self.first as u8;
                let fua = self.random.u8(0..4) == 0;
                let preflush = self.random.u8(0..6) == 0;
                let data = vec![fill; len as usize];
                self.model[range].copy_from_slice(&data);
                let durability = Durability { preflush, fua };
                self.client.write_durable(offset, data, durability).unwrap();
                if preflush {
                    self.flushed(Some(start..start + count));
                }
                self.wrote(start..start + count, fill, fua);
            }
            6 => {
                self.model[range].fill(0);
                self.client.write_zeroes(offset, len).unwrap();
                self.wrote(start..start + count, 0, false);
            }
            7 => {
                self.client.flush().unwrap();
                self.check_medium();
                self.flushed(None);
            }
            _ => {
                let read = self.client.read_at(offset, len as usize).unwrap();
                assert!(*read == self.model[range], "blocks {start}+{count} of {}", self.first);
            }
        }
    }

    /// Everything but these blocks has reached the medium as it is.
    fn flushed(&mut self, except: Option<std::ops::Range<u64>>) {
        let except = except.unwrap_or(0..0);
        for (block, allowed) in self.allowed.iter_mut().enumerate() {
            match except.contains(&(block as u64)) {
                false => *allowed = vec![self.model[block * BLOCK as usize]],
                // What they had before this write is not in the model any more.
                true => drop(allowed.drain(..allowed.len() - 1)),
            }
        }
    }

    fn check_medium(&self) {
        let on_medium = self.device.on_medium(self.first * BLOCK, self.model.len());
        assert!(on_medium == self.model, "the flush of {} did not cover everything", self.first);
    }
}

fn crashes(times: u32, seed: u64, options: &ConnectOptions) {
    println!("seed {seed}");
    let dir = tempfile::tempdir().unwrap();
    let (front, behind) = (dir.path().join("front"), dir.path().join("behind"));
    let device = Arc::new(Volatile::new(WRITERS * BLOCKS * BLOCK));
    let relay = Relay::start(&front, behind.clone());
    let first = serve(&behind, device.clone());
    let client = Arc::new(Client::connect(&address(&front), options).unwrap());
    drop(first);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<JoinHandle<_>> = (0..WRITERS)
        .map(|number| {
            let writer = Writer {
                client: client.clone(),
                device: device.clone(),
                first: number * BLOCKS,
                model: vec![0; (BLOCKS * BLOCK) as usize],
                allowed: vec![vec![0]; BLOCKS as usize],
                random: fastrand::Rng::with_seed(seed * 1000 + number),
            };
            let stop = stop.clone();
            thread::spawn(move || writer.run(&stop))
        })
        .collect();
    crash(&relay, &behind, &device, times, seed);
    let last = serve(&behind, device.clone());
    stop.store(true, Ordering::SeqCst);
    let promises: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    // Everything ends at once: what was forced or flushed is there, or what was written after it.
    drop((client, last));
    device.cut(&mut fastrand::Rng::with_seed(seed), 7);
    for (first, allowed) in promises {
        for (block, allowed) in allowed.iter().enumerate() {
            let at = (first + block as u64) * BLOCK;
            let found = device.on_medium(at, BLOCK as usize);
            let is_one = found.iter().all(|byte| *byte == found[0]);
            assert!(
                is_one && allowed.contains(&found[0]),
                "block {block} of {first}: {}",
                found[0]
            );
        }
    }
}

#[test]
fn nothing_is_lost_with_the_servers() {
    let (times, seeds) = if std::env::var_os("CAIRN_DEEP").is_some() { (50, 20) } else { (8, 2) };
    for seed in 0..seeds {
        for connections in [1, 3] {
            crashes(times, seed, &ConnectOptions { connections, ..writing() });
        }
    }
}

const WITHOUT: &str = "CAIRN_TEST_WITHOUT";

/// Without the replay, or with a flush that covers too much, writes are lost. A safeguard is
/// switched off for a whole process, so each has one of its own.
#[test]
fn every_safeguard_that_is_off_is_missed() {
    if let Ok(name) = std::env::var(WITHOUT) {
        return crash_without(&name);
    }
    for safeguard in [Safeguard::NbdReplay, Safeguard::NbdMark] {
        let test = "crashes::every_safeguard_that_is_off_is_missed";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(WITHOUT, format!("{safeguard:?}"));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(MISSED), "{safeguard:?}: {said}");
    }
}

/// The status of a process that has noticed what was lost.
const MISSED: i32 = 33;

fn crash_without(name: &str) {
    // A writer that has noticed something does not wait for the others.
    std::panic::set_hook(Box::new(|_| std::process::exit(MISSED)));
    let wanted = Safeguard::ALL.into_iter().find(|one| format!("{one:?}") == name).unwrap();
    let _off = without(wanted);
    for seed in 0..60 {
        crashes(8, seed, &ConnectOptions { connections: 3, ..writing() });
    }
}

/// The client flushes by itself, and goes on.
#[test]
fn what_is_kept_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let device = Arc::new(Volatile::new(8 << 20));
    let server = serve(&socket, device.clone());
    let options = ConnectOptions { unflushed: 1 << 20, ..writing() };
    let client = Client::connect(&address(&socket), &options).unwrap();
    for at in 0..64_u64 {
        client.write_at(at * (128 << 10), vec![at as u8; 128 << 10]).unwrap();
        assert!(client.kept() <= (2 << 20), "{} bytes are kept", client.kept());
    }
    client.flush().unwrap();
    assert_eq!(client.kept(), 0);
    assert!(device.flushes() > 4, "{} flushes", device.flushes());
    drop(client);
    server.stop().unwrap();
}
