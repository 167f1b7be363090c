//! [`PopulateError`]: why a volume was not filled.

use cairn_vfs::new_tree::TreeError;

use super::super::error::Error;

/// Result of filling a volume.
pub type PopulateResult<T> = std::result::Result<T, PopulateError>;

/// Why a volume was not filled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PopulateError {
    /// An option is unsuitable, or the device failed.
    #[error(transparent)]
    F2fs(#[from] Error),
    /// The tree cannot be stored on a volume with these options.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl From<cairn_block::Error> for PopulateError {
    fn from(error: cairn_block::Error) -> Self {
        Self::F2fs(error.into())
    }
}
