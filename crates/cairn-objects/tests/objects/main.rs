//! Object volumes on a store in memory or in a directory: README.md says who judges what.

mod crash;
mod damaged_log;
mod filesystems;
mod local_log;
mod lost;
mod older_log;
mod older_manifest;
mod pool;
mod requests;
mod writers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::runtime::threads::Threads;
use cairn_block::{
    Batch, BlockDevice, BlockDeviceExt, Bytes, Durability, Request, Result as DeviceResult,
};
use cairn_objects::store::{MemoryStore, Store};
use cairn_objects::volume::{CreateOptions, ObjectVolume, Options, TakeOver, create_in};

const SIZE: u64 = 4 << 20;
const SECTOR: u64 = 512;
const SECTORS: u64 = SIZE / SECTOR;

/// Small objects, so that a test meets many; nothing happens in the background.
fn small() -> CreateOptions {
    CreateOptions { object_size: 64 << 10, ..CreateOptions::default() }
}

/// Requests that fail are not repeated, and a writer that is known is not in the way.
fn options() -> Options {
    Options {
        take_over: TakeOver::Always,
        patience: Duration::ZERO,
        reclaim: false,
        runtime: Threads::new(),
        ..Options::default()
    }
}

fn volume(store: &Arc<MemoryStore>) -> ObjectVolume {
    create_in(store.clone(), "main", SIZE, &small(), &options()).unwrap();
    open(store.clone()).unwrap()
}

fn open(store: Arc<dyn Store>) -> DeviceResult<ObjectVolume> {
    ObjectVolume::open_in(store, "main", &options())
}

fn read_only() -> Options {
    Options { read_only: true, ..options() }
}

/// What each sector holds: the number of the write, or 0 for zeros.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Oracle(BTreeMap<u64, u64>);

/// The bytes that write `number` puts into a sector.
fn fill(number: u64, sector: u64) -> [u8; 512] {
    let mut bytes = [0; 512];
    let words = bytes.as_chunks_mut::<8>().0;
    for (word, at) in words.iter_mut().zip(0..) {
        *word = (number << 32 | sector).wrapping_add(at * 0x0101).to_le_bytes();
    }
    bytes
}

fn data(number: u64, start: u64, sectors: u64) -> Bytes {
    (start..start + sectors).flat_map(|sector| fill(number, sector)).collect::<Vec<_>>().into()
}

impl Oracle {
    fn write(&mut self, device: &dyn BlockDevice, number: u64, start: u64, sectors: u64) {
        self.try_write(device, number, (start, sectors), Durability::default()).unwrap();
    }

    /// Writes, and remembers it whatever comes of it.
    fn try_write(
        &mut self,
        device: &dyn BlockDevice,
        number: u64,
        (start, sectors): (u64, u64),
        durability: Durability,
    ) -> DeviceResult<()> {
        self.0.extend((start..start + sectors).map(|sector| (sector, number)));
        let bytes = data(number, start, sectors);
        // In odd pieces.
        let cut = bytes.len() / 3;
        let bufs = vec![bytes.slice(..cut), bytes.slice(cut..)];
        let requests = vec![Request::Write { offset: start * SECTOR, bufs }];
        device.submit(Batch { requests, durability }).wait().map(drop)
    }

    fn clear(&mut self, device: &dyn BlockDevice, start: u64, sectors: u64) {
        self.0.retain(|sector, _| !(start..start + sectors).contains(sector));
        device.discard(start * SECTOR, sectors * SECTOR).unwrap();
    }

    /// What sectors a device has otherwise; the first one.
    fn differs(&self, device: &dyn BlockDevice) -> Option<u64> {
        let bytes = device.read_at(0, device.geometry().size as usize).unwrap();
        let mut sectors = bytes.chunks(512).zip(0..);
        let wrong = sectors.find(|(found, sector)| match self.0.get(sector) {
            Some(number) => **found != fill(*number, *sector),
            None => found.iter().any(|byte| *byte != 0),
        });
        wrong.map(|(_, sector)| sector)
    }
}

/// Changes the text of the manifest.
fn change_manifest(store: &MemoryStore, from: &str, to: &str) {
    let object = store.get("volumes/main").unwrap();
    let text = String::from_utf8(object.bytes.to_vec()).unwrap();
    let line = text.lines().next().unwrap().replace(from, to);
    let sum = !cairn_base::checksum::crc32c(!0, line.as_bytes());
    let bytes = Bytes::from(format!("{line}\ncrc32c {sum:08x}\n"));
    let condition = cairn_objects::store::Condition::IfMatch(&object.tag);
    store.put("volumes/main", &[bytes], condition).unwrap();
}

/// Seeded numbers, for operations.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

/// Any operations, against what single sectors are; with reopening in all ways.
#[test]
fn a_volume_is_a_disk() {
    for seed in 0..6 {
        println!("seed {seed}");
        let store = Arc::new(MemoryStore::new());
        let mut device = volume(&store);
        let (mut random, mut oracle) = (Random(seed), Oracle::default());
        for number in 1..250 {
            let start = random.below(SECTORS - 200);
            let sectors = 1 + random.below(200);
            match random.below(20) {
                0..10 => oracle.write(&device, number, start, sectors),
                10..12 => oracle.clear(&device, start, sectors),
                12..14 => {
                    let len = (sectors * SECTOR) as usize;
                    let read = device.read_at(start * SECTOR, len).unwrap();
                    for (found, sector) in read.chunks(512).zip(start..) {
                        match oracle.0.get(&sector) {
                            Some(number) => assert!(*found == fill(*number, sector), "{sector}"),
                            None => assert!(found.iter().all(|byte| *byte == 0), "{sector}"),
                        }
                    }
                }
                14..16 => device.flush().unwrap(),
                16 => device.checkpoint().unwrap(),
                17 => drop(device.repack().unwrap()),
                18 => {
                    device.close().unwrap();
                    device = open(store.clone()).unwrap();
                }
                _ => {
                    device.flush().unwrap();
                    device.abandon();
                    let reader = ObjectVolume::open_in(store.clone(), "main", &read_only());
                    assert_eq!(oracle.differs(&reader.unwrap()), None);
                    device = open(store.clone()).unwrap();
                }
            }
        }
        assert_eq!(oracle.differs(&device), None);
        drop(device);
        let reader = ObjectVolume::open_in(store.clone(), "main", &read_only()).unwrap();
        assert_eq!(oracle.differs(&reader), None);
        assert!(reader.write_at(0, vec![0; 512]).is_err());
    }
}

#[test]
fn an_address_leads_to_a_volume_in_a_directory() {
    let place = tempfile::tempdir().unwrap();
    let pool = format!("file-store://{}/pool", place.path().display());
    let address: cairn_objects::Address = format!("{pool}@disk").parse().unwrap();
    cairn_objects::create(&address, SIZE, &small(), &options()).unwrap();
    let kept = Some((place.path().join("cache"), 1 << 20));
    let cached = Options { cache: 0, cache_directory: kept, ..options() };
    let mut oracle = Oracle::default();
    for round in 1..4 {
        let device = cairn_objects::open(&address, &cached).unwrap();
        assert_eq!(oracle.differs(&*device), None);
        for number in 1..20 {
            oracle.write(&*device, round * 100 + number, number * 100 + round, 40);
        }
        device.flush().unwrap();
    }
    let device = cairn_objects::open(&address, &cached).unwrap();
    assert_eq!(oracle.differs(&*device), None);
    assert!(place.path().join("pool/volumes/disk").is_file());
    assert!(std::fs::read_dir(place.path().join("cache")).unwrap().count() > 0);
    for other in ["@none", "/absent@disk"] {
        let absent = format!("{pool}{other}").parse().unwrap();
        let error = cairn_objects::open(&absent, &options()).err().unwrap();
        assert_eq!(error.kind, cairn_block::ErrorKind::NotFound, "{error}");
    }
    #[cfg(not(feature = "remote"))]
    {
        let remote = "s3://bucket/pool".parse().unwrap();
        let error = cairn_objects::open(&remote, &options()).err().unwrap();
        assert_eq!(error.kind, cairn_block::ErrorKind::Unsupported, "{error}");
    }
}

/// A store that ignores the conditions of PUTs is refused before anything is written.
#[test]
fn a_store_without_conditions_is_refused() {
    struct Careless(MemoryStore, bool);
    impl Store for Careless {
        fn put(
            &self,
            name: &str,
            parts: &[Bytes],
            condition: cairn_objects::store::Condition<'_>,
        ) -> cairn_objects::store::Result<cairn_objects::store::Tag> {
            use cairn_objects::store::Condition;
            if matches!(condition, Condition::IfAbsent) && self.1 {
                return self.0.put(name, parts, condition);
            }
            self.0.delete(name)?;
            self.0.put(name, parts, Condition::IfAbsent)
        }
        fn get(&self, name: &str) -> cairn_objects::store::Result<cairn_objects::store::Object> {
            self.0.get(name)
        }
        fn get_range(
            &self,
            name: &str,
            range: std::ops::Range<u64>,
        ) -> cairn_objects::store::Result<Bytes> {
            self.0.get_range(name, range)
        }
        fn list(
            &self,
            prefix: &str,
            after: Option<&str>,
        ) -> cairn_objects::store::Result<Vec<cairn_objects::store::Listed>> {
            self.0.list(prefix, after)
        }
        fn delete(&self, name: &str) -> cairn_objects::store::Result<()> {
            self.0.delete(name)
        }
    }
    for (creates, lacks) in [(false, "If-None-Match"), (true, "If-Match")] {
        let store = Arc::new(Careless(MemoryStore::new(), creates));
        let error = create_in(store.clone(), "main", SIZE, &small(), &options()).unwrap_err();
        assert_eq!(error.kind, cairn_block::ErrorKind::Unsupported);
        let said = error.to_string();
        assert!(said.contains(&format!("condition {lacks} of a PUT")), "{said}");
        assert_eq!(store.list("", None).unwrap(), []);
    }
}
