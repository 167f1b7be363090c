//! [`Directory`]: chunks as files of a directory of the host.
//!
//! A file has the chunk, the [`Identity`] of the object that it was read from, and a checksum. What
//! cannot be read, or has another checksum, is not there: the store has it. Files are removed in
//! the order in which they were written.
//!
//! Files hold blocks of a disk, so only their owner may read them. And a checksum is no seal: what
//! another user could have written is not believed. The directory belongs to this user or to root,
//! and so does each file.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use cairn_base::host;
use cairn_base::ranked_lock::{Mutex, Rank};

use crate::format::data::HEADER;
use crate::format::{ObjectId, checksum};

/// The first bytes of a data object. They have the nonce of its writer and checksums. Its name is
/// not enough: a pool that was copied, or restored from a copy, has other objects of the same
/// names.
pub(crate) type Identity = [u8; HEADER];

/// Bytes of the checksum behind a chunk and an identity.
const SUM: usize = 4;
/// Ends the names of chunks.
const SUFFIX: &str = ".chunk";
/// Numbers unfinished files of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// True of what this user has made, or root.
fn is_trusted(found: &Metadata) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&found.uid())
}

/// Refuses a directory that another user could fill.
fn check(directory: &Metadata) -> io::Result<()> {
    let refused = |kind, why| Err(io::Error::new(kind, why));
    if !directory.is_dir() {
        return refused(io::ErrorKind::NotADirectory, "it is no directory: name one".to_owned());
    }
    if !is_trusted(directory) {
        let why = format!(
            "it belongs to the user {}, who could change what is read: name a directory of your \
             own, or one that is not there yet",
            directory.uid()
        );
        return refused(io::ErrorKind::PermissionDenied, why);
    }
    Ok(())
}

/// The bytes of a file of this user.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = host::open_regular(path, File::options().read(true))?;
    if !is_trusted(&file.metadata()?) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A directory of chunks.
pub(crate) struct Directory {
    root: PathBuf,
    budget: u64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    files: VecDeque<(PathBuf, u64)>,
    bytes: u64,
}

impl Directory {
    /// The chunks in `root`, which is made for its user alone if it is not there, with at most so
    /// many bytes. Links of other users on the way are not followed ([`cairn_base::host`]).
    pub(crate) fn new(root: &Path, budget: u64) -> io::Result<Self> {
        let root = host::behind_links(root)?;
        if let Ok(found) = fs::symlink_metadata(&root) {
            check(&found)?;
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&root)?;
        check(&fs::symlink_metadata(&root)?)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&root)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let is_chunk = entry.file_name().as_encoded_bytes().ends_with(SUFFIX.as_bytes());
            if !is_chunk || !metadata.is_file() || !is_trusted(&metadata) {
                continue;
            }
            if metadata.mode() & 0o077 != 0 {
                // Earlier versions made them for everybody. One that stays so is removed in time.
                let _ = fs::set_permissions(entry.path(), Permissions::from_mode(0o600));
            }
            found.push((metadata.modified()?, entry.path(), metadata.len()));
        }
        found.sort();
        let bytes = found.iter().map(|(_, _, bytes)| bytes).sum();
        let files = found.into_iter().map(|(_, path, bytes)| (path, bytes)).collect();
        let directory = Self { root, budget, kept: Mutex::new(Rank::Leaf, Kept { files, bytes }) };
        directory.shrink();
        Ok(directory)
    }

    fn path(&self, id: ObjectId, chunk: u64) -> PathBuf {
        let ObjectId { log, epoch, sequence } = id;
        self.root.join(format!("{log:016x}-{epoch:08x}-{sequence:016x}-{chunk:x}{SUFFIX}"))
    }

    /// A chunk, if it is there and whole, and the object that it is of.
    pub(crate) fn get(&self, id: ObjectId, chunk: u64) -> Option<(Bytes, Identity)> {
        let bytes = Bytes::from(read(&self.path(id, chunk)).ok()?);
        let (whole, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM)?)?;
        let (data, identity) = whole.split_last_chunk()?;
        (checksum(&[whole]).to_le_bytes() == sum).then(|| (bytes.slice(..data.len()), *identity))
    }

    /// Keeps a chunk. If that fails, it is not kept.
    pub(crate) fn put(&self, id: ObjectId, identity: &Identity, chunk: u64, data: &[u8]) {
        let path = self.path(id, chunk);
        let number = NEXT.fetch_add(1, Relaxed);
        let unfinished = self.root.join(format!(".new-{}-{number}", std::process::id()));
        let sum = checksum(&[data, identity]).to_le_bytes();
        let made = File::options().write(true).create_new(true).mode(0o600).open(&unfinished);
        let written = made.and_then(|mut file| file.write_all(&[data, identity, &sum].concat()));
        if written.and_then(|()| fs::rename(&unfinished, &path)).is_err() {
            let _ = fs::remove_file(&unfinished);
            return;
        }
        let bytes = (data.len() + identity.len() + SUM) as u64;
        {
            let mut kept = self.kept.lock();
            kept.files.push_back((path, bytes));
            kept.bytes += bytes;
        }
        self.shrink();
    }

    fn shrink(&self) {
        loop {
            let oldest = {
                let mut kept = self.kept.lock();
                if kept.bytes <= self.budget {
                    return;
                }
                let Some((path, bytes)) = kept.files.pop_front() else { return };
                kept.bytes -= bytes;
                path
            };
            let _ = fs::remove_file(oldest);
        }
    }
}
