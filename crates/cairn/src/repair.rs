//! Repairs of a volume that nobody has mounted: a plan, which is shown, then applied with an undo
//! file.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_check::Observer;
use cairn_check::repair::undo::{self, file_size};
use cairn_check::repair::{Plan, Scope};

use crate::error::{Cause, Error, Result};
use crate::format::{self, Format};
use crate::image::ImageSpec;
use crate::tune::known;
use crate::volume::{open_device, runtime};

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
    let device = open_device(image, devices, writes)?;
    if let Some(interrupted) = interrupted_repair(image) {
        return Err(error(Cause::Undo(interrupted)));
    }
    let format = known(&device).map_err(error)?;
    let plan = format::plan_repair(format, &device, runtime(None), observer, scope);
    Ok(Repair { format, plan: plan.map_err(error)?, image: image.clone(), device })
}

/// What says that a repair of the volume in `image` was interrupted: its undo file is there.
#[must_use]
pub fn interrupted_repair(image: &ImageSpec) -> Option<undo::Error> {
    let left = own_undo_file(image);
    left.exists().then(|| {
        let file = left.display().to_string();
        let command = format!("cairn check --take-back {file} {image}");
        undo::Error::Interrupted { command, file }
    })
}

impl Repair {
    /// Applies the plan as one step. What was there is written to the file `undo` first, which must
    /// not exist; without one, to a file beside the image that is removed in the end.
    ///
    /// # Errors
    /// The undo file cannot be made; the image cannot be written. The error says whether something
    /// was changed.
    pub fn apply(&self, undo: Option<&Path>) -> Result<()> {
        if self.plan.changes.is_empty() {
            return Ok(());
        }
        let own = own_undo_file(&self.image);
        let path = undo.unwrap_or(&own);
        if undo.is_none() && !is_file(&self.image) {
            let why = "a repair of a device needs a file for what was there: add --undo FILE";
            return Err(Error::new(&self.image, Cause::Option(why.into())));
        }
        let done = self.apply_with(path);
        let is_kept = matches!(done, Err(Cause::Undo(undo::Error::Partly(_))));
        if !is_kept && (undo.is_none() || done.is_err()) {
            // It is of no use any more: all or nothing was changed.
            let _ = std::fs::remove_file(path);
        }
        done.map_err(|cause| Error::new(&self.image, cause))
    }

    fn apply_with(&self, path: &Path) -> Result<(), Cause> {
        let file = create(path, file_size(&self.plan.changes))?;
        Ok(self.plan.apply(&*self.device, &file)?)
    }
}

fn is_file(image: &ImageSpec) -> bool {
    std::fs::metadata(&image.path).is_ok_and(|found| found.is_file())
}

/// The undo file of a repair for which the user has named none.
fn own_undo_file(image: &ImageSpec) -> PathBuf {
    let mut name = image.path.clone().into_os_string();
    name.push(".cairn-undo");
    name.into()
}

/// Makes a file of so many bytes, which only its owner can read: it holds bytes of files. Its name
/// is durable.
fn create(path: &Path, size: u64) -> Result<FileDevice, Cause> {
    let failed = |error: std::io::Error| {
        let operation = format!("make the undo file {}", path.display());
        Cause::Open(cairn_block::Error::from_io(operation, error))
    };
    let mut options = std::fs::File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.set_len(size).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    std::fs::File::open(directory).and_then(|parent| parent.sync_all()).map_err(failed)?;
    FileDevice::open(path, OpenOptions::write()).map_err(Cause::Open)
}

/// Puts the bytes back that a repair of the volume in `image` has changed, from its undo file.
/// Returns their number.
///
/// # Errors
/// The file is none, or of another volume; the volume has changed since the repair. Then nothing is
/// written. Or the image cannot be written.
pub fn take_back(image: &ImageSpec, devices: &[PathBuf], file: &Path) -> Result<u64> {
    let error = |cause| Error::new(image, cause);
    let device = open_device(image, devices, true)?;
    let undo = FileDevice::open(file, OpenOptions::read());
    let undo = undo.map_err(|why| error(Cause::Open(why)))?;
    undo::take_back(&*device, &undo).map_err(|why| error(Cause::Undo(why)))
}
