//! The work: programs and system calls on a mounted directory.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{Advice, fadvise};

use super::sizes::Sizes;
use crate::error::{Error, Result};
use crate::fs_mark::{Load, SyncMethod, program};
use crate::mounted::{command, run};

pub(super) const MARK_0_1: &str = "fs_mark -S 0 -t 1, files/s";
pub(super) const MARK_0_8: &str = "fs_mark -S 0 -t 8, files/s";
pub(super) const MARK_1_1: &str = "fs_mark -S 1 -t 1, files/s";
pub(super) const MARK_1_8: &str = "fs_mark -S 1 -t 8, files/s";
pub(super) const WRITE: &str = "1 MiB sequential write, MiB/s";
pub(super) const READ: &str = "1 MiB cold read, MiB/s";
pub(super) const OVERWRITE: &str = "4K overwrite + fsync, 1/s";
pub(super) const COPY: &str = "cp -a, files/s";
pub(super) const LIST: &str = "ls -lR, files/s";
pub(super) const EXTRACT: &str = "tar x, files/s";
pub(super) const REMOVE: &str = "rm -rf, files/s";
pub(super) const CREATE: &str = "create in one directory, files/s";
pub(super) const RENAME: &str = "rename, files/s";
pub(super) const UNLINK: &str = "unlink, files/s";

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
/// Blocks of the file that is overwritten.
const BLOCKS: u64 = 4096;
/// Files in a directory of the tree.
const PER_DIRECTORY: usize = 100;

/// What a case did.
pub(super) struct Done {
    /// Files, blocks or MiB.
    pub(super) count: f64,
    pub(super) seconds: f64,
}

/// A case.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) run: fn(&Place) -> Result<Done>,
    /// It measures what is not in memory: the image is mounted again before it.
    pub(super) cold: bool,
    /// The program that it runs.
    pub(super) program: Option<&'static str>,
}

const fn case(name: &'static str, run: fn(&Place) -> Result<Done>) -> Case {
    Case { name, run, cold: false, program: None }
}

const fn mark(name: &'static str, run: fn(&Place) -> Result<Done>) -> Case {
    Case { name, run, cold: false, program: Some("fs_mark") }
}

/// All cases. Those of a group share a fresh image, in their order.
pub(super) const GROUPS: [&[Case]; 4] = [
    &[
        mark(MARK_0_1, |place| place.mark(SyncMethod::Never, 1)),
        mark(MARK_0_8, |place| place.mark(SyncMethod::Never, 8)),
        mark(MARK_1_1, |place| place.mark(SyncMethod::BeforeClose, 1)),
        mark(MARK_1_8, |place| place.mark(SyncMethod::BeforeClose, 8)),
    ],
    &[case(WRITE, Place::write), case(READ, Place::read), case(OVERWRITE, Place::overwrite)],
    &[
        case(COPY, Place::copy),
        Case { cold: true, ..case(LIST, Place::list) },
        case(EXTRACT, Place::extract),
        case(REMOVE, Place::remove),
    ],
    &[case(CREATE, Place::create), case(RENAME, Place::rename), case(UNLINK, Place::unlink)],
];

/// A mounted directory, and what the cases need besides.
pub(super) struct Place {
    pub(super) mount: PathBuf,
    /// A directory outside of the mount, with the tree that is copied.
    pub(super) outside: PathBuf,
    pub(super) sizes: Sizes,
}

/// Makes the tree that is copied, and an archive of it.
pub(super) fn prepare(outside: &Path, files: usize) -> Result<()> {
    let data = [0x61; BLOCK];
    for file in 0..files {
        let directory = outside.join("tree").join(format!("d{:04}", file / PER_DIRECTORY));
        if file % PER_DIRECTORY == 0 {
            fs::create_dir_all(&directory).map_err(Error::host(&directory))?;
        }
        let path = directory.join(format!("f{file:06}"));
        fs::write(&path, data).map_err(Error::host(&path))?;
    }
    run(command("tar")
        .arg("-C")
        .arg(outside)
        .args(["-cf"])
        .arg(outside.join("tree.tar"))
        .arg("tree"))
    .map(drop)
}

fn timed(count: f64, work: impl FnOnce() -> Result<()>) -> Result<Done> {
    let start = Instant::now();
    work()?;
    Ok(Done { count, seconds: start.elapsed().as_secs_f64() })
}

impl Place {
    fn at(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }

    fn mark(&self, sync: SyncMethod, threads: usize) -> Result<Done> {
        let files = if sync == SyncMethod::Never { self.sizes.files } else { self.sizes.synced };
        let load = Load {
            threads,
            files: files / threads,
            size: BLOCK,
            directories: 16,
            per_directory: 256,
            sync,
        };
        let own = self.at(&format!("{}-{threads}", sync as usize));
        fs::create_dir(&own).map_err(Error::host(&own))?;
        let rate = program::files_per_s(&own, &self.outside, &load)?;
        let count = (files / threads * threads) as f64;
        Ok(Done { count, seconds: count / rate })
    }

    fn write(&self) -> Result<Done> {
        let (path, data) = (self.at("stream"), vec![0x61; MIB]);
        timed(self.sizes.stream as f64, || {
            let mut file = File::create(&path).map_err(Error::host(&path))?;
            for _ in 0..self.sizes.stream {
                file.write_all(&data).map_err(Error::host(&path))?;
            }
            file.sync_all().map_err(Error::host(&path))
        })
    }

    fn read(&self) -> Result<Done> {
        let (path, mut data) = (self.at("stream"), vec![0; MIB]);
        let mut file = File::open(&path).map_err(Error::host(&path))?;
        fadvise(&file, 0, None, Advice::DontNeed)
            .map_err(|error| Error::host(&path)(error.into()))?;
        timed(self.sizes.stream as f64, || {
            for _ in 0..self.sizes.stream {
                file.read_exact(&mut data).map_err(Error::host(&path))?;
            }
            Ok(())
        })
    }

    fn overwrite(&self) -> Result<Done> {
        let path = self.at("blocks");
        let old = vec![0x61; BLOCKS as usize * BLOCK];
        fs::write(&path, &old).map_err(Error::host(&path))?;
        let mut file = File::options().write(true).open(&path).map_err(Error::host(&path))?;
        file.sync_all().map_err(Error::host(&path))?;
        timed(self.sizes.overwrites as f64, || {
            for number in 0..self.sizes.overwrites as u64 {
                // A prime, so that no block comes twice before all have come once.
                let block = number * 2741 % BLOCKS;
                file.seek(SeekFrom::Start(block * BLOCK as u64)).map_err(Error::host(&path))?;
                file.write_all(&old[..BLOCK]).map_err(Error::host(&path))?;
                file.sync_data().map_err(Error::host(&path))?;
            }
            Ok(())
        })
    }

    fn copy(&self) -> Result<Done> {
        timed(self.sizes.tree as f64, || {
            run(command("cp").arg("-a").arg(self.outside.join("tree")).arg(self.at("copy")))
                .map(drop)
        })
    }

    fn list(&self) -> Result<Done> {
        timed(self.sizes.tree as f64, || {
            run(command("ls").arg("-lR").arg(self.at("copy"))).map(drop)
        })
    }

    fn extract(&self) -> Result<Done> {
        timed(self.sizes.tree as f64, || {
            let archive = self.outside.join("tree.tar");
            run(command("tar").arg("-xf").arg(archive).arg("-C").arg(&self.mount)).map(drop)
        })
    }

    fn remove(&self) -> Result<Done> {
        timed(self.sizes.tree as f64, || {
            run(command("rm").arg("-rf").arg(self.at("tree"))).map(drop)
        })
    }

    fn each_name(&self, work: impl Fn(PathBuf, PathBuf) -> std::io::Result<()>) -> Result<Done> {
        timed(self.sizes.names as f64, || {
            (0..self.sizes.names).try_for_each(|number| {
                let old = self.at(&format!("many/file-{number:06}"));
                work(old.clone(), self.at(&format!("many/renamed-{number:06}")))
                    .map_err(Error::host(old))
            })
        })
    }

    fn create(&self) -> Result<Done> {
        let many = self.at("many");
        fs::create_dir(&many).map_err(Error::host(&many))?;
        self.each_name(|old, _| File::create(old).map(drop))
    }

    fn rename(&self) -> Result<Done> {
        self.each_name(fs::rename)
    }

    fn unlink(&self) -> Result<Done> {
        self.each_name(|_, new| fs::remove_file(new))
    }
}
