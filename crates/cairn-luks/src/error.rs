//! Why an encrypted disk cannot be opened.

use cairn_block::ErrorKind;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an encrypted disk cannot be opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] cairn_block::Error),
    /// There is no LUKS header.
    #[error("no LUKS header is on the device")]
    NotLuks,
    /// The header contradicts itself or the format.
    #[error(
        "the LUKS header is damaged: {place} is {value}, {rule}: restore it from a backup \
        (cryptsetup luksHeaderRestore)"
    )]
    Damaged {
        /// The field.
        place: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// The bytes of the header are not those that its checksum was computed of, and no second
    /// header is whole.
    #[error(
        "the LUKS header is damaged: the checksum of the header at byte {0} does not match it, and \
         no whole copy of the header was found: restore it from a backup (cryptsetup \
         luksHeaderRestore)"
    )]
    Checksum(u64),
    /// The disk needs what is not done here.
    #[error("the LUKS device has {0}, which is not supported: open it with cryptsetup")]
    Unsupported(String),
    /// To try a passphrase would cost more than is allowed.
    #[error(
        "keyslot {slot} of the LUKS device asks for {wanted} {what}, allowed are {most}: make it \
         cheaper with cryptsetup luksConvertKey"
    )]
    Costly {
        /// The keyslot.
        slot: u32,
        /// What it costs.
        what: &'static str,
        /// How much.
        wanted: u64,
        /// The limit.
        most: u64,
    },
    /// There is too little memory to try a passphrase.
    #[error(
        "keyslot {slot} of the LUKS device needs {kib} KiB of memory, which the system refuses"
    )]
    NoMemory {
        /// The keyslot.
        slot: u32,
        /// KiB.
        kib: u64,
    },
    /// No keyslot opens.
    #[error("the passphrase opens none of the {0} keyslots of the LUKS device: give another one")]
    WrongPassphrase(usize),
}

impl Error {
    pub(crate) fn damaged(
        place: &'static str,
        value: impl std::fmt::Display,
        rule: &'static str,
    ) -> Self {
        Self::Damaged { place, value: value.to_string(), rule }
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported(what.into())
    }
}

impl From<Error> for cairn_block::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Device(device) => return device.clone(),
            Error::NotLuks | Error::Damaged { .. } | Error::Checksum(_) => ErrorKind::Io,
            Error::Unsupported(_) => ErrorKind::UnsupportedFeature,
            Error::Costly { .. } => ErrorKind::Unsupported,
            Error::NoMemory { .. } => ErrorKind::NoMemory,
            Error::WrongPassphrase(_) => ErrorKind::PermissionDenied,
        };
        Self::new(kind, "open the encrypted disk", error.to_string())
    }
}
