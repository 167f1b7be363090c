//! Repairs of a volume that nobody has mounted: a plan, which is shown, then applied with an undo
//! file.

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_base::names::Escaped;
use cairn_base::shell::quoted;
use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_check::Observer;
use cairn_check::repair::undo::{self, file_size};
use cairn_check::repair::{Plan, Scope};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::check::checkable;
use crate::error::{Cause, Error, Result};
use crate::format::{self, Format};
use crate::image::ImageSpec;
use crate::interrupted::{interrupted_repair, own_undo_file};
use crate::volume::{open_interrupted, runtime};

/// A repair that can be applied. The image stays open and locked meanwhile.
pub struct Repair {
    /// The format of the volume.
    pub format: Format,
    /// What is repaired.
    pub plan: Plan,
    image: ImageSpec,
    device: Arc<dyn BlockDevice>,
}

/// Plans the repair of the volume in `image`. `writes`: the plan will be applied, so that the image
/// must allow it; nothing is written yet. `devices`: see [`crate::OpenOptions::devices`].
///
/// # Errors
/// The image cannot be opened or is in use, holds no volume that can be read, or an earlier repair
/// of it was interrupted.
pub fn plan_repair(
    image: &ImageSpec,
    devices: &[PathBuf],
    scope: Scope,
    writes: bool,
    observer: Arc<dyn Observer>,
) -> Result<Repair> {
    let error = |cause| Error::new(image, cause);
    let device = open_interrupted(image, devices, writes)?;
    if let Some(interrupted) = interrupted_repair(image) {
        return Err(error(Cause::Undo(interrupted)));
    }
    let format = checkable(&device).map_err(error)?;
    let plan = format::plan_repair(format, &device, runtime(None), observer, scope);
    Ok(Repair { format, plan: plan.map_err(error)?, image: image.clone(), device })
}

impl Repair {
    /// Applies the plan as one step. What was there is written to the file `undo` first, which must
    /// not exist; without one, to a file beside the image that is removed in the end.
    ///
    /// # Errors
    /// The undo file cannot be made; the image cannot be written. The error says whether something
    /// was changed. The undo file cannot be removed: the volume is repaired nevertheless.
    pub fn apply(&self, undo: Option<&Path>) -> Result<()> {
        if self.plan.changes.is_empty() {
            return Ok(());
        }
        let failed = |cause| Error::new(&self.image, cause);
        let path = self.undo_file(undo)?;
        let path = &*path;
        let made = create(path).map_err(|why| failed(Cause::Undo(why)))?;
        // From here on the file is this repair's.
        let done = self.apply_with(path, &made);
        let is_kept = matches!(done, Err(undo::Error::Partly(_)));
        let removed = match !is_kept && (undo.is_none() || done.is_err()) {
            // It is of no use any more: all or nothing was changed.
            true => std::fs::remove_file(path),
            false => Ok(()),
        };
        let left = |why| undo::Error::Left { file: quoted(path), why };
        // An error that was before says more.
        done.and_then(|()| removed.map_err(left)).map_err(|why| failed(Cause::Undo(why)))
    }

    /// Looks whether [`Repair::apply`] can make its undo file, and writes nothing.
    ///
    /// # Errors
    /// There is none for a device; the file is there already; its directory is missing or cannot be
    /// written.
    pub fn check_undo_file(&self, undo: Option<&Path>) -> Result<()> {
        let path = self.undo_file(undo)?;
        let refused =
            |error: Errno| Error::new(&self.image, Cause::Undo(not_written(&path, error.into())));
        if path.symlink_metadata().is_ok() {
            return Err(refused(Errno::EXIST));
        }
        let wanted = Access::WRITE_OK | Access::EXEC_OK;
        accessat(CWD, directory(&path), wanted, AtFlags::EACCESS).map_err(refused)
    }

    /// The file that keeps what was there.
    fn undo_file<'a>(&self, undo: Option<&'a Path>) -> Result<Cow<'a, Path>> {
        let own = || own_undo_file(&self.image).filter(|_| is_file(&self.image));
        let path = undo.map(Cow::Borrowed).or_else(|| own().map(Cow::Owned));
        path.ok_or_else(|| Error::new(&self.image, Cause::NoUndoFile))
    }

    fn apply_with(&self, path: &Path, made: &File) -> Result<(), undo::Error> {
        let failed = |error| not_written(path, error);
        made.set_len(file_size(&self.plan.changes)).map_err(failed)?;
        made.sync_all().map_err(failed)?;
        File::open(directory(path)).and_then(|parent| parent.sync_all()).map_err(failed)?;
        let file = FileDevice::open(path, OpenOptions::write()).map_err(undo::Error::Write)?;
        self.plan.apply(&*self.device, &file)
    }
}

fn directory(path: &Path) -> &Path {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.unwrap_or(Path::new("."))
}

fn is_file(image: &ImageSpec) -> bool {
    image.file().is_some_and(Path::is_file)
}

/// Makes a new file that only its owner can read: it will hold bytes of files.
fn create(path: &Path) -> Result<File, undo::Error> {
    let mut options = File::options();
    let made = options.write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|error| not_written(path, error))
}

fn not_written(path: &Path, error: std::io::Error) -> undo::Error {
    undo::Error::Write(cairn_block::Error::from_io(path.escaped(), error))
}

/// Puts the bytes back that a repair of the volume in `image` has changed, from its undo file.
/// Returns their number.
///
/// # Errors
/// The file is none, or of another volume; the volume has changed since the repair. Then nothing is
/// written. Or the image cannot be written.
pub fn take_back(image: &ImageSpec, devices: &[PathBuf], file: &Path) -> Result<u64> {
    let error = |cause| Error::new(image, cause);
    let device = open_interrupted(image, devices, true)?;
    let undo = FileDevice::open(file, OpenOptions::read());
    let undo = undo.map_err(|why| error(Cause::Undo(why.into())))?;
    let taken = undo::take_back(&*device, &undo);
    taken.map_err(|why| error(Cause::Undo(why.of_file(quoted(file)))))
}
