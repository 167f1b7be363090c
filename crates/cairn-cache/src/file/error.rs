//! [`CacheError`]: why file data cannot be read, kept or written.

use cairn_base::memory::NoMemory;

use crate::mapper::MapError;

/// Why file data cannot be read, kept or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CacheError {
    /// The device failed to read file data, or the system has no memory for it.
    #[error(transparent)]
    Read(cairn_block::Error),
    /// The device failed to write file data.
    #[error(transparent)]
    Write(cairn_block::Error),
    /// The file's mapper failed.
    #[error(transparent)]
    Map(#[from] MapError),
}

impl From<NoMemory> for CacheError {
    fn from(refused: NoMemory) -> Self {
        Self::Read(refused.into())
    }
}
