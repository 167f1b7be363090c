//! Filesystems at work on the store.

use std::sync::Arc;
use std::time::Instant;

use cairn::FileSystem;
use cairn_base::Ino;
use cairn_block::{BlockDevice, BlockDeviceExt, Bytes};
use cairn_objects::store::{Condition, Store};

use super::disk::{LOCAL_LOG, LOG, OBJECT, close, create, create_logged, device, open};
use super::slow::{Slow, Usage};
use super::zones::ObjectZones;
use crate::error::{Error, Result};
use crate::experiment::Context;
use crate::fs_mark::{self, Load, SyncMethod};
use crate::section::{Builder, Metric, Section};
use crate::volume::{self, OpenFile};

pub(super) const EXT4: &str = "ext4";
pub(super) const F2FS: &str = "f2fs";
pub(super) const FILES_PER_PUT: &str = "files_per_put";
pub(super) const MIB_PER_S: &str = "mib_per_s";
pub(super) const LISTING_REQUESTS: &str = "requests";
/// The store without a volume.
pub(super) const STORE: &str = "store";
/// F2FS on zones that are objects.
const ZONES: &str = "object zones";
const MIB: f64 = 1_048_576.0;
/// Objects that a volume has on their way at once.
const PARALLEL: usize = 4;

/// The name of a row.
pub(super) fn clients(format: &str, threads: usize) -> String {
    format!("{format}, {threads} {}", if threads == 1 { "client" } else { "clients" })
}

fn make(format: &str, device: &Arc<dyn BlockDevice>) -> Result<()> {
    if format == EXT4 { volume::make(device, None) } else { volume::make_f2fs(device) }
}

/// Clients that fsync.
pub(super) fn fsync(context: &Context) -> Result<Section> {
    let metrics = vec![
        Metric::higher("fsyncs_per_s", "fsyncs/s"),
        Metric::higher(FILES_PER_PUT, "fsyncs per PUT"),
        Metric::lower("requests", "requests per fsync"),
        Metric::lower("bytes", "bytes put per fsync"),
        Metric::lower("dollars", "$ per million fsyncs"),
    ];
    let title = "New files of 4 KiB, each with fsync, 20 ms a PUT";
    let mut builder = Builder::new("fsync", title, &[LOG, LOCAL_LOG, ZONES], metrics);
    let cases = [(EXT4, LOG), (EXT4, LOCAL_LOG), (F2FS, LOG), (F2FS, LOCAL_LOG), (F2FS, ZONES)];
    context.progress.expect(context.repetitions * cases.len() * 2);
    for _ in 0..context.repetitions {
        for threads in [1, 32] {
            for (format, subject) in cases {
                context.progress.show(&format!("{}, {subject}", clients(format, threads)));
                let files = context.scale.pick(320, 2048, 8192) / if threads == 1 { 16 } else { 1 };
                let case = (format, subject);
                let figures = clients_at_work(context, case, threads, files / threads)?;
                builder.add(&clients(format, threads), subject, &figures);
                context.progress.step();
            }
        }
    }
    Ok(builder.finish())
}

fn clients_at_work(
    context: &Context,
    (format, subject): (&str, &str),
    threads: usize,
    files: usize,
) -> Result<[(&'static str, f64); 5]> {
    const SIZE: u64 = 512 << 20;
    let store = Arc::new(Slow::default());
    let file = context.scratch.join("object-store-log");
    let below = match subject {
        LOG => Some(create(&store, SIZE)?),
        LOCAL_LOG => Some(create_logged(&store, SIZE, &file)?),
        _ => None,
    };
    let device = match &below {
        Some(volume) => {
            let device = device(volume);
            make(format, &device)?;
            device
        }
        None => ObjectZones::with_f2fs(&store, SIZE)?,
    };
    let filesystem = volume::open(&device, if subject == ZONES { "mode=lfs" } else { "" })?;
    let sync = SyncMethod::BeforeClose;
    let load = Load { threads, files, size: 4096, directories: 4, per_directory: 64, sync };
    let before = store.usage();
    let marks = fs_mark::run(&*filesystem, &load, &|_| {})?;
    let used = store.usage().since(&before);
    filesystem.unmount()?;
    drop((filesystem, device));
    below.map_or(Ok(()), close)?;
    if subject == LOCAL_LOG {
        std::fs::remove_file(&file).map_err(Error::host(&file))?;
    }
    let count = marks.files as f64;
    Ok([
        ("fsyncs_per_s", marks.files_per_s()),
        (FILES_PER_PUT, count / used.puts as f64),
        ("requests", used.requests() as f64 / count),
        ("bytes", used.put_bytes as f64 / count),
        ("dollars", used.dollars() * 1e6 / count),
    ])
}

/// A large file.
pub(super) fn stream(context: &Context) -> Result<Section> {
    let metrics = vec![
        Metric::higher(MIB_PER_S, "MiB/s"),
        Metric::lower("requests", "requests per GiB"),
        Metric::lower("amplification", "bytes put per byte"),
        Metric::lower("dollars", "$ per GiB"),
    ];
    let title = "Written from front to back and flushed once, 20 ms a PUT";
    let mut builder = Builder::new("stream", title, &[STORE, LOG], metrics);
    let bytes = context.scale.pick(32_u64, 512, 1024) << 20;
    let rows = ["device", EXT4, F2FS];
    context.progress.expect(context.repetitions * rows.len());
    for _ in 0..context.repetitions {
        for row in rows {
            context.progress.show(&format!("stream, {row}"));
            // Near it in time, because the machine does other things, too.
            builder.add(row, STORE, &objects_alone(bytes)?);
            builder.add(row, LOG, &stream_to(row, bytes)?);
            context.progress.step();
        }
    }
    Ok(builder.finish())
}

fn stream_figures(bytes: u64, start: Instant, used: &Usage) -> [(&'static str, f64); 4] {
    let gib = bytes as f64 / MIB / 1024.0;
    [
        (MIB_PER_S, bytes as f64 / MIB / start.elapsed().as_secs_f64()),
        ("requests", used.requests() as f64 / gib),
        ("amplification", used.put_bytes as f64 / bytes as f64),
        ("dollars", used.dollars() / gib),
    ]
}

/// What the store takes: whole objects, as many at once as a volume writes.
fn objects_alone(bytes: u64) -> Result<[(&'static str, f64); 4]> {
    let store = Slow::default();
    let count = (bytes / OBJECT) as usize;
    let put = |number: usize| {
        let body = Bytes::from(vec![0x5a; OBJECT as usize]);
        store.put(&format!("log/{number}"), &[body], Condition::IfAbsent)
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..PARALLEL)
            .map(|first| {
                scope.spawn(move || {
                    (first..count).step_by(PARALLEL).try_for_each(|n| put(n).map(drop))
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| Error::Panicked)?.map_err(|error| Error::Device(error.into()))
        })
    })?;
    Ok(stream_figures(bytes, start, &store.usage()))
}

fn stream_to(row: &str, bytes: u64) -> Result<[(&'static str, f64); 4]> {
    const PIECE: u64 = 1 << 20;
    let store = Arc::new(Slow::default());
    let volume = create(&store, bytes + (bytes / 2).max(256 << 20))?;
    let device = device(&volume);
    let piece = vec![0x5a; PIECE as usize];
    let pieces = (0..bytes / PIECE).map(|number| number * PIECE);
    let (start, used);
    if row == "device" {
        let before = store.usage();
        start = Instant::now();
        for at in pieces {
            device.write_at(at, piece.clone())?;
        }
        device.flush()?;
        used = stream_figures(bytes, start, &store.usage().since(&before));
    } else {
        make(row, &device)?;
        let filesystem = volume::open(&device, "")?;
        let before = store.usage();
        start = Instant::now();
        {
            let file = OpenFile::create(&*filesystem, "file")?;
            pieces.into_iter().try_for_each(|at| file.write(at, &piece))?;
            file.fsync()?;
        }
        used = stream_figures(bytes, start, &store.usage().since(&before));
        filesystem.unmount()?;
    }
    drop(device);
    close(volume)?;
    Ok(used)
}

/// The name of the row of `ls -lR`, and of that of opening.
pub(super) fn listing_row(format: &str, what: &str) -> String {
    format!("{format}, {what}")
}

/// `ls -lR` behind a cold cache.
pub(super) fn listing(context: &Context) -> Result<Section> {
    let metrics = vec![
        Metric::lower(LISTING_REQUESTS, "requests"),
        Metric::lower("mib", "MiB read"),
        Metric::lower("seconds", "s"),
        Metric::lower("dollars", "$ per 1,000 times"),
    ];
    let files = context.scale.pick(2000_usize, 20_000, 20_000);
    let title = format!("ls -lR of {files} files of 1 KiB in 200 directories, cold");
    let mut builder = Builder::new("listing", &title, &[LOG], metrics);
    context.progress.expect(2);
    for format in [EXT4, F2FS] {
        context.progress.show(&format!("listing, {format}"));
        let store = Arc::new(Slow::default());
        fill(&store, format, files)?;
        for _ in 0..context.repetitions {
            let (before, start) = (store.usage(), Instant::now());
            let shared: Arc<dyn Store> = store.clone();
            let volume = open(&shared)?;
            let device = device(&volume);
            let filesystem = volume::open(&device, "")?;
            let add = |builder: &mut Builder, what: &str, before: &Usage, start: Instant| {
                let used = store.usage().since(before);
                let figures = [
                    (LISTING_REQUESTS, used.requests() as f64),
                    ("mib", used.get_bytes as f64 / MIB),
                    ("seconds", start.elapsed().as_secs_f64()),
                    ("dollars", used.dollars() * 1000.0),
                ];
                builder.add(&listing_row(format, what), LOG, &figures);
            };
            add(&mut builder, "mount", &before, start);
            let (before, start) = (store.usage(), Instant::now());
            let seen = list(&*filesystem, filesystem.root())?;
            add(&mut builder, "ls -lR", &before, start);
            if seen < files {
                return Err(Error::Program(format!("{seen} files of {files} are listed")));
            }
            filesystem.unmount()?;
            drop((filesystem, device));
            close(volume)?;
        }
        context.progress.step();
    }
    Ok(builder.finish())
}

fn fill(store: &Arc<Slow>, format: &str, files: usize) -> Result<()> {
    let volume = create(store, 2 << 30)?;
    let device = device(&volume);
    make(format, &device)?;
    let filesystem = volume::open(&device, "")?;
    let per_directory = (files / 200).max(1);
    let sync = SyncMethod::Never;
    let load = Load { threads: 1, files, size: 1024, directories: 200, per_directory, sync };
    fs_mark::run(&*filesystem, &load, &|_| {})?;
    filesystem.unmount()?;
    drop((filesystem, device));
    close(volume)
}

/// Looks at every file below a directory. Returns how many there are.
fn list(filesystem: &dyn FileSystem, directory: Ino) -> Result<usize> {
    let mut names = Vec::new();
    filesystem.readdir(directory, 0, &mut |entry| {
        if !matches!(&*entry.name, b"." | b"..") {
            names.push(entry.name.to_vec());
        }
        true
    })?;
    let mut seen = 0;
    for name in names {
        let found = filesystem.lookup(directory, &name)?;
        seen += match found.kind {
            cairn::FileKind::Directory => list(filesystem, found.ino)?,
            _ => 1,
        };
        filesystem.forget(found.ino, 1);
    }
    Ok(seen)
}
