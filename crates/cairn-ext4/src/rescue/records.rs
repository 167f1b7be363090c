//! [`Records`]: the records of inodes: those of the tables, and, where these are lost, the newest
//! copies that the log still has.

use std::cell::OnceCell;

use cairn_base::Ino;
use cairn_base::units::as_index;

use super::old::Old;
use crate::format::inode::Inode as Record;
use crate::raw::RawVolume;
use crate::raw::directory::kind_of;

/// The records of a volume.
pub(super) struct Records<'a> {
    pub(super) volume: &'a RawVolume,
    /// Read when the first record is lost.
    old: OnceCell<Old>,
}

/// The bytes of a record, and what is to be told if they are not those of the table.
pub(super) struct FoundRecord {
    pub(super) bytes: Vec<u8>,
    pub(super) other: Option<String>,
}

impl<'a> Records<'a> {
    pub(super) fn new(volume: &'a RawVolume) -> Self {
        Self { volume, old: OnceCell::new() }
    }

    /// The record of an inode that is said to be in use. One that is not, or has a wrong checksum,
    /// is replaced by what proves to be better.
    pub(super) fn of(&self, ino: Ino) -> Option<FoundRecord> {
        let volume = self.volume;
        let stored = volume.record_bytes(ino);
        if let Some(bytes) = stored.as_ref().filter(|bytes| is_live(volume, ino, bytes)) {
            return Some(FoundRecord { bytes: bytes.clone(), other: None });
        }
        if let Some(bytes) = stored.as_ref().and_then(|bytes| corrected(volume, ino, bytes)) {
            let other = "its inode has one wrong bit, which was read as its checksum tells";
            return Some(FoundRecord { bytes, other: Some(other.to_owned()) });
        }
        // A name may have stayed when its inode was freed.
        if volume.is_inode_in_use(ino) != Some(false)
            && let Some(found) = self.logged(ino)
        {
            return Some(found);
        }
        stored.map(|bytes| FoundRecord { bytes, other: None })
    }

    /// The newest copy in the log.
    fn logged(&self, ino: Ino) -> Option<FoundRecord> {
        let volume = self.volume;
        let place = volume.record_place(ino)?;
        let old = self.old.get_or_init(|| Old::load(volume));
        let end = place.offset.saturating_add(as_index(volume.layout.inode_size));
        old.of(place.pba).find_map(|(tid, block)| {
            let bytes = block.get(place.offset..end).filter(|bytes| is_live(volume, ino, bytes))?;
            let other = format!(
                "its inode is lost: the journal's copy of transaction {} was read, which may be \
                 older",
                tid.0
            );
            Some(FoundRecord { bytes: bytes.to_vec(), other: Some(other) })
        })
    }
}

/// Is this the sound record of an inode in use?
fn is_live(volume: &RawVolume, ino: Ino, bytes: &[u8]) -> bool {
    let record = Record::decode_unchecked(bytes, &volume.layout);
    Record::verify(bytes, ino, &volume.layout).is_ok()
        && record.is_some_and(|record| {
            kind_of(&record).is_some() && record.links > 0 && record.dtime == 0
        })
}

/// With the one bit right that the checksum tells.
fn corrected(volume: &RawVolume, ino: Ino, bytes: &[u8]) -> Option<Vec<u8>> {
    let is_wrong = Record::verify(bytes, ino, &volume.layout).is_err();
    if !is_wrong || bytes.iter().all(|byte| *byte == 0) {
        return None;
    }
    let (at, mask) = Record::wrong_bit(bytes, ino, &volume.layout)?;
    let mut right = bytes.to_vec();
    *right.get_mut(at)? ^= mask;
    is_live(volume, ino, &right).then_some(right)
}
