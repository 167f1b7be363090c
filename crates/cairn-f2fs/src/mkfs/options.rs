//! What a new volume is to be.

use uuid::Uuid;

use super::error::Error;

/// What to make. The defaults are mkfs.f2fs's.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Label, at most 511 UTF-16 units.
    pub label: Option<String>,
    /// UUID; random if absent.
    pub uuid: Option<Uuid>,
    /// Features, in mkfs.f2fs's words; there are none by default.
    pub features: Vec<String>,
    /// How names are compared in directories that ignore case: `utf8` or `utf8:strict`, which ask
    /// for the feature `casefold`.
    pub casefold: Option<String>,
    /// Per cent of the main area kept for cleaning. If absent, the value that leaves the most space
    /// to users.
    pub overprovision: Option<f64>,
    /// Segments per section.
    pub segments_per_section: u32,
    /// Sections per zone.
    pub sections_per_zone: u32,
    /// For devices with zones that must be written in order: a section is a zone then.
    pub zoned: bool,
    /// Sections kept for cleaning on zoned devices, instead of a number that follows from the
    /// overprovision.
    pub reserved_sections: Option<u32>,
    /// Room for the NAT's bitmap beyond the checkpoint block: more nodes on large volumes.
    pub large_nat_bitmap: bool,
    /// Bytes of the volume; the whole device if absent.
    pub size: Option<u64>,
    /// Time of all timestamps, in seconds since the epoch; `SOURCE_DATE_EPOCH` or now if absent.
    /// With a UUID and with this or `SOURCE_DATE_EPOCH`, the image is reproducible.
    pub time: Option<i64>,
    /// Owner and group of the root directory; 0 and 0 if absent.
    pub root_owner: Option<(u32, u32)>,
}

impl MkfsOptions {
    /// Checks what depends on nothing else.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.overprovision.is_some_and(|percent| !(percent > 0.0 && percent < 100.0)) {
            return Err(Error::Option(
                "the overprovision is a percentage between 0 and 100".into(),
            ));
        }
        Ok(())
    }
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            label: None,
            uuid: None,
            features: Vec::new(),
            casefold: None,
            overprovision: None,
            segments_per_section: 1,
            sections_per_zone: 1,
            zoned: false,
            reserved_sections: None,
            large_nat_bitmap: false,
            size: None,
            time: None,
            root_owner: None,
        }
    }
}
