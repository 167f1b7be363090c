//! A volume: opened, closed, and the calls that take a path. Its class in Python is
//! `cairn.Volume`.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cairn::fs::OpenOptions;
use cairn::{CheckProgress, FileKind, Format, ImageSpec, MkfsOptions, NewInode, Timestamp};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::file::{File, Open};
use crate::stat::{Stat, stat_of};
use crate::{errors, work};

/// An open volume.
#[pyclass(frozen, module = "cairn._cairn")]
pub(crate) struct Volume {
    open: Mutex<Option<Arc<cairn::Volume>>>,
    /// As it was opened, for errors.
    image: PathBuf,
    writes: bool,
    #[pyo3(get)]
    format: &'static str,
}

fn spec(image: &Path) -> PyResult<ImageSpec> {
    if image.as_os_str().as_bytes().contains(&0) {
        // As the builtin open() says it.
        return Err(PyValueError::new_err("embedded null byte"));
    }
    ImageSpec::parse(image.as_ref()).map_err(errors::of_image)
}

/// Opens a volume: mode `r`, `rw` or `ephemeral`.
#[pyfunction]
pub(crate) fn open(
    py: Python<'_>,
    image: PathBuf,
    mode: &str,
    mount_options: String,
) -> PyResult<Volume> {
    let defaults =
        cairn::OpenOptions { mount_options, must_write: true, ..cairn::OpenOptions::default() };
    let options = match mode {
        "r" => cairn::OpenOptions { read_only: true, ..defaults },
        "rw" => defaults,
        "ephemeral" => cairn::OpenOptions { ephemeral: true, ..defaults },
        _ => return Err(PyValueError::new_err("mode is 'r', 'rw' or 'ephemeral'")),
    };
    let spec = spec(&image)?;
    let volume = py.detach(|| cairn::open(&spec, &options)).map_err(errors::of_image)?;
    let format = volume.format().name();
    let open = Mutex::new(Some(Arc::new(volume)));
    Ok(Volume { open, image, writes: mode == "rw", format })
}

/// Makes a volume.
#[pyfunction]
pub(crate) fn mkfs(
    py: Python<'_>,
    image: PathBuf,
    format: &str,
    size: Option<u64>,
    label: Option<String>,
    overwrite: bool,
) -> PyResult<()> {
    let format = Format::from_name(format)
        .ok_or_else(|| PyValueError::new_err("format is 'ext4' or 'f2fs'"))?;
    if label.as_ref().is_some_and(|label| label.contains('\0')) {
        return Err(PyValueError::new_err("embedded null byte in the label"));
    }
    let options = MkfsOptions { size, label, overwrite, ..MkfsOptions::new(format) };
    let spec = spec(&image)?;
    py.detach(|| cairn::mkfs(&spec, &options)).map(drop).map_err(errors::of_image)
}

/// The defects of a volume, in words. `progress` is called with the part that is checked, the
/// number of the phase, of all phases, of the steps that are done and of all. What it raises, or a
/// signal's handler, ends the check.
#[pyfunction]
pub(crate) fn check(
    py: Python<'_>,
    image: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<String>> {
    let spec = spec(&image)?;
    let (mut told, mut raised) = (None, None);
    let mut watch = |now: CheckProgress| {
        let hears = progress.as_ref().filter(|_| now.phase.number > 0 && told != Some(now));
        told = Some(now);
        let done = Python::attach(|py| {
            py.check_signals()?;
            let phase = now.phase;
            let call = (phase.what, phase.number, phase.of, now.done, phase.total);
            hears.map_or(Ok(()), |progress| progress.call1(py, call).map(drop))
        });
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                raised = Some(error);
                ControlFlow::Break(())
            }
        }
    };
    let checked = py.detach(|| cairn::check_watched(&spec, &[], &mut watch));
    if let Some(error) = raised {
        return Err(error);
    }
    let report = checked.map_err(errors::of_image)?.report;
    Ok(report.findings.iter().map(ToString::to_string).collect())
}

impl Volume {
    /// The volume, for a call on this path.
    fn get(&self, path: &[u8]) -> PyResult<Arc<cairn::Volume>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let volume = open.clone().ok_or_else(|| errors::closed("volume"))?;
        match volume.is_here() {
            true => Ok(volume),
            false => Err(errors::named(1, cairn::Volume::FORKED, path)),
        }
    }

    fn at<T: Send>(
        &self,
        py: Python<'_>,
        path: &[u8],
        call: impl FnOnce(&cairn::Volume) -> std::io::Result<T> + Send,
    ) -> PyResult<T> {
        let volume = self.get(path)?;
        work::on(py, &volume, || call(&volume)).map_err(errors::at(path))
    }
}

#[pymethods]
impl Volume {
    /// Writes everything and closes it. Again is allowed. With `lets_go` what still uses the volume
    /// closes it at its end.
    fn close(&self, py: Python<'_>, lets_go: bool) -> PyResult<()> {
        let image = self.image.as_os_str().as_bytes();
        let mut place = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(volume) = place.take() else { return Ok(()) };
        if !volume.is_here() {
            return Ok(());
        }
        match Arc::try_unwrap(volume) {
            Ok(volume) => {
                drop(place);
                let closed = py.detach(|| volume.close());
                closed.map_err(|error| errors::at(image)(error.into()))
            }
            // The last of its files lets it go.
            Err(_) if lets_go || !self.writes => Ok(()),
            Err(volume) => {
                *place = Some(volume);
                let what = "files of the volume are open, or calls at work: close them first";
                Err(errors::named(16, what, image))
            }
        }
    }

    #[getter]
    fn closed(&self) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Makes everything durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.at(py, b"/", cairn::Volume::sync)
    }

    /// Opens a file. `flags`: `r`, `w`, `a` (append), `c` (create), `x` (create new), `t`
    /// (truncate).
    fn open_file(&self, py: Python<'_>, path: &[u8], flags: &str, mode: u32) -> PyResult<File> {
        let volume = self.get(path)?;
        let has = |flag| flags.contains(flag);
        let mut options = OpenOptions::new();
        options
            .read(has('r'))
            .write(has('w'))
            .append(has('a'))
            .create(has('c'))
            .create_new(has('x'))
            .truncate(has('t'))
            .mode(mode);
        let file = work::on(py, &volume, || options.open(&volume, path));
        Ok(File::new(Open { file: file.map_err(errors::at(path))?, volume }, path))
    }

    /// Name, inode number and kind (as in a mode; 0 if unknown) of each entry.
    fn list(&self, py: Python<'_>, path: &[u8]) -> PyResult<Vec<(Vec<u8>, u64, u32)>> {
        self.at(py, path, |volume| {
            volume
                .read_dir(path)?
                .map(|entry| {
                    let entry = entry?;
                    let kind = entry.kind().map_or(0, FileKind::mode_bits);
                    Ok((entry.name().to_vec(), entry.ino().get(), kind))
                })
                .collect()
        })
    }

    fn stat(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Stat> {
        self.at(py, path, |volume| {
            let found = if follow { volume.metadata(path) } else { volume.symlink_metadata(path) };
            Ok(stat_of(&found?))
        })
    }

    /// When a file was made, in seconds and nanoseconds; `None` if the volume has no room for it.
    fn created(&self, py: Python<'_>, path: &[u8]) -> PyResult<Option<(i64, u32)>> {
        self.at(py, path, |volume| {
            let made = volume.metadata(path)?.attributes().crtime;
            Ok(made.map(|time| (time.seconds, time.nanoseconds)))
        })
    }

    fn readlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<Vec<u8>> {
        self.at(py, path, |volume| volume.read_link(path))
    }

    fn symlink(&self, py: Python<'_>, target: &[u8], path: &[u8]) -> PyResult<()> {
        self.at(py, path, |volume| volume.symlink(target, path))
    }

    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        self.at(py, path, |volume| volume.create_node(path, NewInode::Directory, mode & 0o7777))
    }

    /// The mode has the kind.
    fn mknod(
        &self,
        py: Python<'_>,
        path: &[u8],
        mode: u32,
        major: u32,
        minor: u32,
    ) -> PyResult<()> {
        let device = cairn::encode_device(major, minor);
        let node = match (FileKind::from_mode(mode), device) {
            (Some(FileKind::Regular), _) => NewInode::Regular,
            (Some(FileKind::Fifo), _) => NewInode::Fifo,
            (Some(FileKind::Socket), _) => NewInode::Socket,
            (Some(FileKind::BlockDevice), Some(device)) => NewInode::BlockDevice(device),
            (Some(FileKind::CharDevice), Some(device)) => NewInode::CharDevice(device),
            (Some(FileKind::BlockDevice | FileKind::CharDevice), None) => {
                return Err(PyValueError::new_err("the greatest device is 4095:1048575"));
            }
            _ => return Err(PyValueError::new_err("use mkdir or symlink for these")),
        };
        self.at(py, path, |volume| volume.create_node(path, node, mode & 0o7777))
    }

    fn unlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.at(py, path, |volume| volume.remove_file(path))
    }

    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.at(py, path, |volume| volume.remove_dir(path))
    }

    fn rmtree(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.at(py, path, |volume| volume.remove_dir_all(path))
    }

    fn rename(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<()> {
        let volume = self.get(from)?;
        work::on(py, &volume, || volume.rename(from, to)).map_err(errors::between(from, to))
    }

    fn link(&self, py: Python<'_>, original: &[u8], path: &[u8]) -> PyResult<()> {
        let volume = self.get(original)?;
        let linked = work::on(py, &volume, || volume.hard_link(original, path));
        linked.map_err(errors::between(original, path))
    }

    fn chmod(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        self.at(py, path, |volume| volume.set_permissions(path, mode & 0o7777))
    }

    fn lchown(&self, py: Python<'_>, path: &[u8], uid: u32, gid: u32) -> PyResult<()> {
        self.at(py, path, |volume| volume.set_owner(path, uid, gid))
    }

    /// Times in nanoseconds since 1970.
    fn utime(
        &self,
        py: Python<'_>,
        path: &[u8],
        atime: i128,
        mtime: i128,
        follow: bool,
    ) -> PyResult<()> {
        let (atime, mtime) = (timestamp(atime)?, timestamp(mtime)?);
        self.at(py, path, |volume| match follow {
            true => volume.set_times(path, atime, mtime),
            false => volume.set_times_nofollow(path, atime, mtime),
        })
    }

    fn getxattr(&self, py: Python<'_>, path: &[u8], name: &[u8]) -> PyResult<Vec<u8>> {
        let found = self.at(py, path, |volume| volume.xattr(path, name))?;
        let none = || {
            let name = format!("no attribute {}", name.escape_ascii());
            PyOSError::new_err((61, name, String::from_utf8_lossy(path).into_owned()))
        };
        found.ok_or_else(none)
    }

    fn listxattr(&self, py: Python<'_>, path: &[u8]) -> PyResult<Vec<Vec<u8>>> {
        self.at(py, path, |volume| volume.list_xattrs(path))
    }

    /// Without a value it is removed.
    fn setxattr(
        &self,
        py: Python<'_>,
        path: &[u8],
        name: &[u8],
        value: Option<&[u8]>,
    ) -> PyResult<()> {
        self.at(py, path, |volume| volume.set_xattr(path, name, value))
    }

    /// Block size, blocks, free and available ones, inodes and free ones, longest name.
    fn statfs(&self, py: Python<'_>) -> PyResult<(u32, u64, u64, u64, u64, u64, u32)> {
        self.at(py, b"/", |volume| {
            let found = volume.filesystem().statfs()?;
            let (blocks, free, usable) = (found.blocks, found.free_blocks, found.available_blocks);
            let (inodes, left) = (found.inodes, found.free_inodes);
            Ok((found.block_size, blocks, free, usable, inodes, left, found.name_max))
        })
    }
}

fn timestamp(nanoseconds: i128) -> PyResult<Timestamp> {
    const SECOND: i128 = 1_000_000_000;
    let wrong = |_| PyValueError::new_err("the time is beyond what a volume can have");
    Ok(Timestamp {
        seconds: i64::try_from(nanoseconds.div_euclid(SECOND)).map_err(wrong)?,
        nanoseconds: u32::try_from(nanoseconds.rem_euclid(SECOND)).map_err(wrong)?,
    })
}
