//! `remote`: volumes behind NBD.
//!
//! | table | compares |
//! |---|---|
//! | `streams` | Cairn's client, on one and several connections, with nbdcopy |
//! | `fsync` | fs_mark's `-S 1` by 1, 8 and 32 threads, on one and two connections |
//! | `fsync-delay` | the same through a server that answers each read and write after 1 ms |

mod client;
mod fsyncs;
mod goals;
mod server;
mod streams;

use crate::error::Result;
use crate::experiment::{Context, Experiment, Findings};
use crate::mounted;
use server::Server;

/// The entry in [`crate::experiments`].
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "remote",
    question: "How fast are volumes behind NBD: streams, fsyncs of many threads, latency?",
    run,
    about: None,
};

/// Bytes of a volume.
const VOLUME: u64 = 1 << 30;
/// The server's time for each read and write in the last table.
const DELAY_MS: u32 = 1;

fn run(context: &Context) -> Result<Findings> {
    let mut findings = Findings::default();
    if mounted::is_installed("nbdkit") {
        findings.sections.extend(streams::measure(context, &mut findings.notes)?);
        for (id, delay) in [(fsyncs::ID, None), (fsyncs::DELAYED, Some(DELAY_MS))] {
            let server = Server::start(VOLUME, delay)?;
            findings.sections.push(fsyncs::measure(context, &server, id)?);
        }
        findings.notes.extend(notes());
    } else {
        findings.notes.push("Nothing is measured: nbdkit is not installed.".into());
    }
    findings.goals = goals::all(&findings.sections);
    Ok(findings)
}

fn notes() -> Vec<String> {
    vec![
        "The server is nbdkit's memory plugin, over TCP on this machine's loopback interface; the \
         client is in the measuring process, on the same processors."
            .into(),
        format!(
            "fsync-delay: nbdkit's filter delay lets each read and write take {DELAY_MS} ms (not a \
             flush). A file takes an fsync of its own: data, the log's blocks, a flush, the commit \
             block."
        ),
        "One thread has a commit, and so a flush, for each file. The kernel's own NBD client is \
         not measured."
            .into(),
    ]
}
