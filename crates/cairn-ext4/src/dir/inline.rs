//! Inline directories, which are stored in their inode.
//!
//! There are two regions of entries: in `i_block` behind the parent's inode number, and in the
//! value of the attribute `system.data`. Neither contains `.` or `..` or has a checksum of its own.
//! If no gap is large enough for a new name, the directory is converted to blocks. Source: "Inline
//! Directories" in the kernel's ext4 documentation.

use std::ops::Range;

use cairn_base::units::as_u64;
use cairn_base::{FileBlock, Ino};
use cairn_vfs::{DirEntry, FileKind, Name};

use super::blocks::{DirBlocks, DirSettings};
use super::readdir::{Batch, Damage, LiveEntry, emit_dots, live_entry};
use super::{add, init_empty, ino_number};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::dir_entry::{self, Defect, Entry, Room};
use crate::txn::Handle;

/// Bytes of `i_block`.
pub(crate) const HEAD_LEN: usize = 60;
/// Bytes of the parent's inode number.
const PARENT_LEN: usize = 4;
/// Errors give the inode as block 0.
const HERE: FileBlock = FileBlock(0);

/// The bytes of an inline directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlineDir<'a> {
    /// `i_block`.
    pub head: &'a [u8; HEAD_LEN],
    /// Value of `system.data`.
    pub tail: &'a [u8],
}

/// The bytes of an inline directory, for changes. Their lengths stay.
#[derive(Debug)]
pub(crate) struct InlineDirMut<'a> {
    /// `i_block`.
    pub head: &'a mut [u8; HEAD_LEN],
    /// Value of `system.data`.
    pub tail: &'a mut [u8],
}

/// An entry of an inline directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InlineFound {
    /// Its inode.
    pub ino: Ino,
    /// Kind, if the directory stores it.
    pub kind: Option<FileKind>,
    place: Option<(Region, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Region {
    Head,
    Tail,
}

impl<'a> InlineDir<'a> {
    /// The inode number of the parent directory.
    #[must_use]
    pub(crate) fn parent(&self) -> Ino {
        let number = self.head.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        Ino(u64::from(number))
    }

    fn region(&self, region: Region) -> (&'a [u8], Range<usize>) {
        match region {
            Region::Head => (self.head, PARENT_LEN..HEAD_LEN),
            Region::Tail => (self.tail, 0..self.tail.len()),
        }
    }

    fn entries(
        &self,
        region: Region,
        settings: &'a DirSettings,
    ) -> impl Iterator<Item = Result<Entry<'a>, Corrupt>> + use<'a> {
        let (bytes, range) = self.region(region);
        dir_entry::entries_in(bytes, range, &settings.format)
            .map(|entry| entry.map_err(|d| settings.corrupt(HERE, d)))
    }

    /// All entries.
    fn live(&self, settings: &'a DirSettings) -> Result<Vec<LiveEntry<'a>>> {
        let mut damage = Damage::default();
        let live = self.live_past(settings, &mut damage);
        damage.end(live)
    }

    /// All entries that can be read.
    fn live_past(
        &self,
        settings: &'a DirSettings,
        damage: &mut Damage,
    ) -> Result<Vec<LiveEntry<'a>>> {
        let mut live = Vec::new();
        for entry in
            self.entries(Region::Head, settings).chain(self.entries(Region::Tail, settings))
        {
            let entry =
                entry.and_then(|entry| live_entry(settings, HERE, entry)).map_err(Error::from);
            live.extend(damage.pass(entry)?.flatten());
        }
        Ok(live)
    }

    /// Finds a name, including `.` and `..`.
    ///
    /// # Errors
    /// An entry is invalid.
    pub(crate) fn lookup(
        &self,
        settings: &DirSettings,
        name: &[u8],
    ) -> Result<Option<InlineFound>> {
        if name == b"." || name == b".." {
            let ino = if name == b"." { settings.ino } else { self.parent() };
            let kind = settings.format.filetype.then_some(FileKind::Directory);
            return Ok(Some(InlineFound { ino, kind, place: None }));
        }
        let mut damage = Damage::default();
        for region in [Region::Head, Region::Tail] {
            let (bytes, range) = self.region(region);
            let found =
                dir_entry::find(dir_entry::entries_in(bytes, range, &settings.format), name)
                    .map_err(|defect| settings.corrupt(HERE, defect).into());
            if let Some(entry) = damage.pass(found)?.flatten() {
                let (ino, kind) = (Ino(u64::from(entry.ino)), entry.kind(&settings.format));
                return Ok(Some(InlineFound { ino, kind, place: Some((region, entry.offset)) }));
            }
        }
        damage.end(Ok(None))
    }

    /// True if the directory contains only `.` and `..`.
    ///
    /// # Errors
    /// An entry is invalid.
    pub(crate) fn is_empty(&self, settings: &DirSettings) -> Result<bool> {
        Ok(self.live(settings)?.is_empty())
    }

    /// As [`super::readdir`], with the same positions, so that they stay valid after the conversion
    /// to blocks.
    ///
    /// # Errors
    /// An entry is invalid; all readable ones have been passed to `emit`.
    pub(crate) fn readdir(
        &self,
        settings: &DirSettings,
        position: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let mut damage = Damage::default();
        let live = self.live_past(settings, &mut damage)?;
        let listed = match settings.dir_index {
            true => self.by_hash(settings, &live, position, emit),
            false => self.by_offset(settings, &live, position, emit),
        };
        damage.end(listed)
    }

    fn by_hash(
        &self,
        settings: &DirSettings,
        live: &[LiveEntry<'_>],
        position: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let kind = settings.format.filetype.then_some(FileKind::Directory);
        if emit_dots(settings.ino, self.parent(), kind, position, emit) {
            let mut batch = Batch::from(position.max(2));
            let version = settings.hash.default_version;
            for entry in live {
                let hash = settings.hash(version, entry.0.bytes())?;
                batch.offer(settings, (version, hash), entry);
            }
            batch.emit(emit);
        }
        Ok(())
    }

    /// The positions are the offsets that the names will have in a block.
    fn by_offset(
        &self,
        settings: &DirSettings,
        live: &[LiveEntry<'_>],
        position: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let dot = |ino, name: Name<'static>| {
            (ino, settings.format.filetype.then_some(FileKind::Directory), name)
        };
        let dots = [dot(settings.ino, Name::DOT), dot(self.parent(), Name::DOT_DOT)];
        let names =
            live.iter().map(|(name, e)| (Ino(u64::from(e.ino)), e.kind(&settings.format), *name));
        let mut at = 0_u64;
        for (ino, kind, name) in dots.into_iter().chain(names) {
            let next = at.saturating_add(as_u64(dir_entry::entry_len(name.len())));
            if at >= position && !emit(DirEntry { ino, kind, name: name.to_buf(), next }) {
                return Ok(());
            }
            at = next;
        }
        Ok(())
    }

    /// Writes all entries to blocks of `dir`, which has none yet. The caller passes a copy of the
    /// bytes, because those of the inode become the root of the map.
    ///
    /// # Errors
    /// As [`super::add`].
    pub(crate) fn convert(&self, dir: &dyn DirBlocks, handle: &Handle) -> Result<()> {
        let settings = dir.settings();
        init_empty(dir, handle, self.parent())?;
        let copy = settings;
        for (name, entry) in self.live(&copy)? {
            // Without the filetype feature the kind is not stored.
            let kind = entry.kind(&settings.format).unwrap_or(FileKind::Regular);
            add(dir, handle, name, Ino(u64::from(entry.ino)), kind)?;
        }
        Ok(())
    }
}

impl InlineDirMut<'_> {
    /// The same bytes, for reading.
    #[must_use]
    pub(crate) fn view(&self) -> InlineDir<'_> {
        InlineDir { head: self.head, tail: self.tail }
    }

    fn region(&mut self, region: Region) -> (&mut [u8], Range<usize>) {
        let tail_len = self.tail.len();
        match region {
            Region::Head => (self.head, PARENT_LEN..HEAD_LEN),
            Region::Tail => (self.tail, 0..tail_len),
        }
    }

    /// Makes the bytes an empty directory.
    #[cfg(test)]
    pub(crate) fn init_empty(&mut self, parent: Ino) {
        self.head[..PARENT_LEN].copy_from_slice(&ino_number(parent).to_le_bytes());
        for region in [Region::Head, Region::Tail] {
            let (bytes, range) = self.region(region);
            if !range.is_empty() {
                dir_entry::pack(bytes, range, []);
            }
        }
    }

    /// Adds a name that does not exist. False if there is no room: the caller converts the
    /// directory.
    ///
    /// # Errors
    /// An entry is invalid, or the name exists.
    pub(crate) fn add(
        &mut self,
        settings: &DirSettings,
        name: Name<'_>,
        ino: Ino,
        kind: FileKind,
    ) -> Result<bool> {
        let format = &settings.format;
        for region in [Region::Head, Region::Tail] {
            let (bytes, range) = self.region(region);
            let room = dir_entry::room(dir_entry::entries_in(bytes, range, format), &name)
                .map_err(|defect| settings.corrupt(HERE, defect))?;
            match room {
                Room::Taken => return Err(cairn_vfs::Error::Exists.into()),
                Room::Full => {}
                Room::At(at) => {
                    dir_entry::insert_at(
                        bytes,
                        at,
                        format,
                        ino_number(ino),
                        format.file_type(kind),
                        &name,
                    );
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Removes a name and returns its entry.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::NotFound`] if it does not exist; an entry is invalid.
    pub(crate) fn remove(&mut self, settings: &DirSettings, name: &[u8]) -> Result<InlineFound> {
        let found = self.view().lookup(settings, name)?.ok_or(cairn_vfs::Error::NotFound)?;
        let (region, at) =
            found.place.ok_or(cairn_vfs::Error::Invalid("`.` and `..` cannot be removed"))?;
        let (bytes, range) = self.region(region);
        dir_entry::remove_at(bytes, range, &settings.format, at)
            .map_err(|defect: Defect| settings.corrupt(HERE, defect))?;
        Ok(found)
    }

    /// Changes the inode of a name or of `..`, and returns the old entry.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::NotFound`] if it does not exist; an entry is invalid.
    pub(crate) fn set_target(
        &mut self,
        settings: &DirSettings,
        name: &[u8],
        ino: Ino,
        kind: FileKind,
    ) -> Result<InlineFound> {
        let found = self.view().lookup(settings, name)?.ok_or(cairn_vfs::Error::NotFound)?;
        match found.place {
            Some((region, at)) => {
                let (bytes, _) = self.region(region);
                dir_entry::retarget_at(bytes, at, ino_number(ino), settings.format.file_type(kind));
            }
            None if name == b".." => {
                self.head[..PARENT_LEN].copy_from_slice(&ino_number(ino).to_le_bytes())
            }
            None => return Err(cairn_vfs::Error::Invalid("`.` cannot be changed").into()),
        }
        Ok(found)
    }
}
