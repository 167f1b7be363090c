//! Why no volume was made.

/// Why no volume was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The options do not fit each other, the device, or what Cairn can maintain.
    #[error("{0}")]
    Option(String),
    /// The device has too few bytes for these options.
    #[error("too small for F2FS with these options: give a size of at least {}M", smallest.div_ceil(1 << 20))]
    TooSmall {
        /// Bytes there are.
        bytes: u64,
        /// Bytes that would do.
        smallest: u64,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] cairn_block::Error),
}
