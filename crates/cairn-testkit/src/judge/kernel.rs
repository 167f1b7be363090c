//! The kernel's ext4 on a loop device. Guards clean up when they are dropped, also if a test
//! panics: first an ordinary unmount, then a lazy one.

use std::path::{Path, PathBuf};

use super::{command, mke2fs, run, try_run};

/// A loop device over an image.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches a free loop device.
    ///
    /// # Panics
    /// There is none, or the process is not root.
    #[track_caller]
    #[must_use]
    pub fn attach(image: &Path, read_only: bool) -> Self {
        let mut args = vec![Path::new("--find"), Path::new("--show")];
        if read_only {
            args.push(Path::new("--read-only"));
        }
        args.push(image);
        let path = run("losetup", args).trim().into();
        Self { path }
    }

    /// As [`LoopDevice::attach`], with sectors of 4,096 bytes, as of many disks.
    ///
    /// # Panics
    /// As [`LoopDevice::attach`].
    #[track_caller]
    #[must_use]
    pub fn with_large_sectors(image: &Path) -> Self {
        let args = ["--find", "--show", "--sector-size", "4096"].map(Path::new);
        let path = run("losetup", args.into_iter().chain([image])).trim().into();
        Self { path }
    }

    /// `/dev/loopN`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let output = command("losetup").arg("--detach").arg(&self.path).output();
        if !matches!(&output, Ok(output) if output.status.success()) {
            eprintln!("losetup --detach {}: {output:?}", self.path.display());
        }
    }
}

/// An image mounted by the kernel.
#[derive(Debug)]
pub struct KernelMount {
    // Fields drop in this order: the directory goes first (after `drop` unmounted it), the device
    // last.
    directory: Option<PathBuf>,
    device: LoopDevice,
}

impl KernelMount {
    /// Mounts `image` as ext4 with these options (`ro`, `noload`, …; empty for none) in a fresh
    /// directory.
    ///
    /// # Panics
    /// The kernel refuses.
    #[track_caller]
    #[must_use]
    pub fn new(image: &Path, options: &str) -> Self {
        Self::try_new(image, options).unwrap_or_else(|refusal| panic!("{refusal}"))
    }

    /// As [`KernelMount::new`], if the kernel may refuse.
    ///
    /// # Errors
    /// The words of mount(8).
    ///
    /// # Panics
    /// There is no loop device, or the process is not root.
    #[track_caller]
    pub fn try_new(image: &Path, options: &str) -> Result<Self, String> {
        let read_only = options.split(',').any(|option| option == "ro");
        let device = LoopDevice::attach(image, read_only);
        let directory = tempfile::Builder::new()
            .prefix("kernel-ext4-")
            .tempdir()
            .expect("a mount point")
            .keep();
        let mut args = vec![Path::new("-t"), Path::new("ext4")];
        if !options.is_empty() {
            args.extend([Path::new("-o"), Path::new(options)]);
        }
        args.extend([device.path(), directory.as_path()]);
        match try_run("mount", args) {
            Ok(_) => Ok(Self { directory: Some(directory), device }),
            Err(refusal) => {
                // What cannot be removed is an empty directory for temporary files.
                let _ = std::fs::remove_dir(&directory);
                Err(refusal)
            }
        }
    }

    /// `/dev/loopN` under it.
    #[must_use]
    pub fn device(&self) -> &Path {
        self.device.path()
    }

    /// The mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.as_deref().expect("mounted until dropped")
    }

    /// Unmounts and detaches; everything is in the image when this returns.
    ///
    /// # Panics
    /// Something still uses the mount.
    #[track_caller]
    pub fn unmount(mut self) {
        let directory = self.directory.take().expect("mounted until now");
        // A program that reads all mounts may use this one briefly.
        for _ in 0..BUSY_TRIES {
            let output = command("umount").arg(&directory).output();
            if output.is_ok_and(|output| output.status.success()) {
                return remove(&directory);
            }
            std::thread::sleep(BUSY_PAUSE);
        }
        run("umount", [directory.as_path()]);
        remove(&directory);
    }
}

/// Tries for a busy mount, and the pause between them.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

impl Drop for KernelMount {
    fn drop(&mut self) {
        let Some(directory) = self.directory.take() else { return };
        let unmount = |lazy: &[&str]| {
            let output = command("umount").args(lazy).arg(&directory).output();
            matches!(output, Ok(output) if output.status.success())
        };
        if !unmount(&[]) && !unmount(&["-l"]) {
            eprintln!("cannot unmount {}", directory.display());
            return;
        }
        remove(&directory);
    }
}

/// Removes only an empty directory. It may still be a mount, so the removal is not recursive.
fn remove(directory: &Path) {
    if let Err(error) = std::fs::remove_dir(directory) {
        eprintln!("cannot remove {}: {error}", directory.display());
    }
}

/// Runs `work` on a new ext4 volume that the kernel has mounted. Its answer is what Cairn's is
/// compared with. `arguments`: mke2fs's, besides `-t ext4`.
///
/// # Panics
/// The volume cannot be made or mounted.
#[track_caller]
pub fn on_the_kernel_s_ext4<T>(size: u64, arguments: &[&str], work: impl FnOnce(&Path) -> T) -> T {
    let outside = tempfile::tempdir().expect("a directory for the image");
    let image = outside.path().join("image");
    mke2fs(&image, size, &[&["-t", "ext4"], arguments].concat());
    let kernel = KernelMount::new(&image, "");
    let answer = work(kernel.path());
    kernel.unmount();
    answer
}
