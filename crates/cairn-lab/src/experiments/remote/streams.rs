//! Streams of 1 MiB to and from a server, beside nbdcopy.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::{Batch, BlockDevice, Bytes, Durability, IoBuf, Request};
use cairn_nbd::Client;

use super::client::{client, connections};
use super::server::Server;
use crate::error::{Error, Result};
use crate::experiment::Context;
use crate::mounted;
use crate::section::{Builder, Metric, Section};

pub(super) const ID: &str = "streams";
pub(super) const RATE: &str = "mib_per_s";
/// The foreign client.
pub(super) const NBDCOPY: &str = "nbdcopy";
/// What Cairn uses if nobody asks for another number.
pub(super) const DEFAULT: usize = 2;
pub(super) const ROWS: [&str; 2] = ["read 1 MiB", "write 1 MiB"];
const CONNECTIONS: [usize; 3] = [1, DEFAULT, 4];
const MIB: u64 = 1 << 20;
/// Requests under way.
const DEPTH: usize = 16;

/// Measures the table. None if nbdcopy is not installed.
pub(super) fn measure(context: &Context, notes: &mut Vec<String>) -> Result<Option<Section>> {
    if !mounted::is_installed(NBDCOPY) {
        notes.push("No streams: nbdcopy is not installed.".into());
        return Ok(None);
    }
    let mib = context.scale.pick(64, 1024, 2048);
    let source = context.scratch.join("remote-source");
    let made = std::fs::write(&source, vec![0x61; (mib * MIB) as usize]);
    made.map_err(Error::host(&source))?;
    let server = Server::start(mib * MIB, None)?;
    let measured = measure_from(context, &server, &source, mib);
    std::fs::remove_file(&source).map_err(Error::host(&source))?;
    notes.push(format!(
        "streams: {mib} MiB, {DEPTH} requests of 1 MiB under way (nbdcopy: as it chooses). Both \
         write what they read from one file, which is in the page cache, and use their memory \
         again; what is read is dropped."
    ));
    measured.map(Some)
}

fn measure_from(context: &Context, server: &Server, source: &Path, mib: u64) -> Result<Section> {
    let mut subjects = vec![NBDCOPY.to_owned()];
    subjects.extend(CONNECTIONS.map(connections));
    let names: Vec<&str> = subjects.iter().map(String::as_str).collect();
    let metrics = vec![Metric::higher(RATE, "MiB/s")];
    let mut builder = Builder::new(ID, "Streams over NBD", &names, metrics);
    context.progress.expect(context.repetitions * names.len());
    // The server's memory, and the file's pages.
    copy(source, server)?;
    for repetition in 0..context.repetitions {
        for subject in context.order(repetition, names.len()) {
            context.progress.show(names[subject]);
            let seconds = match subject.checked_sub(1) {
                None => [read_by_nbdcopy(server)?, copy(source, server)?],
                Some(own) => {
                    let client = client(server, CONNECTIONS[own])?;
                    [read(&client, mib)?, write(&client, source, mib)?]
                }
            };
            for (row, seconds) in ROWS.iter().zip(seconds) {
                builder.add(row, names[subject], &[(RATE, mib as f64 / seconds)]);
            }
            context.progress.step();
        }
    }
    Ok(builder.finish())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

fn copy(source: &Path, server: &Server) -> Result<f64> {
    let mut command = mounted::command(NBDCOPY);
    command.arg("--flush").arg(source).arg(server.uri());
    timed(|| mounted::run(&mut command).map(drop))
}

fn read_by_nbdcopy(server: &Server) -> Result<f64> {
    let mut command = mounted::command(NBDCOPY);
    command.args([server.uri().as_str(), "null:"]);
    timed(|| mounted::run(&mut command).map(drop))
}

fn read(client: &Client, mib: u64) -> Result<f64> {
    let (mut free, mut waiting) = (Vec::new(), VecDeque::new());
    timed(|| {
        for at in 0..mib {
            let buf = free.pop().unwrap_or_else(|| IoBuf::zeroed(MIB as usize));
            submit(client, Request::Read { offset: at * MIB, buf }, &mut waiting, &mut free)?;
        }
        drain(waiting)
    })
}

/// Memory that nobody uses.
type Free = Arc<Mutex<Vec<IoBuf>>>;

/// Memory of a write. When the client no longer needs it, it is used again, as in the cache of a
/// mount: memory that is new costs a page fault for each 4 KiB.
struct Lent {
    buf: Option<IoBuf>,
    home: Free,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buf.as_deref().unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.lock().extend(self.buf.take());
    }
}

/// A MiB of the source.
fn piece(source: &FileDevice, offset: u64, home: &Free) -> Result<Bytes> {
    let free = home.lock().pop();
    let buf = free.unwrap_or_else(|| IoBuf::zeroed(MIB as usize));
    let requests = vec![Request::Read { offset, buf }];
    let read = source.submit(Batch { requests, durability: Durability::default() }).wait()?;
    let buf = read.into_iter().next();
    Ok(Bytes::from_owner(Lent { buf, home: home.clone() }))
}

fn write(client: &Client, source: &Path, mib: u64) -> Result<f64> {
    let source = FileDevice::open(source, OpenOptions::read())?;
    let home: Free = Arc::new(Mutex::new(Rank::Leaf, Vec::new()));
    let (mut free, mut waiting) = (Vec::new(), VecDeque::new());
    timed(|| {
        for at in 0..mib {
            let offset = at * MIB;
            let bufs = vec![piece(&source, offset, &home)?];
            submit(client, Request::Write { offset, bufs }, &mut waiting, &mut free)?;
        }
        drain(waiting)?;
        Ok(client.flush()?)
    })
}

type Waiting = VecDeque<cairn_block::Completion>;

/// Submits a request, after the oldest one has ended if there are too many.
fn submit(
    client: &Client,
    request: Request,
    waiting: &mut Waiting,
    free: &mut Vec<IoBuf>,
) -> Result<()> {
    if waiting.len() == DEPTH
        && let Some(first) = waiting.pop_front()
    {
        free.extend(first.wait()?);
    }
    let durability = Durability::default();
    waiting.push_back(client.submit(Batch { requests: vec![request], durability }));
    Ok(())
}

fn drain(waiting: Waiting) -> Result<()> {
    for one in waiting {
        one.wait()?;
    }
    Ok(())
}
