//! [`TreeError`]: why a tree was not stored.

use cairn_base::options::written_size;

/// Why a tree was not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// A node cannot be stored on a volume with these options.
    #[error("{path}: {why}")]
    Node {
        /// The node.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The contents of a file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The error of the source.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The blocks of the volume do not suffice. Nothing was written.
    #[error(
        "the tree needs {} for files and directories, the volume has {}: give a larger size",
        written_size(*.needed),
        written_size(*.available)
    )]
    NoSpace {
        /// Bytes needed.
        needed: u64,
        /// Bytes free on the empty volume.
        available: u64,
    },
    /// The inodes of the volume do not suffice. Nothing was written.
    #[error("the tree needs {needed} inodes, the volume has {available}: give more")]
    NoInodes {
        /// Inodes needed.
        needed: u64,
        /// Inodes that were asked for.
        available: u64,
    },
    /// The node numbers of the volume do not suffice. Nothing was written.
    #[error(
        "the tree needs {needed} nodes, the volume has {available}: give a larger size or fewer \
         files"
    )]
    NoNodes {
        /// Nodes needed.
        needed: u64,
        /// Nodes that the volume can number.
        available: u64,
    },
}

impl TreeError {
    /// A node that cannot be stored.
    #[must_use]
    pub fn node(path: String, why: impl Into<String>) -> Self {
        Self::Node { path, why: why.into() }
    }
}
