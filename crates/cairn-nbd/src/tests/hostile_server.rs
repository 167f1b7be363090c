//! Servers that do not keep to the protocol: every answer is an error, none is believed, and nobody
//! waits for ever.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use cairn_block::{BlockDevice, BlockDeviceExt, Error, ErrorKind};

use super::{address, writing};
use crate::wire::option::{self, Header, Info};
use crate::wire::reply::{self, To};
use crate::wire::request::{self, Kind, Request};
use crate::wire::{BlockSizes, ExportFlags, Headers, INIT_MAGIC, OLD_MAGIC};
use crate::{Client, ConnectOptions};

/// For servers that say nothing.
const SHORT: Duration = Duration::from_millis(50);

/// Plays a server once for each connection. The folder goes with the test.
pub(super) fn play(
    script: impl Fn(&mut UnixStream) + Send + 'static,
) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            script(&mut stream.unwrap());
        }
    });
    (dir, socket)
}

fn greeting() -> Vec<u8> {
    let mut bytes = INIT_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option::MAGIC.to_be_bytes());
    bytes.extend([0, 3]);
    bytes
}

fn size_and_flags() -> Info {
    let flags = ExportFlags::HAS_FLAGS
        | ExportFlags::SEND_FLUSH
        | ExportFlags::SEND_FUA
        | ExportFlags::SEND_WRITE_ZEROES;
    Info::Export { size: 1 << 20, flags }
}

/// The next option and its data; none at the end.
fn next_option(stream: &mut UnixStream) -> Option<(u32, Vec<u8>)> {
    let mut header = [0; option::HEADER];
    stream.read_exact(&mut header).ok()?;
    let Header { option, len } = Header::decode(&header).unwrap();
    let mut data = vec![0; len as usize];
    stream.read_exact(&mut data).ok()?;
    Some((option, data))
}

fn reply(stream: &mut UnixStream, option: u32, kind: u32, data: &[u8]) {
    let _ = stream.write_all(&option::encode_reply(option, kind, data));
}

/// A negotiation as it should be.
pub(super) fn negotiate(stream: &mut UnixStream, headers: Headers) -> Option<()> {
    stream.write_all(&greeting()).ok()?;
    stream.read_exact(&mut [0; 4]).ok()?;
    loop {
        let (option, _) = next_option(stream)?;
        let ack = match option {
            option::EXTENDED_HEADERS => headers == Headers::Extended,
            option::STRUCTURED_REPLY => headers == Headers::Structured,
            option::SET_META_CONTEXT => true,
            option::GO => {
                reply(stream, option, option::REP_INFO, &size_and_flags().encode());
                reply(stream, option, option::REP_ACK, &[]);
                return Some(());
            }
            _ => false,
        };
        let kind = if ack { option::REP_ACK } else { option::REP_ERR_UNSUP };
        reply(stream, option, kind, &[]);
    }
}

fn refused(script: impl Fn(&mut UnixStream) + Send + 'static) -> Error {
    let (_dir, socket) = play(script);
    let error = Client::connect(&address(&socket), &writing()).err().expect("it is refused");
    println!("{error}");
    error
}

#[test]
fn greetings_of_others() {
    let says = |bytes: Vec<u8>| {
        refused(move |stream| {
            let _ = stream.write_all(&bytes);
        })
    };
    let http = says(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    assert_eq!(http.kind, ErrorKind::Unsupported);
    assert!(http.detail.contains("0x485454502f312e31"), "{http}");
    let old = says([INIT_MAGIC.to_be_bytes(), OLD_MAGIC.to_be_bytes()].concat());
    assert!(old.detail.contains("start it with newstyle negotiation"), "{old}");
    let unfixed = [&greeting()[..16], &[0, 0]].concat();
    assert!(says(unfixed).detail.contains("newstyle"));
    for end in 0..18 {
        let cut = says(greeting()[..end].to_vec());
        assert!(cut.detail.contains("the server ended the connection"), "{cut}");
    }
    let (_dir, socket) = play(|stream| {
        let _ = stream.read(&mut [0]);
    });
    let options = ConnectOptions { connect_timeout: SHORT, ..writing() };
    let silent = Client::connect(&address(&socket), &options).err().unwrap();
    assert!(silent.detail.contains("did not answer within 0.05 s: see that"), "{silent}");
}

#[test]
fn replies_to_options_that_cannot_be() {
    type Script = fn(&mut UnixStream, u32);
    let scripts: [(&str, Script); 12] = [
        ("not its magic number", |stream, _| {
            let _ = stream.write_all(&[7; option::REPLY_HEADER]);
        }),
        ("and can have 0 to 16384", |stream, option| {
            let mut bytes = option::encode_reply(option, option::REP_ACK, &[]);
            bytes[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
            let _ = stream.write_all(&bytes);
        }),
        ("the option that is answered is 99", |stream, _| reply(stream, 99, option::REP_ACK, &[])),
        ("without its size is 0", |stream, option| reply(stream, option, option::REP_ACK, &[])),
        ("more than 4096 messages", |stream, option| {
            let info = size_and_flags().encode();
            let one = option::encode_reply(option, option::REP_INFO, &info);
            let _ = stream.write_all(&one.repeat(5000));
        }),
        ("an export's size has 4 bytes", |stream, option| {
            reply(stream, option, option::REP_INFO, &[0, 0, 1, 2]);
        }),
        ("beside it, is 3", |stream, option| {
            let sizes = BlockSizes { minimum: 3, preferred: 512, maximum: 512 };
            reply(stream, option, option::REP_INFO, &Info::BlockSizes(sizes).encode());
        }),
        ("(the server says: \\u{1b}[2J)", |stream, option| {
            reply(stream, option, option::REP_ERR_POLICY, b"\x1b[2J");
        }),
        ("the server is ending", |stream, option| {
            reply(stream, option, option::REP_ERR_SHUTDOWN, &[]);
        }),
        ("it calls the request invalid (the server says: no): see what", |stream, option| {
            reply(stream, option, option::REP_ERR_INVALID, b"no");
        }),
        ("to this client: see to whom it gives it", |stream, option| {
            reply(stream, option, option::REP_ERR_POLICY, &[]);
        }),
        ("with the number 0xdeadbeef, which NBD does not define: see what", |stream, option| {
            reply(stream, option, 0xdead_beef, &[]);
        }),
    ];
    for (words, script) in scripts {
        let error = refused(move |stream| {
            let _ = stream.write_all(&greeting());
            let _ = stream.read_exact(&mut [0; 4]);
            while let Some((option, _)) = next_option(stream) {
                match option {
                    option::GO => script(stream, option),
                    _ => reply(stream, option, option::REP_ERR_UNSUP, &[]),
                }
            }
        });
        assert!(error.detail.contains(words), "{words}: {error}");
    }
}

/// The first request that reads four KiB at 8192 gets this answer.
fn answered(headers: Headers, answer: impl Fn(To) -> Vec<u8> + Send + 'static) -> Error {
    let (_dir, socket) = play(move |stream| {
        if negotiate(stream, headers).is_none() {
            return;
        }
        let mut bytes = vec![0; Request::size(headers)];
        while stream.read_exact(&mut bytes).is_ok() {
            let request = Request::decode(&bytes, headers).unwrap();
            if request.kind == Kind::Disconnect {
                return;
            }
            let to = To { headers, cookie: request.cookie, offset: request.offset };
            let _ = stream.write_all(&answer(to));
        }
    });
    let client = Client::connect(&address(&socket), &writing()).unwrap();
    let error = client.read_at(8192, 4096).expect_err("the answer is not believed");
    println!("{error}");
    error
}

#[test]
fn answers_that_cannot_be() {
    let other = |to: To| To { cookie: to.cookie + 1, ..to };
    let data = |to: To, offset: u64, len: usize, flags: u16| {
        let mut bytes = to.chunk(flags, reply::OFFSET_DATA, 8 + len as u64);
        bytes.extend(offset.to_be_bytes());
        bytes.extend(vec![1; len]);
        bytes
    };
    let hole = |to: To, offset: u64, len: u32| {
        let mut bytes = to.chunk(reply::DONE, reply::OFFSET_HOLE, 12);
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    };
    for headers in [Headers::Structured, Headers::Extended] {
        let wrong = |words: &str, answer: Box<dyn Fn(To) -> Vec<u8> + Send>| {
            let error = answered(headers, answer);
            assert!(error.detail.contains("does not keep to the protocol"), "{words}: {error}");
            assert!(error.detail.contains(words), "{words}: {error}");
        };
        wrong("not its magic number", Box::new(|_| vec![0; 64]));
        wrong("not under way", Box::new(move |to| other(to).done()));
        wrong("9 to 4104", Box::new(|to| to.chunk(1, reply::OFFSET_DATA, 1 << 31)));
        wrong("9 to 4104", Box::new(|to| to.chunk(1, reply::OFFSET_DATA, 8)));
        wrong("bytes at offset 4096", Box::new(move |to| data(to, 4096, 4096, 1)));
        wrong("bytes at offset 12287", Box::new(move |to| data(to, 12287, 2, 1)));
        wrong("bytes at offset", Box::new(move |to| data(to, u64::MAX, 2, 1)));
        let twice = move |to| [data(to, 8192, 2048, 0), data(to, 10239, 2049, 1)].concat();
        wrong("2049 bytes at offset 10239", Box::new(twice));
        wrong("2048 bytes are missing", Box::new(move |to| data(to, 8192, 2048, 1)));
        wrong("4096 bytes are missing", Box::new(|to| to.chunk(1, reply::NONE, 0)));
        wrong("0 bytes at offset 8192", Box::new(move |to| hole(to, 8192, 0)));
        wrong("4294967295 bytes", Box::new(move |to| hole(to, 8192, u32::MAX)));
        wrong("an empty chunk has 1 bytes", Box::new(|to| to.chunk(1, reply::NONE, 1)));
        wrong("the kind of a chunk is 77", Box::new(|to| to.chunk(1, 77, 0)));
        wrong("the kind of a chunk is", Box::new(|to| to.status(1, &[(4096, 0)])));
        wrong("an error has", Box::new(|to| to.chunk(1, reply::ERROR, 1 << 20)));
        let lies = |to: To| {
            let mut bytes = to.chunk(1, reply::ERROR, 6);
            bytes.extend([0, 0, 0, 5, 255, 255]);
            bytes
        };
        wrong("an error has 6 bytes", Box::new(lies));
    }
    let error = answered(Headers::Structured, |to| to.simple(0));
    assert!(error.detail.contains("without chunks"), "{error}");
    let error = answered(Headers::Simple, |to| to.chunk(1, reply::NONE, 0));
    assert!(error.detail.contains("not its magic number"), "{error}");
}

/// Errors that a server may send are those of one request; the connection stays.
#[test]
fn errors_with_words() {
    for headers in [Headers::Simple, Headers::Structured, Headers::Extended] {
        for (number, kind) in [(1, ErrorKind::PermissionDenied), (5, ErrorKind::Io)] {
            let error = answered(headers, move |to| to.failed(number, "be\u{7}ll"));
            let words = headers == Headers::Simple || error.detail.contains("be\\u{7}ll");
            assert!(error.kind == kind && words, "{error}");
        }
    }
}

/// What a server answers is said in words, once, and with what to do.
#[test]
fn every_error_of_a_server_says_what_to_do() {
    for (number, said) in [
        (1, "it is not permitted: see whether the server exports it read-only"),
        (5, "input/output error: see to the disk that the server exports"),
        (12, "it has no memory: free memory on its machine"),
        (22, "the request is not valid: see what the log of the server says"),
        (28, "it has no space left: make room there"),
        (75, "the request is too large: see what the log of the server says"),
        (95, "it is not supported: see what the log of the server says"),
        (0xdead_beef, "error number 0xdeadbeef, which NBD does not define: see what the log"),
    ] {
        let error = answered(Headers::Simple, move |to| to.failed(number, ""));
        let detail = &error.detail;
        let start = format!("the NBD server answered: {said}");
        assert!(detail.starts_with(&start) && !detail.contains("(error"), "{detail}");
    }
}

/// Only some bytes of an answer come, and then nothing: neither an end, nor more.
#[test]
fn silence_in_an_answer() {
    for len in [0, 400] {
        let (_dir, socket) = play(move |stream| {
            if negotiate(stream, Headers::Structured).is_none() {
                return;
            }
            let mut bytes = vec![0; Request::size(Headers::Structured)];
            if stream.read_exact(&mut bytes).is_err() {
                return;
            }
            let request = Request::decode(&bytes, Headers::Structured).unwrap();
            let to = To { headers: Headers::Structured, cookie: request.cookie, offset: 8192 };
            let mut answer = to.data(4096);
            answer.extend([5; 4096]);
            let _ = stream.write_all(&answer[..len]);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let options = ConnectOptions { request_timeout: SHORT, ..writing() };
        let client = Client::connect(&address(&socket), &options).unwrap();
        // Each new connection ends like the one before.
        let error = client.read_at(8192, 4096).unwrap_err();
        assert!(error.detail.contains("16 connections ended"), "{error}");
    }
}

/// A server that keeps a connection open after the client has given it up may still write: so
/// nothing is sent again.
#[test]
fn a_write_that_may_come_late_is_not_repeated() {
    let (_dir, socket) = play(|stream| {
        if negotiate(stream, Headers::Structured).is_some() {
            let stream = stream.try_clone().unwrap();
            // Reads all, answers nothing, never ends.
            thread::spawn(move || {
                let _ = (&stream).read_to_end(&mut Vec::new());
                thread::park();
            });
        }
    });
    let options = ConnectOptions { request_timeout: SHORT, reconnect_timeout: SHORT, ..writing() };
    let client = Client::connect(&address(&socket), &options).unwrap();
    let error = client.write_at(0, vec![1; 4096]).unwrap_err();
    assert!(error.detail.contains("could come after later ones"), "{error}");
    assert!(client.flush().is_err());
}

/// An old server: no `NBD_OPT_GO`, no structured replies, and zeros behind the export's flags.
#[test]
fn a_server_without_go_is_used() {
    let (_dir, socket) = play(|stream| {
        let mut bytes = greeting();
        bytes[17] = 1;
        let _ = stream.write_all(&bytes);
        let _ = stream.read_exact(&mut [0; 4]);
        while let Some((option, name)) = next_option(stream) {
            if option == option::EXPORT_NAME {
                assert_eq!(name, b"disk");
                break;
            }
            reply(stream, option, option::REP_ERR_UNSUP, &[]);
        }
        let mut chosen = size_and_flags().encode().split_off(2);
        chosen.extend([0; 124]);
        let _ = stream.write_all(&chosen);
        let mut bytes = [0; request::COMPACT];
        while stream.read_exact(&mut bytes).is_ok() {
            let request = Request::decode(&bytes, Headers::Simple).unwrap();
            if request.kind == Kind::Disconnect {
                return;
            }
            let to = To { headers: Headers::Simple, cookie: request.cookie, offset: 0 };
            let _ = stream.write_all(&[to.simple(0), vec![3; 4096]].concat());
        }
    });
    let client = Client::connect(&address(&socket), &writing()).unwrap();
    assert_eq!((client.geometry().size, client.geometry().logical_block), (1 << 20, 512));
    assert!(client.read_at(8192, 4096).unwrap().iter().all(|byte| *byte == 3));
}
