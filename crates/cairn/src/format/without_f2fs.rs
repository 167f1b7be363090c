//! F2FS in a build without the feature `f2fs`: a volume is recognised, so that it is neither
//! overwritten nor taken for something else, and refused ([`Cause::NoFeature`]).

use std::path::PathBuf;
use std::sync::Arc;

use cairn_base::options::Vocabulary;
use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_check::repair::{Plan, Scope};
use cairn_check::salvage::Salvage;
use cairn_check::{Fields, Kind, Observer, Report};
use cairn_vfs::FileSystem;
use uuid::Uuid;

use super::Format;
use crate::bytes::read_bytes;
use crate::error::Cause;
use crate::mkfs::options::{MkfsOptions, Named};
use crate::structure::{Copies, Structure};
use crate::tune::options::{Resized, TuneOptions};
use crate::volume::OpenOptions;

/// Where the two superblocks begin, and their first bytes.
const SUPERBLOCKS: [u64; 2] = [1024, 4096 + 1024];
const MAGIC: [u8; 4] = 0xf2f5_2010_u32.to_le_bytes();

/// The kinds of its defects.
pub(super) const KINDS: &[&Kind] = &[];

/// What is known of a further device: nothing.
#[allow(dead_code, reason = "the format makes them, and is not here")]
pub(crate) enum DeviceCheck {
    Recognised,
    Blank,
    Unknown,
    Resized { size: u64, used: u64 },
    Foreign,
}

/// The error of all that needs the format.
pub(crate) const fn absent() -> Cause {
    Cause::NoFeature { format: Format::F2fs, feature: "f2fs" }
}

pub(super) fn probe(device: &dyn BlockDevice) -> Result<bool, Cause> {
    for at in SUPERBLOCKS {
        if read_bytes(device, at, MAGIC.len())?.is_some_and(|found| found == MAGIC) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What can be checked is not known without the format.
pub(crate) fn is_checkable(_: &Arc<dyn BlockDevice>) -> Result<bool, Cause> {
    Ok(false)
}

/// Files of a volume without superblocks are data like others.
pub(crate) const fn has_checkpoint(_: &dyn BlockDevice) -> bool {
    false
}

pub(super) const fn label(_: &dyn BlockDevice) -> Option<String> {
    None
}

pub(super) const fn settings() -> Vec<String> {
    Vec::new()
}

pub(super) const fn vocabulary() -> &'static Vocabulary {
    &[]
}

pub(super) fn other_devices(_: &dyn BlockDevice) -> Result<Vec<PathBuf>, Cause> {
    Ok(Vec::new())
}

/// Functions of the format that fail here.
macro_rules! absent {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        $(pub(super) fn $name($(_: $argument),*) -> Result<$result, Cause> {
            Err(absent())
        })*
    };
}

absent! {
    check_options(&OpenOptions) -> Vec<String>;
    open(Arc<dyn BlockDevice>, Arc<dyn Runtime>, &OpenOptions) -> Arc<dyn FileSystem>;
    recognise(Vec<Arc<dyn BlockDevice>>) -> Vec<DeviceCheck>;
    assemble(Vec<Arc<dyn BlockDevice>>) -> Arc<dyn BlockDevice>;
    make(&[Named], &MkfsOptions, &dyn Runtime) -> ();
    tune(Arc<dyn BlockDevice>, Arc<dyn Runtime>, &TuneOptions, Option<Uuid>) -> ();
    check(Arc<dyn BlockDevice>, Arc<dyn Runtime>, Arc<dyn Observer>) -> Report;
    size(&Arc<dyn BlockDevice>) -> u64;
    check_size(&Arc<dyn BlockDevice>, u64) -> ();
    room(&Arc<dyn BlockDevice>, u64) -> u64;
    resize(&Arc<dyn BlockDevice>, &Arc<dyn Runtime>, u64) -> Resized;
    least_size(&Arc<dyn BlockDevice>, Arc<dyn Runtime>) -> u64;
    plan_repair(&Arc<dyn BlockDevice>, Arc<dyn Runtime>, Arc<dyn Observer>, Scope) -> Plan;
    dump(Arc<dyn BlockDevice>, Copies, &Structure) -> Fields;
    journal(Arc<dyn BlockDevice>, Copies) -> Fields;
    rescue(Arc<dyn BlockDevice>, Copies) -> Box<dyn Salvage>;
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::{ImageSpec, Volume, mkfs};

    /// Is it the error that names the feature?
    fn names_the_feature(error: &crate::Error) -> bool {
        matches!(error.cause(), Cause::NoFeature { feature: "f2fs", .. })
            && error.errno() == 95
            && error.to_string().contains("feature `f2fs`")
    }

    #[test]
    fn a_volume_is_recognised_refused_and_kept() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(64 << 20).unwrap();
        file.as_file().write_all_at(&MAGIC, SUPERBLOCKS[1]).unwrap();
        let error = Volume::open(file.path()).err().expect("an F2FS volume is not opened");
        assert!(names_the_feature(&error), "{error}");
        let image = ImageSpec::whole(file.path());
        let error = crate::inspect(&image, &[]).err().expect("it is not described");
        assert!(names_the_feature(&error), "{error}");
        let error = mkfs(&image, &MkfsOptions::new(Format::Ext4)).unwrap_err();
        assert!(error.to_string().contains("an f2fs volume, which would be lost"), "{error}");
        let options = MkfsOptions { overwrite: true, ..MkfsOptions::new(Format::F2fs) };
        let error = mkfs(&image, &options).unwrap_err();
        assert!(names_the_feature(&error), "{error}");
        mkfs(&image, &MkfsOptions { overwrite: true, ..MkfsOptions::new(Format::Ext4) }).unwrap();
        assert!(Volume::open(file.path()).is_ok());
    }
}
