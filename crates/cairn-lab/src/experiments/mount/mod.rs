//! `mount`: Cairn's mounts against the kernel's ext4, fuse2fs, and an empty server, which shows
//! what FUSE itself costs.

mod cases;
mod goals;
mod sizes;
mod subjects;

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result};
use crate::experiment::{Context, Experiment, Findings};
use crate::leaving::Scratch;
use crate::mounted::used::Used;
use crate::mounted::{Mounted, is_installed};
use crate::section::{Builder, Metric};
use crate::volume;
use cases::{Case, GROUPS, Place, prepare};
use sizes::Sizes;
use subjects::{KERNEL, Subject};

/// The entry in [`crate::experiments`].
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "mount",
    question: "How near is a mount to the kernel's ext4, and to the least that FUSE costs?",
    run,
    about: None,
};

/// Directory of the images, if it is there.
const TMPFS: &str = "/dev/shm";

/// Figures of one subject in one case.
type Figures = Vec<(&'static str, f64)>;

fn run(context: &Context) -> Result<Findings> {
    let mut findings = Findings::default();
    let tmpfs = Path::new(TMPFS);
    let scratch = if tmpfs.is_dir() { tmpfs } else { &*context.scratch };
    let subjects = subjects::all(context, scratch, &mut findings)?;
    if !subjects.is_empty() {
        measure(context, scratch, &subjects, &mut findings)?;
    }
    findings.goals = goals::all(&findings.sections);
    Ok(findings)
}

fn measure(
    context: &Context,
    scratch: &Path,
    subjects: &[Subject],
    findings: &mut Findings,
) -> Result<()> {
    let sizes = Sizes::of(context.scale);
    let directory = Scratch::new(scratch)?;
    prepare(directory.path(), sizes.tree)?;
    let names: Vec<&str> = subjects.iter().map(|subject| subject.name).collect();
    let mut builder = Builder::new(subjects::ID, "Through mounts, in turn", &names, metrics());
    findings.notes.extend(notes(scratch, sizes));
    let groups = groups(findings);
    context.progress.expect(context.repetitions * groups.len() * subjects.len());
    for repetition in 0..context.repetitions {
        for group in &groups {
            let mut found: BTreeMap<(usize, usize), Figures> = BTreeMap::new();
            for number in context.order(repetition, subjects.len()) {
                let subject = &subjects[number];
                context.progress.show(&format!("{}: {}", subject.name, group[0].name));
                for (case, figures) in one(subject, group, directory.path(), sizes)? {
                    found.insert((case, number), figures);
                }
                context.progress.step();
            }
            relate(&mut found, subjects);
            for ((case, number), figures) in found {
                builder.add(group[case].name, subjects[number].name, &figures);
            }
        }
    }
    findings.sections.push(builder.finish());
    Ok(())
}

fn metrics() -> Vec<Metric> {
    vec![
        Metric::higher("rate", "rate"),
        Metric::higher("of_empty", "÷ empty"),
        Metric::lower("cpu_us", "CPU µs"),
        Metric::lower("cpu_of_empty", "CPU ÷ empty"),
        Metric::lower("client_us", "client µs"),
        Metric::lower("server_us", "server µs"),
        Metric::lower("requests", "requests"),
        Metric::lower("switches", "switches"),
        Metric::lower("faults", "server faults"),
        Metric::lower("client_faults", "client faults"),
        Metric::lower("copied", "copied KiB"),
    ]
}

fn notes(scratch: &Path, sizes: Sizes) -> Vec<String> {
    vec![
        format!(
            "Images of {} MiB in {}. fs_mark: {} files of 4 KiB without and {} with fsync; {} MiB \
             in order; {} blocks; a tree of {} files of 4 KiB in directories of 100; {} files in \
             one directory. × is to {KERNEL}.",
            sizes.image >> 20,
            scratch.display(),
            sizes.files,
            sizes.synced,
            sizes.stream,
            sizes.overwrites,
            sizes.tree,
            sizes.names
        ),
        "empty: answers from a hash table of names and stores no data, by one thread or by one for \
         each ring, with the requests that Cairn gets by default. fewest: without \
         default_permissions; open, close and extended attributes cost no request. keeps: data is \
         kept in memory. ÷ empty is to the empty server with the requests of the default options \
         on the same transport."
            .into(),
        "For each file, block or MiB: CPU µs of the client's processes and of the server's, \
         requests that the server got, changes of context of both, page faults of the server and \
         of the client's processes, KiB that Cairn copied between requests and its cache. The \
         processor time of the kernel's own threads (loop device, write-back) is in no figure."
            .into(),
    ]
}

/// The cases whose programs are installed.
fn groups(findings: &mut Findings) -> Vec<Vec<&'static Case>> {
    let mut missing = Vec::new();
    let can_run = |case: &&Case, missing: &mut Vec<&str>| match case.program {
        Some(program) if !is_installed(program) => {
            missing.push(program);
            false
        }
        _ => true,
    };
    let groups: Vec<Vec<&Case>> = GROUPS
        .iter()
        .map(|group| group.iter().filter(|case| can_run(case, &mut missing)).collect())
        .filter(|group: &Vec<&Case>| !group.is_empty())
        .collect();
    missing.dedup();
    for program in missing {
        let text = format!("No rows of {program}: it is not installed (scripts/install-deps).");
        findings.notes.push(text);
    }
    groups
}

/// Runs the cases of a group on a fresh image. The figures come with the number of the case.
fn one(
    subject: &Subject,
    group: &[&Case],
    outside: &Path,
    sizes: Sizes,
) -> Result<Vec<(usize, Figures)>> {
    let own = Scratch::new(outside)?;
    let (image, point) = (own.path().join("image"), own.path().join("mnt"));
    std::fs::create_dir(&point).map_err(Error::host(&point))?;
    if subject.keeps {
        let device = volume::image_file(&image, sizes.image)?.0;
        if subject.is_f2fs { volume::make_f2fs(&device)? } else { volume::make(&device, None)? }
    }
    let mut mounted = Mounted::new(subject.server.clone(), &image, &point)?;
    let mut found = Vec::new();
    for (number, case) in group.iter().enumerate() {
        if case.cold {
            if !subject.keeps {
                continue;
            }
            mounted.unmount()?;
            mounted = Mounted::new(subject.server.clone(), &image, &point)?;
        }
        let place = Place { mount: point.clone(), outside: outside.to_owned(), sizes };
        found.push((number, figures(&mounted, case, &place)?));
        // What a case has left to be written is not charged to the next one.
        let root = std::fs::File::open(&point).map_err(Error::host(&point))?;
        rustix::fs::syncfs(&root).map_err(|error| Error::host(&point)(error.into()))?;
    }
    mounted.unmount()?;
    Ok(found)
}

fn figures(mounted: &Mounted, case: &Case, place: &Place) -> Result<Figures> {
    let server = mounted.used()?;
    let client = Used::by_clients()?;
    let done = (case.run)(place)?;
    let client = Used::by_clients()?.since(client);
    let server = mounted.used()?.since(server);
    let each = |sum: u64| sum as f64 / done.count;
    let (client_us, server_us) = (each(client.processor) / 1e3, each(server.processor) / 1e3);
    let mut figures = vec![
        ("rate", done.count / done.seconds),
        ("cpu_us", client_us + server_us),
        ("client_us", client_us),
        ("server_us", server_us),
        ("switches", each(client.switches + server.switches)),
        ("client_faults", each(client.faults)),
    ];
    if mounted.has_server() {
        figures.push(("faults", each(server.faults)));
    }
    figures.extend(server.requests.map(|requests| ("requests", each(requests))));
    figures.extend(server.copied.map(|bytes| ("copied", each(bytes) / 1024.0)));
    Ok(figures)
}

/// Adds the ratios to the empty server that gets the same requests on the same transport.
fn relate(found: &mut BTreeMap<(usize, usize), Figures>, subjects: &[Subject]) {
    let figure = |figures: &Figures, wanted: &str| {
        figures.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
    };
    let absolute = found.clone();
    for ((case, number), figures) in found.iter_mut() {
        let empty = subjects.iter().position(|subject| subject.name == subjects[*number].empty);
        let Some(base) = empty.and_then(|empty| absolute.get(&(*case, empty))) else { continue };
        for (metric, ratio) in [("rate", "of_empty"), ("cpu_us", "cpu_of_empty")] {
            let pair = figure(figures, metric).zip(figure(base, metric));
            if let Some((own, base)) = pair.filter(|(_, base)| *base > 0.0) {
                figures.push((ratio, own / base));
            }
        }
    }
}
