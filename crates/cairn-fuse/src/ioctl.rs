//! The ioctls that test suites and tools use. FIEMAP is missing: the kernel answers it, and does
//! not pass it on to a FUSE server.
//!
//! The kernel checks who may change an inode's flags. Ioctls on the whole volume are for root,
//! which is checked here.

use cairn_base::Ino;
use cairn_vfs::{Error, FileSystem, GoingDown, InodeFlags, Result, SetAttributes};

use crate::credentials::Credentials;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC32_GETFLAGS: u32 = 0x8004_6601;
const FS_IOC32_SETFLAGS: u32 = 0x4004_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const EXT4_IOC_GETVERSION: u32 = 0x8008_6603;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FS_IOC_GETFSLABEL: u32 = 0x8100_9431;
const FS_IOC_SETFSLABEL: u32 = 0x4100_9432;
const FITRIM: u32 = 0xc018_5879;
/// Its number says "read", so the kernel passes no data in. The flags are read from the caller's
/// memory.
const EXT4_IOC_SHUTDOWN: u32 = 0x8004_587d;

/// `EXT4_GOING_FLAGS_*` and `F2FS_GOING_DOWN_*`, by number.
const GOING_DOWN: [GoingDown; 5] = [
    GoingDown::FullSync,
    GoingDown::MetaSync,
    GoingDown::NoSync,
    GoingDown::MetaFlush,
    GoingDown::NeedFsck,
];

const FSXATTR_SIZE: usize = 28;
const LABEL_SIZE: usize = 256;

/// `FS_XFLAG_*` and the inode flags they stand for.
const XFLAGS: [(u32, InodeFlags); 6] = [
    (0x08, InodeFlags::IMMUTABLE),
    (0x10, InodeFlags::APPEND),
    (0x20, InodeFlags::SYNC),
    (0x40, InodeFlags::NOATIME),
    (0x80, InodeFlags::NODUMP),
    (0x200, InodeFlags::PROJINHERIT),
];

/// A request. `None` if the number is unknown (ENOTTY).
pub(crate) struct Ioctl {
    pub(crate) ino: Ino,
    pub(crate) caller: Credentials,
    pub(crate) command: u32,
    /// The caller's address, or the value that it passed instead.
    pub(crate) argument: u64,
    pub(crate) input: Vec<u8>,
    pub(crate) output_size: usize,
}

impl Ioctl {
    pub(crate) fn is_known(&self) -> bool {
        matches!(
            self.command,
            FS_IOC_GETFLAGS
                | FS_IOC_SETFLAGS
                | FS_IOC32_GETFLAGS
                | FS_IOC32_SETFLAGS
                | FS_IOC_GETVERSION
                | EXT4_IOC_GETVERSION
                | FS_IOC_FSGETXATTR
                | FS_IOC_FSSETXATTR
                | FS_IOC_GETFSLABEL
                | FS_IOC_SETFSLABEL
                | FITRIM
                | EXT4_IOC_SHUTDOWN
        )
    }

    /// It may set or clear the immutable or append-only flag.
    pub(crate) fn sets_flags(&self) -> bool {
        matches!(self.command, FS_IOC_SETFLAGS | FS_IOC32_SETFLAGS | FS_IOC_FSSETXATTR)
    }

    /// Everything must be on the disk before the shutdown, the kernel's dirty pages, too.
    pub(crate) fn ends_with_everything(&self) -> bool {
        self.command == EXT4_IOC_SHUTDOWN
            && self.going_down() == Some(GoingDown::FullSync)
            && self.caller.is_root()
    }

    /// If the caller's memory cannot be read: the most severe.
    fn going_down(&self) -> Option<GoingDown> {
        let Some(word) = self.caller.word_at(self.argument) else { return Some(GoingDown::NoSync) };
        GOING_DOWN.get(usize::try_from(word).ok()?).copied()
    }

    /// Carries it out; returns what goes back to the caller's buffer.
    pub(crate) fn run(&self, fs: &dyn FileSystem) -> Result<Vec<u8>> {
        let mut output = self.answer(fs)?;
        output.truncate(self.output_size);
        Ok(output)
    }

    fn answer(&self, fs: &dyn FileSystem) -> Result<Vec<u8>> {
        match self.command {
            FS_IOC_GETFLAGS | FS_IOC32_GETFLAGS => {
                Ok(fs.getattr(self.ino)?.flags.bits().to_ne_bytes().to_vec())
            }
            FS_IOC_SETFLAGS | FS_IOC32_SETFLAGS => {
                let flags = InodeFlags::from_bits(self.word(0)?)
                    .ok_or(Error::Unsupported("inode flags"))?;
                self.set_flags(fs, flags)
            }
            // Its number says eight bytes; Linux writes four.
            FS_IOC_GETVERSION | EXT4_IOC_GETVERSION => {
                Ok(fs.getattr(self.ino)?.generation.to_ne_bytes().to_vec())
            }
            FS_IOC_FSGETXATTR => {
                let flags = fs.getattr(self.ino)?.flags;
                let bits = XFLAGS
                    .iter()
                    .filter(|(_, flag)| flags.contains(*flag))
                    .fold(0, |bits, (bit, _)| bits | bit);
                let mut output = bits.to_ne_bytes().to_vec();
                output.resize(FSXATTR_SIZE, 0);
                Ok(output)
            }
            FS_IOC_FSSETXATTR => self.set_fsxattr(fs),
            FS_IOC_GETFSLABEL => {
                let mut label = fs.label()?;
                label.resize(LABEL_SIZE, 0);
                Ok(label)
            }
            FS_IOC_SETFSLABEL => {
                self.need_root()?;
                // Linux refuses a label that fills the whole buffer.
                let end = self
                    .input
                    .iter()
                    .position(|byte| *byte == 0)
                    .ok_or(Error::Invalid("label without an end"))?;
                fs.set_label(&self.input[..end]).map(|()| Vec::new())
            }
            FITRIM => self.trim(fs),
            EXT4_IOC_SHUTDOWN => self.shut_down(fs),
            _ => Err(Error::Invalid("unknown ioctl")),
        }
    }

    fn set_flags(&self, fs: &dyn FileSystem, flags: InodeFlags) -> Result<Vec<u8>> {
        fs.setattr(self.ino, &SetAttributes { flags: Some(flags), ..SetAttributes::default() })?;
        Ok(Vec::new())
    }

    fn set_fsxattr(&self, fs: &dyn FileSystem) -> Result<Vec<u8>> {
        let (bits, extent_size, project) = (self.word(0)?, self.word(4)?, self.word(12)?);
        let known = XFLAGS.iter().fold(0, |known, (bit, _)| known | bit);
        if bits & !known != 0 || extent_size != 0 || project != 0 {
            return Err(Error::Unsupported("project ids and extent sizes"));
        }
        let mut flags = fs.getattr(self.ino)?.flags;
        for (bit, flag) in XFLAGS {
            flags.set(flag, bits & bit != 0);
        }
        self.set_flags(fs, flags)
    }

    fn shut_down(&self, fs: &dyn FileSystem) -> Result<Vec<u8>> {
        self.need_root()?;
        fs.go_down(self.going_down().ok_or(Error::Invalid("flags of a shutdown"))?)
            .map(|()| Vec::new())
    }

    fn trim(&self, fs: &dyn FileSystem) -> Result<Vec<u8>> {
        self.need_root()?;
        let (start, len, minimum) = (self.long(0)?, self.long(8)?, self.long(16)?);
        let trimmed = fs.trim(start, len, minimum)?;
        Ok([start, trimmed, minimum].into_iter().flat_map(u64::to_ne_bytes).collect())
    }

    fn need_root(&self) -> Result<()> {
        if self.caller.is_root() { Ok(()) } else { Err(Error::NotPermitted) }
    }

    fn word(&self, at: usize) -> Result<u32> {
        let bytes = self.input.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Error::Invalid("short ioctl argument"))
    }

    fn long(&self, at: usize) -> Result<u64> {
        let bytes = self.input.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| u64::from_ne_bytes(*bytes)).ok_or(Error::Invalid("short ioctl argument"))
    }
}
