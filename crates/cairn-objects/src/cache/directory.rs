//! [`Directory`]: chunks as files of a directory of the host.
//!
//! A file has the chunk, the [`Identity`] of the object that it was read from, and a checksum. What
//! cannot be read, or has another checksum, is not there: the store has it. Files are removed in
//! the order in which they were written.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
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
    /// many bytes.
    pub(crate) fn new(root: PathBuf, budget: u64) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&root)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&root)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let is_chunk = entry.file_name().as_encoded_bytes().ends_with(SUFFIX.as_bytes());
            if is_chunk && metadata.is_file() {
                found.push((metadata.modified()?, entry.path(), metadata.len()));
            }
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
        let bytes = Bytes::from(fs::read(self.path(id, chunk)).ok()?);
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
        // They are blocks of a disk.
        let made = fs::File::options().write(true).create_new(true).mode(0o600).open(&unfinished);
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
