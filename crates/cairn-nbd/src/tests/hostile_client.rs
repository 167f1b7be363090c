//! Clients that do not keep to the protocol: they lose their connection, and the others nothing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};

use super::{address, serve, writing};
use crate::Client;
use crate::server::{Export, Listen, Options, Server};
use crate::wire::option::{self, Go, ReplyHeader};
use crate::wire::request::{Kind, Request};
use crate::wire::{CommandFlags, Headers};

const GREETING: usize = 18;

fn connect(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.read_exact(&mut [0; GREETING]).unwrap();
    stream
}

fn send(stream: &mut UnixStream, option: u32, data: &[u8]) {
    stream.write_all(&option::encode(option, data)).unwrap();
}

/// The last reply to an option.
fn last_reply(stream: &mut UnixStream) -> u32 {
    loop {
        let mut header = [0; option::REPLY_HEADER];
        stream.read_exact(&mut header).unwrap();
        let ReplyHeader { kind, len, .. } = ReplyHeader::decode(&header).unwrap();
        stream.read_exact(&mut vec![0; len as usize]).unwrap();
        if kind == option::REP_ACK || kind & option::REP_ERR != 0 {
            return kind;
        }
    }
}

/// A client in the transmission phase.
fn transmitting(socket: &Path, headers: Headers) -> UnixStream {
    let mut stream = connect(socket);
    stream.write_all(&3_u32.to_be_bytes()).unwrap();
    let option = match headers {
        Headers::Extended => option::EXTENDED_HEADERS,
        _ => option::STRUCTURED_REPLY,
    };
    send(&mut stream, option, &[]);
    assert_eq!(last_reply(&mut stream), option::REP_ACK);
    let go = Go { name: "disk".into(), wanted: vec![] };
    send(&mut stream, option::GO, &go.encode());
    assert_eq!(last_reply(&mut stream), option::REP_ACK);
    stream
}

fn assert_ended(mut stream: UnixStream, what: &str) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{what}: {error}");
        }
    }
}

#[test]
fn messages_that_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let server = serve(&socket, Arc::new(MemoryDevice::new(1 << 20)));
    let honest = Client::connect(&address(&socket), &writing()).unwrap();

    let mut stream = connect(&socket);
    stream.write_all(&0xffff_ffff_u32.to_be_bytes()).unwrap();
    assert_ended(stream, "unknown flags");

    let mut stream = connect(&socket);
    stream.write_all(&[0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 1, 0, 0, 0, 0]).unwrap();
    assert_ended(stream, "no magic number");

    let mut stream = connect(&socket);
    stream.write_all(&1_u32.to_be_bytes()).unwrap();
    let mut long = option::encode(option::GO, &[]);
    long[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    stream.write_all(&long).unwrap();
    assert_ended(stream, "an option of 4 GiB");

    let mut stream = connect(&socket);
    stream.write_all(&1_u32.to_be_bytes()).unwrap();
    for _ in 0..64 {
        send(&mut stream, 77, &[]);
        assert_eq!(last_reply(&mut stream), option::REP_ERR_UNSUP);
    }
    assert_ended(stream, "too many options");

    let mut stream = connect(&socket);
    stream.write_all(&1_u32.to_be_bytes()).unwrap();
    send(&mut stream, option::EXPORT_NAME, b"dusk");
    assert_ended(stream, "an export that is not there");

    for headers in [Headers::Structured, Headers::Extended] {
        let mut stream = transmitting(&socket, headers);
        stream.write_all(&[7; 32]).unwrap();
        assert_ended(stream, "no request");
        let mut stream = transmitting(&socket, headers);
        let request = Request {
            kind: Kind::Write,
            flags: CommandFlags::empty(),
            cookie: 1,
            offset: 0,
            len: u32::MAX.into(),
        };
        let (bytes, size) = request.encode(headers);
        stream.write_all(&bytes[..size]).unwrap();
        assert_ended(stream, "a write of 4 GiB");
        // It leaves in the middle of a message.
        let mut stream = transmitting(&socket, headers);
        stream.write_all(&bytes[..size / 2]).unwrap();
    }
    honest.write_at(0, vec![1; 4096]).unwrap();
    honest.flush().unwrap();
    drop(honest);
    server.stop().unwrap();
}

#[test]
fn options_that_lie_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let _server = serve(&socket, Arc::new(MemoryDevice::new(1 << 20)));
    let mut stream = connect(&socket);
    stream.write_all(&3_u32.to_be_bytes()).unwrap();
    let mut ask = |option, data: &[u8]| {
        send(&mut stream, option, data);
        last_reply(&mut stream)
    };
    assert_eq!(ask(option::GO, &[255; 100]), option::REP_ERR_INVALID);
    assert_eq!(ask(option::INFO, &[]), option::REP_ERR_INVALID);
    assert_eq!(ask(option::LIST, &[1]), option::REP_ERR_INVALID);
    assert_eq!(ask(option::SET_META_CONTEXT, &[]), option::REP_ERR_INVALID);
    assert_eq!(ask(option::STARTTLS, &[]), option::REP_ERR_POLICY);
    assert_eq!(ask(option::GO, &vec![0; 100_000]), option::REP_ERR_TOO_BIG);
    assert_eq!(ask(option::STRUCTURED_REPLY, &[]), option::REP_ACK);
    assert_eq!(ask(option::SET_META_CONTEXT, &[255; 12]), option::REP_ERR_INVALID);
    let dusk = Go { name: "dusk".into(), wanted: vec![0, 1, 2, 3, 99] };
    assert_eq!(ask(option::GO, &dusk.encode()), option::REP_ERR_UNKNOWN);
    let disk = Go { name: "disk".into(), ..dusk };
    assert_eq!(ask(option::INFO, &disk.encode()), option::REP_ACK);
    assert_eq!(ask(option::ABORT, &[]), option::REP_ACK);
    assert_ended(stream, "it wanted to leave");
}

/// Requests that are wrong, but can be read, are answered.
#[test]
fn requests_that_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let _server = serve(&socket, Arc::new(MemoryDevice::new(1 << 20)));
    let headers = Headers::Extended;
    let mut stream = transmitting(&socket, headers);
    let mut ask = |kind, flags, offset, len| {
        let request = Request { kind, flags, cookie: 5, offset, len };
        let (bytes, size) = request.encode(headers);
        stream.write_all(&bytes[..size]).unwrap();
        let carries = flags.contains(CommandFlags::PAYLOAD_LEN) || kind == Kind::Write;
        if carries {
            stream.write_all(&vec![0; len as usize]).unwrap();
        }
        let mut header = [0; 32];
        stream.read_exact(&mut header).unwrap();
        let len = u64::from_be_bytes(header[24..].try_into().unwrap());
        let mut payload = vec![0; len as usize];
        stream.read_exact(&mut payload).unwrap();
        match payload.len() {
            0 => 0,
            _ => u32::from_be_bytes(payload[..4].try_into().unwrap()),
        }
    };
    let none = CommandFlags::empty();
    assert_eq!(ask(Kind::Read, none, 1 << 20, 1), 22);
    assert_eq!(ask(Kind::Read, none, u64::MAX, 2), 22);
    assert_eq!(ask(Kind::Read, none, 0, 1 << 40), 22);
    assert_eq!(ask(Kind::Read, CommandFlags::NO_HOLE, 0, 1), 22);
    assert_eq!(ask(Kind::Write, none, (1 << 20) - 1, 2), 28);
    assert_eq!(ask(Kind::WriteZeroes, none, 0, 1 << 62), 28);
    assert_eq!(ask(Kind::WriteZeroes, CommandFlags::FAST_ZERO, 0, 4096), 0);
    let slow = CommandFlags::FAST_ZERO | CommandFlags::NO_HOLE;
    assert_eq!(ask(Kind::WriteZeroes, slow, 0, 4096), 95);
    assert_eq!(ask(Kind::Trim, none, 0, u64::MAX), 22);
    assert_eq!(ask(Kind::BlockStatus, none, 0, 4096), 22);
    assert_eq!(ask(Kind::Other(99), none, 0, 0), 22);
    assert_eq!(ask(Kind::Flush, CommandFlags::PAYLOAD_LEN, 0, 512), 22);
    assert_eq!(ask(Kind::Flush, none, 0, 0), 0);
}

#[test]
fn too_many_and_too_slow() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let export = || Export {
        name: "disk".into(),
        description: String::new(),
        device: Arc::new(MemoryDevice::new(1 << 20)),
        read_only: false,
        extents: None,
    };
    let short = Duration::from_millis(50);
    let listen = Listen::Unix(socket.clone());
    let options = Options { handshake: short, ..Options::default() };
    let server = Server::start(&listen, vec![export()], options).unwrap();
    assert_ended(connect(&socket), "silence in the negotiation");
    server.stop().unwrap();
    let options = Options { connections: 2, stall: short, ..Options::default() };
    let server = Server::start(&listen, vec![export()], options).unwrap();
    let idle = transmitting(&socket, Headers::Structured);
    let mut slow = transmitting(&socket, Headers::Structured);
    assert_ended(UnixStream::connect(&socket).unwrap(), "a third connection");
    slow.write_all(&[0x25]).unwrap();
    assert_ended(slow, "silence in a request");
    // Who has sent nothing may take its time.
    let mut idle = idle;
    let (bytes, size) =
        Request { kind: Kind::Flush, flags: CommandFlags::empty(), cookie: 0, offset: 0, len: 0 }
            .encode(Headers::Structured);
    idle.write_all(&bytes[..size]).unwrap();
    idle.read_exact(&mut [0; 16]).unwrap();
    drop(idle);
    server.stop().unwrap();
}
