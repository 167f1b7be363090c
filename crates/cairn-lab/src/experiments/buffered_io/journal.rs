//! Blocks written to the journal for each MiB appended, for Cairn in this process and for the
//! kernel's jbd2.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::measure::{Bench, MIB};
use super::mounted;
use super::subjects::{LARGE, PER_BLOCK};
use crate::error::{Error, Result};
use crate::experiment::{Context, Findings};
use crate::leaving::Scratch;
use crate::mounted::{Available, Mounted, Server};
use crate::section::{Builder, Metric};
use crate::volume::{self, OpenFile, growth};

/// Id of the table.
pub(super) const ID: &str = "journal";
/// Its metric.
pub(super) const BLOCKS: &str = "journal_blocks_per_mib";
/// Its rows: bytes of a write, and whether each write is made durable.
pub(super) const ROWS: [(&str, usize, bool); 4] = [
    ("append write-back 64K", 64 << 10, false),
    ("append write-back 1M", MIB, false),
    ("append sync 64K", 64 << 10, true),
    ("append sync 1M", MIB, true),
];

/// Measures at most two repetitions: only timers change the counts.
pub(super) fn measure(context: &Context, bench: &Bench, findings: &mut Findings) -> Result<()> {
    let has_kernel = Available::here(context).kernel;
    let subjects: &[&str] =
        if has_kernel { &[mounted::KERNEL, PER_BLOCK, LARGE] } else { &[PER_BLOCK, LARGE] };
    let metrics = vec![Metric::lower(BLOCKS, "journal blocks/MiB")];
    let mut builder = Builder::new(ID, "Journal blocks for each MiB appended", subjects, metrics);
    // A row that waits for each write gets a quarter of the work.
    let bytes_of = |sync: bool| if sync { bench.sizes().file / 4 } else { bench.sizes().file };
    context.progress.expect(ROWS.len());
    for (row, block, sync) in ROWS {
        context.progress.show(row);
        let bytes = bytes_of(sync);
        for repetition in 0..context.repetitions.min(2) {
            for subject in context.order(repetition, subjects.len()).map(|index| subjects[index]) {
                let blocks = if subject == mounted::KERNEL {
                    measure_kernel(context, bench, block, bytes, sync)?
                } else {
                    Some(measure_cairn(bench, subject, block, bytes, sync)?)
                };
                if let Some(blocks) = blocks {
                    builder.add(row, subject, &[(BLOCKS, blocks * MIB as f64 / bytes as f64)]);
                }
            }
        }
        context.progress.step();
    }
    findings.sections.push(builder.finish());
    Ok(())
}

fn measure_cairn(bench: &Bench, option: &str, block: usize, bytes: u64, sync: bool) -> Result<f64> {
    let volume = volume::open(bench.ramdisk(), option)?;
    let file = OpenFile::create(&*volume, "appended")?;
    volume.sync()?;
    let before = volume.report();
    let piece = vec![0x77; block];
    for index in 0..bytes / block as u64 {
        file.write(index * block as u64, &piece)?;
        if sync {
            file.fsync()?;
        }
    }
    file.fsync()?;
    let blocks = growth(&before, &volume.report(), "journal.log_blocks");
    drop(file);
    volume.unlink(volume.root(), b"appended")?;
    volume.unmount()?;
    blocks.ok_or_else(|| Error::Program("the volume has no journal".into()))
}

/// Reads jbd2's own statistics. They lack the commit block of each transaction, which is added
/// here. They give the mean in whole blocks, so the figure is up to one block a transaction too
/// low.
fn measure_kernel(
    context: &Context,
    bench: &Bench,
    block: usize,
    bytes: u64,
    sync: bool,
) -> Result<Option<f64>> {
    // The counts do not depend on the medium.
    let tmpfs = Path::new(mounted::TMPFS);
    let scratch = if tmpfs.is_dir() { tmpfs } else { &context.scratch };
    let directory = Scratch::new(scratch)?;
    let (image, point) = (directory.path().join("image"), directory.path().join("mnt"));
    std::fs::create_dir(&point).map_err(Error::host(&point))?;
    volume::make(&volume::image_file(&image, bench.sizes().device)?.0, None)?;
    let mounted = Mounted::new(Server::Kernel, &image, &point)?;
    let name = point.join("appended");
    let mut file = File::create(&name).map_err(Error::host(&name))?;
    file.sync_all().map_err(Error::host(&name))?;
    let before = jbd2(&point);
    let piece = vec![0x77; block];
    for _ in 0..bytes / block as u64 {
        file.write_all(&piece).map_err(Error::host(&name))?;
        if sync {
            file.sync_all().map_err(Error::host(&name))?;
        }
    }
    file.sync_all().map_err(Error::host(&name))?;
    drop(file);
    let blocks = before.zip(jbd2(&point)).map(|(before, after)| after - before);
    mounted.unmount()?;
    Ok(blocks)
}

/// Number of blocks that the journal of the mounted volume has logged.
fn jbd2(point: &Path) -> Option<f64> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let point = point.canonicalize().ok()?;
    let mut mounts = mounts.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = mounts.find(|words| words.get(1).is_some_and(|word| Path::new(word) == point))?;
    let device = mount.first()?.strip_prefix("/dev/")?;
    let journal = std::fs::read_dir("/proc/fs/jbd2").ok()?.flatten();
    let own = journal.map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.strip_prefix(device).is_some_and(|rest| rest.starts_with('-'))
    });
    logged(&std::fs::read_to_string(own?.join("info")).ok()?)
}

/// Transactions multiplied by the logged blocks of each and its commit block.
fn logged(info: &str) -> Option<f64> {
    let number = |line: &str| line.trim().split(' ').next()?.parse::<f64>().ok();
    let transactions = number(info.lines().next()?)?;
    let each =
        info.lines().find(|line| line.contains("logged blocks per transaction")).and_then(number);
    Some(if transactions == 0.0 { 0.0 } else { transactions * (each? + 1.0) })
}

#[cfg(test)]
mod tests {
    use super::logged;

    #[test]
    fn the_kernels_statistics_are_read() {
        let info = "12 transactions (11 requested), each up to 1365 blocks\naverage: \n  0ms \
            waiting for transaction\n  3 handles per transaction\n  5 blocks per transaction\n  6 \
            logged blocks per transaction\n";
        assert_eq!(logged(info), Some(84.0));
        assert_eq!(logged("0 transactions (0 requested), each up to 1365 blocks\n"), Some(0.0));
        assert_eq!(logged(""), None);
    }
}
