//! Volumes of either format, chosen by content, in a runtime of one thread.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_check::Report;
use cairn_check::repair::{Plan, Scope};
use cairn_ext4::Ext4;
use cairn_f2fs::F2fs;
use cairn_vfs::FileSystem;

/// Opens a volume. The error is its text.
pub(crate) fn open(
    device: &Arc<dyn BlockDevice>,
    seed: u32,
    options: &Options,
) -> Result<Arc<dyn FileSystem>, String> {
    let runtime = Simulated::new(seed.into());
    if is_f2fs(device)? {
        let options = cairn_f2fs::MountOptions::parse(options.f2fs).expect("valid options");
        return match F2fs::open(device.clone(), runtime, &options) {
            Ok(volume) => Ok(volume),
            Err(error) => Err(error.to_string()),
        };
    }
    let options = cairn_ext4::MountOptions::parse(options.ext4).expect("valid options");
    match Ext4::open(device.clone(), runtime, &options) {
        Ok(volume) => Ok(volume),
        Err(error) => Err(error.to_string()),
    }
}

/// Mount options, in the words of each format.
pub(crate) struct Options {
    pub(crate) ext4: &'static str,
    pub(crate) f2fs: &'static str,
}

pub(crate) const READ_ONLY: Options = Options { ext4: "ro,cache=1M", f2fs: "ro,cache=1M" };

/// The ways to mount for writing.
pub(crate) const WRITING: [Options; 4] = [
    Options { ext4: "cache=1M", f2fs: "cache=1M" },
    Options {
        ext4: "cache=1M,nobuffered_iomap,stripe=16",
        f2fs: "cache=1M,mode=lfs,gc_victim=data_first,gc_merge",
    },
    Options { ext4: "cache=1M,async_checkpoint", f2fs: "cache=1M,nocheckpoint_merge" },
    Options { ext4: "cache=1M,discard,errors=continue", f2fs: "cache=1M,gc_victim=greedy" },
];

/// Neither format, if that is not F2FS: what ext4 says of it then counts.
fn is_f2fs(device: &Arc<dyn BlockDevice>) -> Result<bool, String> {
    let found = cairn_f2fs::probe(&**device);
    found.map(|found| found.is_some()).map_err(|error| error.to_string())
}

/// Checks a volume. The error is its text.
pub(crate) fn check(device: &Arc<dyn BlockDevice>) -> Result<Report, String> {
    let runtime: Arc<dyn Runtime> = Simulated::new(1);
    if is_f2fs(device)? {
        let report = cairn_f2fs::check::check(device.clone(), &runtime, Arc::new(()));
        return report.map_err(|error| error.to_string());
    }
    let report = cairn_ext4::check::check(device.clone(), runtime, Arc::new(()));
    report.map_err(|error| error.to_string())
}

/// Plans a repair. The error is its text.
pub(crate) fn plan(device: &Arc<dyn BlockDevice>, scope: Scope) -> Result<Plan, String> {
    let runtime: Arc<dyn Runtime> = Simulated::new(1);
    if is_f2fs(device)? {
        let plan = cairn_f2fs::repair::plan(device.clone(), runtime, Arc::new(()), scope);
        return plan.map_err(|error| error.to_string());
    }
    let plan = cairn_ext4::check::repair::plan(device, runtime, Arc::new(()), scope);
    plan.map_err(|error| error.to_string())
}

/// What a report says, a line for each finding.
pub(crate) fn lines(report: &Report) -> String {
    report.findings.iter().map(|finding| format!("{finding}\n")).collect()
}
