//! Threads that each write and fsync small files on an ext4 volume behind NBD.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::wrap::Stats;

use super::client::{client, connections};
use super::server::Server;
use crate::error::Result;
use crate::experiment::Context;
use crate::fs_mark::{self, Load, SyncMethod};
use crate::section::{Builder, Metric, Section};
use crate::volume;

/// The server answers at once.
pub(super) const ID: &str = "fsync";
/// The server takes its time.
pub(super) const DELAYED: &str = "fsync-delay";
pub(super) const RATE: &str = "files_per_s";
const FLUSHES: &str = "flushes_per_1000";
const THREADS: [usize; 3] = [1, 8, 32];
const CONNECTIONS: [usize; 2] = [2, 1];
const JOURNAL: u64 = 64 << 20;

/// `1 thread`, `8 threads`.
pub(super) fn row(threads: usize) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads") }
}

/// Measures the table of this name.
pub(super) fn measure(context: &Context, server: &Server, id: &str) -> Result<Section> {
    let subjects = CONNECTIONS.map(connections);
    let names: Vec<&str> = subjects.iter().map(String::as_str).collect();
    let metrics = vec![
        Metric::higher(RATE, "files/s"),
        Metric::lower(FLUSHES, "flushes per 1,000 files"),
        Metric::lower("fsync_p99_ms", "fsync p99 ms"),
    ];
    let title = match id {
        DELAYED => "fs_mark -S 1 on ext4 over NBD, each read and write delayed",
        _ => "fs_mark -S 1 on ext4 over NBD",
    };
    let mut builder = Builder::new(id, title, &names, metrics);
    context.progress.expect(context.repetitions * names.len() * THREADS.len());
    for repetition in 0..context.repetitions {
        for threads in THREADS {
            for subject in context.order(repetition, names.len()) {
                context.progress.show(&format!("{}, {}", row(threads), names[subject]));
                let figures = one(context, server, CONNECTIONS[subject], threads)?;
                builder.add(&row(threads), names[subject], &figures);
                context.progress.step();
            }
        }
    }
    Ok(builder.finish())
}

fn one(
    context: &Context,
    server: &Server,
    connections: usize,
    threads: usize,
) -> Result<[(&'static str, f64); 3]> {
    let stats = Arc::new(Stats::new(Arc::new(client(server, connections)?)));
    let device: Arc<dyn BlockDevice> = stats.clone();
    volume::make(&device, Some(JOURNAL))?;
    let volume = volume::open(&device, "")?;
    let load = Load {
        threads,
        // Some seconds, whatever the number of threads.
        files: context.scale.pick(12, 500, 2000),
        size: 4096,
        directories: 16,
        per_directory: 256,
        sync: SyncMethod::BeforeClose,
    };
    let flushes = || {
        let now = stats.snapshot();
        now.flushes + now.preflushes
    };
    let before = flushes();
    let marks = fs_mark::run(&*volume, &load, &|_| {})?;
    let during = flushes() - before;
    volume.unmount()?;
    Ok([
        (RATE, marks.files_per_s()),
        (FLUSHES, 1000.0 * during as f64 / marks.files as f64),
        ("fsync_p99_ms", marks.syncs.value_at_quantile(0.99) as f64 / 1e6),
    ])
}
