//! [`PopulateError`]: why a volume was not filled.

use cairn_vfs::new_tree::TreeError;

/// Result of filling a volume.
pub type PopulateResult<T> = std::result::Result<T, PopulateError>;

/// Why a volume was not filled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PopulateError {
    /// An option is unsuitable, or the device failed.
    #[error(transparent)]
    Ext4(#[from] crate::Error),
    /// The tree cannot be stored on a volume with these options.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl PopulateError {
    pub(super) fn node(path: String, why: impl Into<String>) -> Self {
        TreeError::node(path, why).into()
    }
}

impl From<cairn_block::Error> for PopulateError {
    fn from(error: cairn_block::Error) -> Self {
        Self::Ext4(error.into())
    }
}
