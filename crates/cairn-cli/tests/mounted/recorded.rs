//! A volume that is mounted in this process on a device that records writes and flushes.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cairn::OpenOptions;
use cairn_base::runtime::Runtime;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_fuse::Unmounter;
use cairn_testkit::crash::{CrashLog, Recording};
use cairn_vfs::FileSystem;

/// Opens a volume, with recovery if it is needed.
pub fn open(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
) -> Result<Arc<dyn FileSystem>, String> {
    let volume = cairn::open_on(device, runtime, &OpenOptions::default())
        .map_err(|error| format!("{error:?}"))?;
    Ok(volume.filesystem().clone())
}

pub struct Recorded {
    pub point: PathBuf,
    recording: Recording,
    fs: Arc<dyn FileSystem>,
    unmounter: Unmounter,
    server: JoinHandle<cairn_fuse::Result<()>>,
}

impl Recorded {
    /// Mounts it in a directory below `dir`.
    pub fn mount(dir: &Path, fresh: MemoryDevice, options: &cairn_fuse::MountOptions) -> Self {
        let recording = Recording::start(fresh);
        let fs = open(recording.device(), Threads::new()).unwrap();
        let point = dir.join("mnt");
        std::fs::create_dir_all(&point).unwrap();
        let session = cairn_fuse::mount(fs.clone(), &point, options).unwrap();
        let unmounter = session.unmounter();
        let server = std::thread::spawn(move || session.run());
        Self { point, recording, fs, unmounter, server }
    }

    /// The current moment of the recording.
    pub fn moment(&self) -> u64 {
        self.recording.moment()
    }

    /// Unmounts, and closes the volume.
    pub fn finish(self) -> CrashLog {
        // Until it has executed its program, a process that another test starts has copies of this
        // process's open files.
        let end = Instant::now() + Duration::from_secs(60);
        while let Err(error) = self.unmounter.unmount() {
            assert!(error.kind() == ErrorKind::ResourceBusy && Instant::now() < end, "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.server.join().unwrap().unwrap();
        self.fs.unmount().unwrap();
        drop(self.fs);
        self.recording.finish()
    }
}
