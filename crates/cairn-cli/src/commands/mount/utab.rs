//! The entry of libmount's table of userspace options (`/run/mount/utab`) that makes umount(8)
//! call `umount.fuse.cairn` for a mount of root's.
//!
//! umount(8) of util-linux asks only statfs(2) for the type of a mount that root names by a whole
//! path. It answers "fuse" for all FUSE mounts, so that umount(8) would return while the daemon
//! still writes. For a mount with an entry it reads `uhelper` there (umount(8), "External
//! helpers").
//!
//! Only libmount's programs write the table: mount(8) and umount(8) with `--fake`, which call
//! neither mount(2) nor umount(2). Other programs of these names refuse the long options. Nothing
//! here fails: without an entry, the helper is not called.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use super::table;

/// Where umount(8) looks for the helper.
const HELPER: &str = "/sbin/umount.fuse.cairn";

/// The type of the mounts that need it. umount(8) of a `fuseblk` waits in the kernel.
const KIND: &str = "fuse.cairn";

/// Adds the entry of a mount. It must be served already, because mount(8) looks at the path.
pub fn record(point: &Path) {
    let Ok(Some(mount)) = table::find(point) else { return };
    if mount.kind != KIND || !is_of_use() {
        return;
    }
    let words = ["-t", KIND, "-o", "uhelper=fuse.cairn", "--", &mount.source];
    pretend("mount", &words, point);
}

/// Removes the entry of a mount that is gone. A stale entry does no harm, since umount(8) compares
/// the source of the mount, too.
pub fn forget(point: &Path) {
    if matches!(table::find(point), Ok(None)) && is_of_use() {
        pretend("umount", &["--"], point);
    }
}

/// Only root may write the table.
fn is_of_use() -> bool {
    rustix::process::geteuid().is_root() && Path::new(HELPER).exists()
}

fn pretend(program: &str, words: &[impl AsRef<OsStr>], point: &Path) {
    let mut command = Command::new(program);
    command.args(["--fake", "--internal-only", "--no-canonicalize"]).args(words).arg(point);
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match quiet.status() {
        Ok(status) if status.success() => {}
        ended => tracing::info!("{program}(8) did not write its table of options: {ended:?}"),
    }
}
