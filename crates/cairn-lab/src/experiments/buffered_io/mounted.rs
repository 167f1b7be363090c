//! The rows as fio jobs through mounts: Cairn, the kernel's ext4 and fuse2fs, on the same image in
//! turn.

use std::path::Path;

use super::measure::{MIB, Sizes};
use super::rows::{self, Durable, Line, Medium, Work};
use crate::error::{Error, Result};
use crate::experiment::{Context, Findings};
use crate::leaving::Scratch;
use crate::mounted::fio::{self, Job};
use crate::mounted::{Available, Mounted, Server, is_installed};
use crate::scale::Scale;
use crate::section::{Builder, Metric};
use crate::volume;

/// Id of the table.
pub(super) const ID: &str = "mounted";
/// Names of the subjects.
pub(super) const CAIRN: &str = "cairn";
pub(super) const PER_BLOCK: &str = "cairn, per block";
pub(super) const KERNEL: &str = "kernel";
pub(super) const FUSE2FS: &str = "fuse2fs";
pub(super) const NOTHING: &str = "nothing";
/// A row that the proposal does not have.
pub(super) const RANDOM: &str = "cached random overwrite 4K";
/// Directory of the images of the ramdisk rows.
pub(super) const TMPFS: &str = "/dev/shm";

/// Adds the table, and notes on what is missing.
pub(super) fn measure(context: &Context, findings: &mut Findings) -> Result<()> {
    let mut available = Available::here(context);
    findings.notes.append(&mut available.missing);
    let sizes = Sizes::of(context.scale);
    let servers = servers(&available, sizes);
    if servers.is_empty() {
        return Ok(());
    }
    if !is_installed("fio") {
        findings
            .notes
            .push("Nothing through mounts: fio is not installed (apt-get install fio).".into());
        return Ok(());
    }
    let metrics = vec![Metric::higher("mib_per_s", "MiB/s"), Metric::higher("iops", "IOPS")];
    let names: Vec<&str> = servers.iter().map(|(name, _)| *name).collect();
    let mut builder = Builder::new(ID, "Through mounts, by fio", &names, metrics);
    let parts = parts(context, sizes)?;
    context.progress.expect(context.repetitions * parts.len() * servers.len());
    for repetition in 0..context.repetitions {
        for part in &parts {
            for (name, server) in
                context.order(repetition, servers.len()).map(|index| &servers[index])
            {
                // This server has no medium, so it is measured once.
                if *name == NOTHING && part.medium == Medium::Disk {
                    continue;
                }
                context.progress.show(&format!("fio on {name}"));
                part.run(server.clone(), |row, figures| builder.add(row, name, &figures))?;
                context.progress.step();
            }
        }
    }
    findings.sections.push(builder.finish());
    findings.notes.push(format!(
        "Through mounts: fio, psync, one job, files of {} MiB, at most {} ms a row; images on \
         {TMPFS} (ramdisk) and in the scratch directory (disk). nothing: a server that stores \
         nothing, what FUSE itself costs. The kernel's write-back is as the system has it: cached \
         rows end before it matters.",
        sizes.file >> 20,
        runtime(context.scale),
    ));
    Ok(())
}

fn servers(available: &Available, sizes: Sizes) -> Vec<(&'static str, Server)> {
    let mut servers = Vec::new();
    if available.fuse2fs {
        servers.push((FUSE2FS, Server::Fuse2fs));
    }
    if available.kernel {
        servers.push((KERNEL, Server::Kernel));
    }
    if let Some(program) = &available.cairn {
        for (name, options) in
            [(CAIRN, super::subjects::LARGE), (PER_BLOCK, super::subjects::PER_BLOCK)]
        {
            let server = Server::Cairn { program: program.clone(), options: options.into() };
            servers.push((name, server));
        }
        let files = vec![
            format!("data={}", sizes.data),
            format!("old={}", sizes.file),
            "hole=64G".to_owned(),
        ];
        servers.push((NOTHING, Server::Nothing { program: program.clone(), files }));
    }
    servers
}

/// Time limit of a job in milliseconds.
fn runtime(scale: Scale) -> u32 {
    scale.pick(60, 200, 5000)
}

/// Jobs that share a mount.
struct Part {
    medium: Medium,
    directory: Scratch,
    global: Vec<String>,
    jobs: Vec<Job>,
}

/// A part for each medium of this machine.
fn parts(context: &Context, sizes: Sizes) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for (medium, scratch) in [(Medium::Ramdisk, Path::new(TMPFS)), (Medium::Disk, &context.scratch)]
    {
        if !scratch.is_dir() {
            continue;
        }
        let directory = Scratch::new(scratch)?;
        std::fs::create_dir(directory.path().join("mnt")).map_err(Error::host(scratch))?;
        let (device, _) = volume::image_file(&directory.path().join("image"), sizes.device)?;
        volume::make(&device, None)?;
        super::measure::fill(&device, sizes)?;
        let is_wanted = |line: &&Line| {
            line.medium == medium && (context.scale != Scale::Quick || line.block == MIB)
        };
        let mut jobs: Vec<Job> =
            rows::all().iter().filter(is_wanted).map(|line| job(line, sizes)).collect();
        if medium == Medium::Ramdisk {
            jobs.push(random(sizes));
        }
        let global = vec![format!("runtime={}ms", runtime(context.scale))];
        parts.push(Part { medium, directory, global, jobs });
    }
    Ok(parts)
}

impl Part {
    fn run(&self, server: Server, mut found: impl FnMut(&str, [(&str, f64); 2])) -> Result<()> {
        let at = |name: &str| self.directory.path().join(name);
        let mounted = Mounted::new(server, &at("image"), &at("mnt"))?;
        let figures = fio::jobs(mounted.point(), self.directory.path(), &self.global, &self.jobs)?;
        mounted.unmount()?;
        for (job, figures) in self.jobs.iter().zip(figures) {
            found(&job.name, [("mib_per_s", figures.mib_per_s), ("iops", figures.iops)]);
        }
        Ok(())
    }
}

fn job(line: &Line, sizes: Sizes) -> Job {
    let mut lines = vec![format!("bs={}", line.block)];
    let mut say = |line: &str| lines.push(line.to_owned());
    let durable = match line.work {
        Work::ReadHole => {
            say("rw=read\nfilename=hole");
            say(&format!("size={}", 4 * sizes.data));
            Durable::Never
        }
        Work::ReadData => {
            // Each size of calls reads another part of the file, which was not read before.
            let third = sizes.data / 3 / MIB as u64 * MIB as u64;
            let part =
                [4 << 10, 64 << 10, MIB].iter().position(|block| *block == line.block).unwrap_or(0);
            say("rw=read\nfilename=data");
            say(&format!("size={third}\noffset={}", third * part as u64));
            Durable::Never
        }
        Work::Append(durable) => {
            say("rw=write\nfilename=new\nunlink=1");
            say(&format!("size={}", sizes.file));
            durable
        }
        Work::Overwrite(durable) => {
            say("rw=write\nfilename=old\noverwrite=1");
            say(&format!("size={}", sizes.file));
            durable
        }
    };
    match durable {
        Durable::Never => {}
        Durable::AtEnd => say("end_fsync=1"),
        Durable::EachWrite => say("fsync=1"),
    }
    Job { name: line.name.clone(), lines }
}

fn random(sizes: Sizes) -> Job {
    let line = format!("bs=4k\nrw=randwrite\nfilename=old\noverwrite=1\nsize={}", sizes.file);
    Job { name: RANDOM.into(), lines: vec![line] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_say_what_their_rows_mean() {
        let sizes = Sizes::of(Scale::Quick);
        let of = |name: &str| {
            let lines = rows::all();
            job(lines.iter().find(|line| line.name == name).unwrap(), sizes).lines.join("\n")
        };
        let sync = of("disk append sync 64K");
        assert!(
            sync.contains("bs=65536") && sync.contains("fsync=1") && !sync.contains("end_fsync"),
            "{sync}"
        );
        assert!(of("ramdisk overwrite write-back 1M").contains("end_fsync=1"));
        assert!(of("hole 4K").contains("filename=hole"));
        let (small, large) = (of("ramdisk 4K"), of("ramdisk 1M"));
        assert!(small.contains("offset=0") && !large.contains("offset=0"), "{small} {large}");
    }
}
