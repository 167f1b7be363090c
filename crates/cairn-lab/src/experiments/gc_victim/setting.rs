//! The volume: the proposal's geometry, at full size or scaled to the same share in use.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_base::runtime::{Daemon, DaemonHandle, Event, NoThread, Runtime, RuntimeOver};
use cairn_block::BlockDevice;
use cairn_block::tagged::TaggedMemory;
use cairn_block::wrap::{Concat, Stats};
use cairn_block::zoned::{Emulated, ZoneLayout};
use cairn_f2fs::mkfs::{self, MkfsOptions, NamedDevice};
use cairn_f2fs::{F2fs, MountOptions};

use crate::error::Result;
use crate::scale::Scale;

const MIB: u64 = 1 << 20;
pub(super) const SEGMENT: u64 = 2 * MIB;
/// Pointers of a direct node.
const NODE_POINTERS: u64 = 1018;
/// Blocks left free beside the file's: the root, and those of the first checkpoint.
const MARGIN: u64 = 32;
pub(super) const OVERPROVISION: f64 = 3.89;
const RESERVED_SECTIONS: u32 = 8;
/// Number of open sections.
const LOGS: u32 = 6;

/// Sizes of a volume, of its file and of its cache.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    zone: u64,
    zones: u32,
    /// Memory for caches of a volume, in bytes.
    cache: u64,
    /// Blocks of the file that fills the volume.
    file: u64,
    /// Percent of the sections that are not reserved.
    overprovision: f64,
}

impl Setting {
    pub(super) fn of(scale: Scale) -> Self {
        let (zone, zones) = scale.pick((SEGMENT, 254), (SEGMENT, 1017), (4 * SEGMENT, 4068));
        let setting = Self {
            zone,
            zones,
            cache: scale.pick(64, 128, 1024) * MIB,
            file: 0,
            overprovision: OVERPROVISION,
        };
        let whole = setting.largest_file(setting.user_blocks());
        // The proposal's file, or one that fills the same share of a smaller volume.
        let file = match scale {
            Scale::Full => 31_187 * MIB / 4096,
            Scale::Quick | Scale::Default => {
                let full = Self::of(Scale::Full);
                ((setting.room() as f64 * full.utilisation()) as u64).min(whole)
            }
        };
        Self { file, ..setting }
    }

    /// A volume with zones of this size, and a file that takes the share of it that the largest
    /// file takes of the proposal's volume with this overprovision.
    pub(super) fn shaped(zone: u64, zones: u32, overprovision: f64) -> Self {
        let full = Self { overprovision, ..Self::of(Scale::Full) };
        let part = full.largest_file(full.user_blocks()) as f64 / full.room() as f64;
        let cache = (zone * u64::from(zones) / 16).clamp(64 * MIB, 1024 * MIB);
        let setting = Self { zone, zones, cache, file: 0, overprovision };
        let whole = setting.largest_file(setting.user_blocks());
        Self { file: ((setting.room() as f64 * part) as u64).min(whole), ..setting }
    }

    /// A volume that is small enough for a test.
    #[cfg(test)]
    pub(super) fn smallest() -> Self {
        let setting = Self {
            zone: SEGMENT,
            zones: 96,
            cache: 32 * MIB,
            file: 0,
            overprovision: OVERPROVISION,
        };
        Self { file: setting.largest_file(setting.user_blocks()), ..setting }
    }

    /// Number of blocks for users, by the formula of mkfs.
    fn user_blocks(&self) -> u64 {
        let per_section = self.zone / SEGMENT;
        let (main, reserved) =
            (u64::from(self.zones) * per_section, u64::from(RESERVED_SECTIONS) * per_section);
        let overprovision =
            ((main - reserved) as f64 * self.overprovision / 100.0) as u64 + reserved;
        (main - overprovision) * (SEGMENT / 4096)
    }

    /// Blocks of the largest file that fits together with its nodes.
    fn largest_file(&self, blocks: u64) -> u64 {
        let left = blocks.saturating_sub(MARGIN);
        left - left.div_ceil(NODE_POINTERS) - left.div_ceil(NODE_POINTERS * NODE_POINTERS) - 1
    }

    /// Blocks of the files if they fill this share of the volume. Without it they fill the volume.
    pub(super) fn file_blocks(&self, fill: Option<f64>) -> u64 {
        fill.map_or(self.file, |part| self.largest_file((self.user_blocks() as f64 * part) as u64))
    }

    /// Blocks of the sections that are neither reserved nor open: a small volume has the same share
    /// of them as a large one.
    fn room(&self) -> u64 {
        u64::from(self.zones - RESERVED_SECTIONS - LOGS) * self.zone / 4096
    }

    /// The share of [`Setting::room`] that the file of the full volume takes.
    pub(super) fn utilisation(&self) -> f64 {
        self.file as f64 / self.room() as f64
    }

    pub(super) fn describe(&self) -> String {
        format!(
            "{} zones of {} MiB behind conventional ones that hold the metadata, -Z \
             {RESERVED_SECTIONS} -o {}; a file of {} MiB; cache={} MiB.",
            self.zones,
            self.zone / MIB,
            self.overprovision,
            self.file * 4096 / MIB,
            self.cache / MIB
        )
    }

    /// Creates a volume with this policy on new memory.
    pub(super) fn make(&self, policy: &str) -> Result<(Arc<F2fs>, Arc<Stats>)> {
        let layout = ZoneLayout::new(self.zone, 0, self.zones);
        let zoned: Arc<dyn BlockDevice> =
            Arc::new(Emulated::new(Arc::new(TaggedMemory::new(layout.size())), layout)?);
        let runtime: Arc<dyn Runtime> = Arc::new(NoDaemons(Threads::new()));
        let whole = self.format(&zoned, &*runtime)?;
        let stats = Arc::new(Stats::new(whole));
        let cache = self.cache;
        let options = format!("gc_victim={policy},nocheckpoint_merge,cache={cache}");
        let volume = F2fs::open(stats.clone(), runtime, &MountOptions::parse(&options)?)?;
        Ok((volume, stats))
    }

    /// Formats the volume with the smallest conventional device that has room for the metadata, so
    /// that the main area consists of all zones.
    fn format(
        &self,
        zoned: &Arc<dyn BlockDevice>,
        runtime: &dyn Runtime,
    ) -> Result<Arc<dyn BlockDevice>> {
        let options = MkfsOptions {
            zoned: true,
            overprovision: Some(self.overprovision),
            reserved_sections: Some(RESERVED_SECTIONS),
            ..MkfsOptions::default()
        };
        let mut size = 2 * self.zone;
        loop {
            let conventional: Arc<dyn BlockDevice> = Arc::new(TaggedMemory::new(size));
            let named = |path: &str, device: &Arc<dyn BlockDevice>| NamedDevice {
                path: path.to_owned(),
                device: device.clone(),
            };
            let devices = [named("conventional", &conventional), named("zoned", zoned)];
            match mkfs::make_on(&devices, &options, runtime) {
                Ok(_) => {
                    let parts = vec![(conventional, size), (zoned.clone(), zoned.geometry().size)];
                    return Ok(Arc::new(Concat::new(parts)?));
                }
                // The metadata needs more room.
                Err(mkfs::Error::Option(_)) if size < 1 << 30 => size += SEGMENT,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// True if a volume can be opened with this policy.
pub(super) fn is_policy(policy: &str) -> bool {
    MountOptions::parse(&format!("gc_victim={policy}")).is_ok()
}

/// Data blocks that greedy writes for each block of uniform random overwrites, if the share `dirty`
/// of the file is in memory. The valid share r of victims solves u = (1 - r) / -ln r.
pub(super) fn floor(utilisation: f64, dirty: f64) -> f64 {
    let used = utilisation * (1.0 - dirty);
    let (mut low, mut high) = (1e-9, 1.0 - 1e-9);
    for _ in 0..100 {
        let valid: f64 = (low + high) / 2.0;
        if (1.0 - valid) / -valid.ln() < used {
            low = valid;
        } else {
            high = valid;
        }
    }
    (1.0 - dirty) / (1.0 - low)
}

/// A runtime with threads but without daemons: nothing is written that the work does not ask for.
struct NoDaemons(Arc<Threads>);

impl RuntimeOver for NoDaemons {
    fn inner(&self) -> &dyn Runtime {
        &*self.0
    }

    fn spawn(
        &self,
        _name: &str,
        _wake: Arc<Event>,
        _daemon: Arc<dyn Daemon>,
    ) -> Result<DaemonHandle, NoThread> {
        Ok(DaemonHandle::new(|| {}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_setting_is_the_proposals() {
        let setting = Setting::of(Scale::Full);
        assert_eq!((setting.user_blocks(), setting.file), (15_609 * 512, 7_983_872));
        assert!((setting.utilisation() - 0.9616).abs() < 1e-4);
        assert!(setting.largest_file(setting.user_blocks()) >= setting.file - MARGIN);
    }

    #[test]
    fn a_smaller_one_fills_as_much() {
        let (small, full) = (Setting::of(Scale::Default), Setting::of(Scale::Full));
        assert!((small.utilisation() - full.utilisation()).abs() < 1e-3);
        assert!(small.file <= small.largest_file(small.user_blocks()));
    }

    #[test]
    fn the_floor_is_that_of_the_theory() {
        let close =
            |found: f64, known: f64| assert!((found - known).abs() < 0.02, "{found} {known}");
        close(floor(0.9583, 0.0), 12.16);
        close(floor(0.9602, 0.0), 12.73);
        close(floor(0.9602, 0.005), 11.32);
        close(floor(0.9602, 0.05), 5.58);
    }
}
