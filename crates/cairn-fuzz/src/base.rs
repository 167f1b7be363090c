//! The base images, and what inputs make of them.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::records::Input;
use crate::{ext4, f2fs, image};

/// A base: its name, and its packed image.
pub(crate) struct Base {
    name: &'static str,
    packed: &'static [u8],
    loaded: OnceLock<Loaded>,
}

/// What is known of a base.
pub(crate) struct Loaded {
    device: MemoryDevice,
    pub(crate) volume: Volume,
    /// Byte offsets of the metadata.
    places: Vec<u64>,
    /// Of the log (ext4), or of what was fsynced since the checkpoint (F2FS).
    log_places: Vec<u64>,
}

/// A volume of either format.
pub(crate) enum Volume {
    Ext4(ext4::Volume),
    F2fs(f2fs::Volume),
}

/// Which part of a base an input changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    /// The log, or the chain of fsynced nodes.
    Log,
}

macro_rules! base {
    ($name:literal) => {
        Base {
            name: $name,
            packed: include_bytes!(concat!("../corpus/bases/", $name, ".img.gz")),
            loaded: OnceLock::new(),
        }
    };
}

/// All bases. Inputs name them by number: new ones come last.
static BASES: [Base; 10] = [
    base!("ext4"),
    base!("ext4-plain"),
    base!("ext4-large"),
    base!("ext2"),
    base!("ext4-unclean"),
    base!("ext3-unclean"),
    base!("ext4-fast"),
    base!("f2fs"),
    base!("f2fs-cut"),
    base!("f2fs-extra"),
];

/// Numbers of bases.
pub(crate) type Set = &'static [usize];
pub(crate) const ALL: Set = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
/// Those with a log that is not empty.
pub(crate) const UNCLEAN: Set = &[4, 5, 6];
/// Those with nodes after the checkpoint.
pub(crate) const CUT: Set = &[8, 9];

/// Names of all bases.
pub fn names() -> impl Iterator<Item = &'static str> {
    BASES.iter().map(|base| base.name)
}

impl Base {
    fn get(&self) -> &Loaded {
        self.loaded.get_or_init(|| {
            let device = image::unpack(self.packed).expect("the repository's bases are whole");
            let is_f2fs = matches!(
                cairn::format::probe(&device).expect("memory does not fail"),
                Some(cairn::Format::F2fs)
            );
            let (volume, places, log_places) = if is_f2fs {
                let volume = f2fs::Volume::of(&device);
                let (places, chain) = (volume.places(), volume.chain_places());
                (Volume::F2fs(volume), places, chain)
            } else {
                let volume = ext4::Volume::of(&device);
                let (places, log) = (volume.places(&device), volume.journal_places(&device));
                (Volume::Ext4(volume), places, log)
            };
            Loaded { device, volume, places, log_places }
        })
    }
}

/// The base that an input names.
pub(crate) fn of(input: &Input, set: Set) -> &'static Loaded {
    BASES[set[usize::from(input.base) % set.len()]].get()
}

impl Loaded {
    fn block_size(&self) -> usize {
        match &self.volume {
            Volume::Ext4(volume) => volume.block_size(),
            Volume::F2fs(_) => 4096,
        }
    }

    /// A copy with the changes of an input, and with the checksums that they need.
    pub(crate) fn changed(&self, input: &Input, part: Part) -> Arc<MemoryDevice> {
        let device = self.device.fork();
        let places = match part {
            Part::Log if !self.log_places.is_empty() => &self.log_places,
            Part::All | Part::Log => &self.places,
        };
        let size = self.block_size();
        let read = |at: u64| device.read_at(at, size).expect("a place of the base").to_vec();
        let mut touched = BTreeSet::new();
        for change in &input.changes {
            let at = places[usize::from(change.place) % places.len()];
            let mut block = read(at);
            change.apply(&mut block, |other| read(places[usize::from(other) % places.len()]));
            device.write_at(at, block).expect("a place of the base");
            touched.insert(at);
        }
        if input.seals() {
            match &self.volume {
                Volume::Ext4(volume) => volume.seal(&device, &touched),
                Volume::F2fs(volume) => volume.seal(&device, &touched),
            }
        }
        Arc::new(device)
    }
}

/// As a device of any kind.
pub(crate) fn shared(device: &Arc<MemoryDevice>) -> Arc<dyn BlockDevice> {
    device.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume;

    /// A seal that does not compute what Cairn and mke2fs do would be found by the check.
    #[test]
    fn seals_leave_sound_bases_as_they_are() {
        for base in &BASES {
            let loaded = base.get();
            let device = loaded.device.fork();
            let touched = loaded.places.iter().chain(&loaded.log_places).copied().collect();
            match &loaded.volume {
                Volume::Ext4(volume) => volume.seal(&device, &touched),
                Volume::F2fs(volume) => volume.seal(&device, &touched),
            }
            let size = loaded.block_size();
            for at in &touched {
                let [before, after] = [&loaded.device, &device]
                    .map(|device| device.read_at(*at, size).unwrap().to_vec());
                // The first block of the orphan file and the copies of a checkpoint included.
                assert!(before == after, "{}: the block at {at:#x} differs", base.name);
            }
        }
    }

    #[test]
    fn bases_are_sound_and_have_metadata() {
        for base in &BASES {
            let loaded = base.get();
            assert!(loaded.places.len() > 20, "{}: {}", base.name, loaded.places.len());
            let device = Arc::new(loaded.device.fork());
            let found = volume::check(&shared(&device)).expect(base.name);
            assert_eq!(found.count(), 0, "{}", base.name);
        }
        for (set, least) in [(UNCLEAN, 10), (CUT, 3)] {
            for base in set.iter().map(|number| &BASES[*number]) {
                let places = base.get().log_places.len();
                assert!(places >= least, "{}: {places}", base.name);
            }
        }
    }
}
