//! Linux's own ext4 beside Cairn on the same storage, in real time.
//!
//! The storage is a file of a FUSE server that takes its time ([`crate::media`]), behind a loop
//! device. Cairn works in this process on memory that takes the same time.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::memory::MemoryDevice;

use super::subjects::{JOURNALS, OFF, ON};
use crate::clock::Real;
use crate::error::{Error, Result};
use crate::experiment::Context;
use crate::fs_mark::{self, Load, SyncMethod, program};
use crate::leaving::Scratch;
use crate::media::{self, Medium, OnMedium};
use crate::mounted::{Available, Mounted, Server, is_installed};
use crate::section::{Builder, Metric, Section};
use crate::volume::{self, growth};

const LINUX: &str = "Linux";
/// Bytes of the storage. Its memory is used as far as it is written.
const SIZE: u64 = 1 << 30;
/// Modes in which the journal fills.
const MODES: [SyncMethod; 2] = [SyncMethod::BeforeClose, SyncMethod::Reverse];

/// Measures the table. Without what Linux needs, the reasons are added to the notes.
pub(super) fn measure(context: &Context, notes: &mut Vec<String>) -> Result<Option<Section>> {
    let available = Available::here(context);
    let (Some(server), true) = (available.cairn, available.kernel) else {
        notes.push(format!("Linux on the same storage: {}", available.missing.join(" ")));
        return Ok(None);
    };
    if !is_installed("fs_mark") {
        notes.push(
            "Linux on the same storage: fs_mark is not installed (apt-get install fsmark).".into(),
        );
        return Ok(None);
    }
    let metrics = vec![
        Metric::higher("files_per_s", "files/s"),
        Metric::lower("transactions", "transactions"),
    ];
    let (name, journal) = JOURNALS[0];
    let title = format!("Linux and Cairn on the same storage, in real time; journal of {name}");
    let mut builder = Builder::new("linux", &title, &[LINUX, OFF, ON], metrics);
    // A second of an SD card takes a second here: a quick run takes the quickest alone.
    let media = context.scale.pick(&media::ALL[media::ALL.len() - 1..], &media::ALL, &media::ALL);
    context.progress.expect(media.len() * MODES.len());
    for medium in media.iter().copied() {
        for sync in MODES {
            let row = format!("{}, -S {}", medium.title, sync as usize);
            context.progress.show(&row);
            let load = load(context, sync);
            let linux = Server::Storage { program: server.clone(), medium: medium.id, size: SIZE };
            builder.add(&row, LINUX, &on_linux(context, linux, journal, &load)?);
            for option in [OFF, ON] {
                builder.add(&row, option, &in_process(medium, journal, option, &load)?);
            }
            context.progress.step();
        }
    }
    notes.push(
        "Linux on the same storage: a loop device on a file of a FUSE server that takes the time \
         of the storage; what FUSE and the loop device need comes on top, and counts on NVMe. Its \
         fs_mark is the unmodified program. Cairn works in one process, and the options on and off \
         follow each other."
            .to_owned(),
    );
    Ok(Some(builder.finish()))
}

fn load(context: &Context, sync: SyncMethod) -> Load {
    let files = context.scale.pick(4, 60, 250);
    Load { threads: 32, files, size: 4096, directories: 16, per_directory: 256, sync }
}

fn on_linux(
    context: &Context,
    storage: Server,
    journal: u64,
    load: &Load,
) -> Result<Vec<(&'static str, f64)>> {
    let directory = Scratch::new(&context.scratch)?;
    let [slow, point] = ["storage", "mnt"].map(|name| directory.path().join(name));
    for path in [&slow, &point] {
        std::fs::create_dir(path).map_err(Error::host(path))?;
    }
    let storage = Mounted::new(storage, &slow, &slow)?;
    let data = slow.join("data");
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(&data, OpenOptions::write())?);
    volume::make(&device, Some(journal))?;
    drop(device);
    let mounted = Mounted::new(Server::Kernel, &data, &point)?;
    let before = transactions(&point);
    let mut figures =
        vec![("files_per_s", program::files_per_s(mounted.point(), directory.path(), load)?)];
    let grown = transactions(&point).zip(before).map(|(after, before)| after - before);
    figures.extend(grown.map(|count| ("transactions", count)));
    mounted.unmount()?;
    storage.unmount()?;
    Ok(figures)
}

/// The transactions of the mount's journal so far, by the kernel.
fn transactions(point: &std::path::Path) -> Option<f64> {
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let device = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let device = words.next()?;
        (words.next()? == point.to_str()?).then(|| device.rsplit('/').next())?
    })?;
    let journals = std::fs::read_dir("/proc/fs/jbd2").ok()?;
    let journal = journals
        .filter_map(std::result::Result::ok)
        .find(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{device}-")))?;
    let info = std::fs::read_to_string(journal.path().join("info")).ok()?;
    info.split_whitespace().next()?.parse().ok()
}

fn in_process(
    medium: Medium,
    journal: u64,
    option: &str,
    load: &Load,
) -> Result<Vec<(&'static str, f64)>> {
    let memory: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(SIZE));
    volume::make(&memory, Some(journal))?;
    let paced = Arc::new(OnMedium::new(memory, medium, Arc::new(Real::new())));
    let device: Arc<dyn BlockDevice> = paced.clone();
    let volume = volume::open(&device, option)?;
    let before = volume.report();
    let marks = fs_mark::run(&*volume, load, &|_| {})?;
    let after = volume.report();
    paced.stop();
    volume.unmount()?;
    let transactions = growth(&before, &after, "journal.transactions").unwrap_or(0.0);
    Ok(vec![("files_per_s", marks.files_per_s()), ("transactions", transactions)])
}
