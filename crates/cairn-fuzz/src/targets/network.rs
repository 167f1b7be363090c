//! Both sides of NBD, against the other side's bytes.
//!
//! The first byte of an input says how far the negotiation has come before the other bytes are
//! sent: not at all, or to the end with simple, structured or extended headers. Both sides have
//! threads, whose panics are counted, because nobody else would see them.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt, ErrorKind};
use cairn_nbd::server::{Export, Listen, Options, Server};
use cairn_nbd::{Address, Client, ConnectOptions, Place};

const SIZE: u64 = 256 << 10;
/// Longer than any answer takes; an input that needs it is a finding.
const PATIENCE: Duration = Duration::from_secs(8);

const EXPORT_NAME: u32 = 1;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const SET_META_CONTEXT: u32 = 10;
const EXTENDED_HEADERS: u32 = 11;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_META_CONTEXT: u32 = 4;
const REP_ERR_UNSUP: u32 = (1 << 31) + 1;

/// How far the negotiation has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Nothing,
    Simple,
    Structured,
    Extended,
}

fn split(bytes: &[u8]) -> Option<(Start, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let starts = [Start::Nothing, Start::Simple, Start::Structured, Start::Extended];
    Some((starts[usize::from(first % 4)], rest))
}

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Fails if a thread has panicked since then.
fn watched(work: impl FnOnce()) {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            before(info);
        }));
    });
    let before = PANICS.load(Ordering::SeqCst);
    work();
    assert_eq!(PANICS.load(Ordering::SeqCst), before, "a thread has panicked");
}

/// A socket's name that nothing else has.
fn socket() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("socket");
    (folder, path)
}

fn greeting() -> Vec<u8> {
    [&b"NBDMAGICIHAVEOPT"[..], &[0, 3]].concat()
}

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let numbers = [option, kind, data.len() as u32].map(u32::to_be_bytes).concat();
    [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &numbers, data].concat()
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let numbers = [number, data.len() as u32].map(u32::to_be_bytes).concat();
    [&b"IHAVEOPT"[..], &numbers, data].concat()
}

/// What a server says until the first request, for what the client asks in turn.
fn negotiation(start: Start) -> Vec<u8> {
    if start == Start::Nothing {
        return Vec::new();
    }
    let answer = |is_known| if is_known { REP_ACK } else { REP_ERR_UNSUP };
    let mut said = greeting();
    let is_extended = start == Start::Extended;
    said.extend(reply(EXTENDED_HEADERS, answer(is_extended), &[]));
    if !is_extended {
        said.extend(reply(STRUCTURED_REPLY, answer(start == Start::Structured), &[]));
    }
    if start != Start::Simple {
        let context = [&1_u32.to_be_bytes()[..], b"base:allocation"].concat();
        said.extend(reply(SET_META_CONTEXT, REP_META_CONTEXT, &context));
        said.extend(reply(SET_META_CONTEXT, REP_ACK, &[]));
    }
    // Flush, forced writes, trim, zeros.
    let flags = [0, 0b0110_1101];
    said.extend(reply(GO, REP_INFO, &[&[0, 0][..], &SIZE.to_be_bytes(), &flags].concat()));
    said.extend(reply(GO, REP_ACK, &[]));
    said
}

/// A client, and a server that says the input whatever it is asked.
pub(super) fn nbd_client(bytes: &[u8]) {
    let Some((start, rest)) = split(bytes) else { return };
    let said = [&negotiation(start), rest].concat();
    let (_folder, path) = socket();
    let listener = UnixListener::bind(&path).expect("a socket");
    watched(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("the client connects");
                // The client may have gone.
                let _ = stream.write_all(&said);
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read_to_end(&mut Vec::new());
            });
            use_export(path.clone());
        });
    });
}

fn use_export(path: PathBuf) {
    let address = Address { place: Place::Unix(path), export: String::new(), tls: None };
    let options = ConnectOptions {
        write: true,
        connect_timeout: PATIENCE,
        request_timeout: PATIENCE,
        reconnect_timeout: Duration::ZERO,
        connections: 1,
        ..ConnectOptions::default()
    };
    let client = match Client::connect(&address, &options) {
        Ok(client) => client,
        Err(error) => return assert!(!error.to_string().is_empty(), "an error without a text"),
    };
    let size = client.geometry().size;
    let len = size.min(4096) / u64::from(client.geometry().logical_block.max(1))
        * u64::from(client.geometry().logical_block.max(1));
    let done = [
        client.read_at(0, len as usize).map(drop),
        client.write_at(0, vec![7; len as usize]),
        client.extents(0..size.min(SIZE)).map(drop),
        client.write_zeroes(0, len),
        client.flush(),
        client.read_at(0, len as usize).map(drop),
    ];
    for error in done.into_iter().filter_map(Result::err) {
        assert!(!error.to_string().is_empty(), "an error without a text");
        assert!(error.kind != ErrorKind::InUse, "{error}");
    }
}

/// A server, and a client that sends the input.
pub(super) fn nbd_server(bytes: &[u8]) {
    let Some((start, rest)) = split(bytes) else { return };
    let mut sent = Vec::new();
    if start != Start::Nothing {
        sent.extend(3_u32.to_be_bytes());
        match start {
            Start::Extended => sent.extend(option(EXTENDED_HEADERS, &[])),
            Start::Structured => sent.extend(option(STRUCTURED_REPLY, &[])),
            _ => {}
        }
        match start {
            Start::Simple => sent.extend(option(EXPORT_NAME, &[])),
            _ => {
                let query = [&0_u32.to_be_bytes()[..], &1_u32.to_be_bytes()].concat();
                let text = b"base:allocation";
                let len = (text.len() as u32).to_be_bytes();
                sent.extend(option(SET_META_CONTEXT, &[&query[..], &len, text].concat()));
                sent.extend(option(GO, &[0; 6]));
            }
        }
    }
    sent.extend(rest);
    let (_folder, path) = socket();
    let device = Arc::new(MemoryDevice::new(SIZE));
    let options = Options { handshake: PATIENCE, stall: PATIENCE, ..Options::default() };
    watched(|| {
        let export = Export::new("", device.clone(), false);
        let server =
            Server::start(&Listen::Unix(path.clone()), vec![export], options).expect("a server");
        let mut stream = UnixStream::connect(&path).expect("the server listens");
        // The input fits the socket, unless the server has gone.
        let _ = stream.write_all(&sent);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
        server.stop().expect("memory can be flushed");
    });
    assert_eq!(device.geometry().size, SIZE);
}
