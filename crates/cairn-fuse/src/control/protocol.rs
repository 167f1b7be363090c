//! The lines that go over the socket; docs/control.md describes them for others.
//!
//! `{"cairn":1,"request":"stats"}` → `{"cairn":1,"ok":{…}}` or `{"cairn":1,"error":"…"}`.

use std::io::{self, BufRead, ErrorKind, Write};

use cairn_base::stats::Report;
use serde::{Deserialize, Serialize};

/// Version of the protocol.
pub const VERSION: u32 = 1;

/// Longest request, in bytes.
const MAX_REQUEST: u64 = 64 << 10;
/// Longest answer that a client takes.
const MAX_REPLY: u64 = 16 << 20;

/// A client's request.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(crate) enum Request {
    /// All counters.
    Stats,
    /// Change options.
    Remount {
        /// As after `-o`.
        options: String,
    },
    /// Write everything to the disk and hold back changes.
    Freeze {
        /// Thaw after this many seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    /// The same, until the client thaws it or hangs up.
    Hold,
    /// End a freeze.
    Thaw,
    /// Write everything and end the mount, even if it is in use.
    End,
    /// Answer twice: now, and with a report when the volume has been closed.
    WaitForEnd,
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    cairn: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// What the daemon answers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Ok(Report),
    Error(String),
}

/// An answer as it is read.
#[derive(Deserialize)]
struct Answer {
    cairn: u32,
    ok: Option<Report>,
    error: Option<String>,
}

fn write<T: Serialize>(to: &mut impl Write, body: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Versioned { cairn: VERSION, body })?;
    line.push(b'\n');
    to.write_all(&line)
}

pub(crate) fn write_request(to: &mut impl Write, request: &Request) -> io::Result<()> {
    write(to, request)
}

pub(crate) fn write_reply(to: &mut impl Write, reply: &Reply) -> io::Result<()> {
    write(to, reply)
}

/// The next request; `None` at the end. `Err(Ok(text))` is to be sent to the client.
pub(crate) fn read_request(
    from: &mut impl BufRead,
) -> Result<Option<Request>, Result<String, io::Error>> {
    let Some(line) = read_line(from, MAX_REQUEST).map_err(Err)? else { return Ok(None) };
    let value: serde_json::Value =
        serde_json::from_slice(&line).map_err(|error| Ok(format!("not a request: {error}")))?;
    match value.get("cairn").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            return Err(Ok(format!(
                "this daemon uses version {VERSION} of the protocol, not {version}"
            )));
        }
        None => return Err(Ok("not a request: `cairn` gives no version".to_owned())),
    }
    serde_json::from_value(value).map(Some).map_err(|error| Ok(format!("not a request: {error}")))
}

/// The next answer; `None` if the daemon hung up.
pub(crate) fn read_reply(from: &mut impl BufRead) -> io::Result<Option<Reply>> {
    let Some(line) = read_line(from, MAX_REPLY)? else { return Ok(None) };
    let reply: Answer = serde_json::from_slice(&line)?;
    match (reply.cairn, reply.ok, reply.error) {
        (VERSION, Some(report), None) => Ok(Some(Reply::Ok(report))),
        (VERSION, None, Some(text)) => Ok(Some(Reply::Error(text))),
        (version, ..) => {
            let text =
                format!("an answer of version {version}, which is not {VERSION}, or has no result");
            Err(io::Error::new(ErrorKind::InvalidData, text))
        }
    }
}

fn read_line(from: &mut impl BufRead, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    io::Read::take(from, most).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) => Err(io::Error::new(ErrorKind::InvalidData, "the line has no end")),
    }
}
