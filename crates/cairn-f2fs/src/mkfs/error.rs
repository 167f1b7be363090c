//! Why no volume was made.

/// Why no volume was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The options contradict each other, do not fit the device, or ask for a feature that Cairn
    /// cannot maintain.
    #[error("{0}")]
    Option(String),
    /// The device has too few bytes for these options.
    #[error("too small for F2FS with these options: give a size of at least \
        {}M", smallest.div_ceil(1 << 20))]
    TooSmall {
        /// Bytes of the device.
        bytes: u64,
        /// The smallest size that suffices, in bytes.
        smallest: u64,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] cairn_block::Error),
}
