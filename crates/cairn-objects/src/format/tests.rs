use bytes::Bytes;
use proptest::prelude::*;

use super::data::{self, Found, Maker};
use super::id::MapId;
use super::manifest::{Manifest, MapName, MapRef, Replay, Writer};
use super::map::{self, MapExtent, MapPart, REGION};
use super::*;

const ID: ObjectId = ObjectId { log: 0xabc, epoch: 3, sequence: 17 };
const MAP: MapId = MapId { log: 0xabc, epoch: 3, generation: 9, part: 1 };

#[test]
fn names_are_read_as_they_are_written() {
    assert_eq!(ID.to_string(), "log/0000000000000abc/00000003-0000000000000011");
    assert_eq!(MAP.to_string(), "map/0000000000000abc/00000003-0000000000000009-0001");
    assert_eq!(ObjectId::parse(&ID.to_string()), Some(ID));
    assert_eq!(MapId::parse(&MAP.to_string()), Some(MAP));
    for name in ["log/abc/3-11", "log/0000000000000ABC/00000003-0000000000000011", "log/", "x"] {
        assert_eq!(ObjectId::parse(name), None, "{name}");
    }
}

fn object() -> (Vec<u8>, Vec<data::Entry>) {
    object_with(0)
}

/// An object of a writer with a local log, or without one.
fn object_with(recorded: u64) -> (Vec<u8>, Vec<data::Entry>) {
    let bytes = [Bytes::from(vec![1; 1024]), Bytes::from(vec![2; 512])];
    let extents = [(8, 2, false), (10, 100, true), (500, 1, false)];
    let maker = Maker { nonce: 77, stable: 15, recorded };
    let (head, entries) = data::encode(ID, maker, &extents, &bytes);
    ([&head[..], &bytes[0], &bytes[1]].concat(), entries)
}

#[test]
fn a_data_object_is_what_docs_say() {
    let (bytes, entries) = object();
    assert_eq!((&bytes[..8], bytes.len()), (&b"CairnObj"[..], 64 + 3 * 16 + 1536));
    assert_eq!(bytes[16..24], 0xabc_u64.to_le_bytes());
    assert_eq!(bytes[24..28], 3_u32.to_le_bytes());
    assert_eq!(bytes[28..32], 2_u32.to_le_bytes());
    assert_eq!(bytes[32..40], 17_u64.to_le_bytes());
    assert_eq!(bytes[40..48], 77_u64.to_le_bytes());
    assert_eq!((bytes[48], bytes[56..64] == 1536_u64.to_le_bytes()), (3, true));
    assert_eq!(bytes[64..72], 8_u64.to_le_bytes());
    let Found::Data(index) = data::decode(ID, &bytes, bytes.len() as u64).unwrap() else {
        panic!("a data object");
    };
    assert_eq!((index.nonce, index.stable, &index.entries), (77, 15, &entries));
    assert_eq!(entries[2].offset, Some(64 + 48 + 1024));
    index.verify(ID, &bytes).unwrap();
    // The index is found in a part of the object.
    let part = data::decode(ID, &bytes[..70], bytes.len() as u64).unwrap();
    assert_eq!(part, Found::Longer(64 + 48));
    let part = data::decode(ID, &bytes[..64 + 48], bytes.len() as u64).unwrap();
    assert_eq!(part, Found::Data(index));
}

/// With a local log, the header says which of its records were durable.
#[test]
fn an_object_of_a_writer_with_a_log_is_what_docs_say() {
    let (bytes, entries) = object_with(42);
    assert_eq!((bytes[8], bytes.len()), (3, 72 + 3 * 16 + 1536));
    assert_eq!(bytes[64..72], 42_u64.to_le_bytes());
    assert_eq!(bytes[72..80], 8_u64.to_le_bytes());
    let whole = data::decode(ID, &bytes, bytes.len() as u64).unwrap();
    let Found::Data(index) = &whole else { panic!("a data object") };
    assert_eq!((index.recorded, index.head, &index.entries), (42, 72 + 48, &entries));
    assert_eq!(entries[0].offset, Some(72 + 48));
    index.verify(ID, &bytes).unwrap();
    for (end, found) in [(66, Found::Longer(120)), (110, Found::Longer(120)), (120, whole.clone())]
    {
        assert_eq!(data::decode(ID, &bytes[..end], bytes.len() as u64), Ok(found), "{end}");
    }
    for at in 0..120 {
        let mut bad = bytes.clone();
        bad[at] ^= 4;
        assert!(data::decode(ID, &bad, bad.len() as u64).is_err(), "byte {at}");
    }
}

const LOG: local_log::Header = local_log::Header {
    volume: 0xabc,
    size: 1 << 20,
    epoch: 3,
    nonce: 77,
    first: 4,
    stored: 5,
    claims: [6, 7],
    end: 64 << 10,
};
const FRAME: local_log::Frame = local_log::Frame { number: 9, object: 17, length: 700 };

#[test]
fn a_local_log_is_what_docs_say() {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let block = LOG.encode();
    assert_eq!((&block[..8], block[8], block.len()), (&b"CairnLog"[..], 2, 512));
    let places = [16, 24, 40, 48, 56, 64, 72, 80].map(|at| number(&block[at..at + 8]));
    assert_eq!(places, [0xabc, 1 << 20, 77, 4, 5, 6, 7, 64 << 10]);
    assert_eq!(block[32..36], 3_u32.to_le_bytes());
    assert_eq!(local_log::Header::decode("x", &block), Ok(Some(LOG)));
    let mark = LOG.encode_mark(9);
    assert_eq!((&mark[..8], number(&mark[32..40])), (&b"CairnEnd"[..], 9));
    assert_eq!(LOG.decode_mark(&mark), Some(9));
    assert_eq!([9, 10].map(|number| local_log::mark_place(LOG.end, number)), [61440, 57344]);
    let record = LOG.encode_frame(FRAME);
    assert_eq!((&record[..8], number(&record[32..40])), (&b"CairnRec"[..], 9));
    assert_eq!((LOG.decode_frame(&record), FRAME.space()), (Some(FRAME), 1024));
    let other = local_log::Header { nonce: 78, ..LOG };
    assert_eq!((other.decode_frame(&record), other.decode_mark(&mark)), (None, None));
    assert!(local_log::is_part(&record) && local_log::is_part(&mark));
    assert!(!local_log::is_part(&block));
}

proptest! {
    #[test]
    fn no_other_bytes_are_taken_for_a_log(
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        at in 0..64_usize,
        flip in 1..=255_u8,
    ) {
        prop_assert!(!local_log::is_part(&bytes));
        prop_assert_eq!(LOG.decode_frame(&bytes), None);
        prop_assert!(local_log::Header::decode("x", &bytes).is_ok_and(|found| found.is_none())
            || b"CairnLog".starts_with(&bytes[..bytes.len().min(8)]));
        let mut record = LOG.encode_frame(FRAME);
        record[at] ^= flip;
        prop_assert_eq!(LOG.decode_frame(&record), None);
        let mut header = LOG.encode();
        header[at] ^= flip;
        prop_assert_ne!(local_log::Header::decode("x", &header), Ok(Some(LOG)));
        let mut mark = LOG.encode_mark(9);
        mark[at % 40] ^= flip;
        prop_assert_eq!(LOG.decode_mark(&mark), None);
    }
}

/// The older layout has nothing about the objects before.
#[test]
fn a_data_object_of_version_1_is_read() {
    let (mut bytes, entries) = object();
    bytes[8] = 1;
    bytes[28..32].fill(0);
    bytes[12..16].fill(0);
    let sum = checksum(&[&bytes[..64 + 48]]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    let Found::Data(index) = data::decode(ID, &bytes, bytes.len() as u64).unwrap() else {
        panic!("a data object");
    };
    assert_eq!((index.stable, &index.entries), (0, &entries));
}

#[test]
fn every_changed_byte_of_a_head_is_found() {
    let (bytes, _) = object();
    for at in 0..64 + 48 {
        let mut bad = bytes.clone();
        bad[at] ^= 4;
        let found = data::decode(ID, &bad, bad.len() as u64);
        // The checksum of the data is part of the header.
        assert!(found.is_err(), "byte {at}: {found:?}");
    }
    let Found::Data(index) = data::decode(ID, &bytes, bytes.len() as u64).unwrap() else {
        panic!("a data object");
    };
    let mut bad = bytes.clone();
    bad[200] ^= 4;
    let said = index.verify(ID, &bad).unwrap_err().to_string();
    assert!(said.contains("has the checksum") && said.contains(&ID.to_string()), "{said}");
    let other = ObjectId { sequence: 18, ..ID };
    assert!(data::decode(other, &bytes, bytes.len() as u64).is_err(), "another name");
}

#[test]
fn a_fence_is_shorter_than_every_object() {
    let fence = data::encode_fence(ID, 4);
    assert_eq!((fence.len(), &fence[..8]), (48, &b"CairnFnc"[..]));
    assert_eq!(data::decode(ID, &fence, 48), Ok(Found::Fence { by: 4 }));
    for at in 0..48 {
        let mut bad = fence.to_vec();
        bad[at] ^= 4;
        assert!(data::decode(ID, &bad, 48).is_err(), "byte {at}");
    }
    assert!(data::decode(ID, &fence[..47], 47).is_err());
}

#[test]
fn a_newer_layout_is_refused_with_advice() {
    let (mut bytes, _) = object();
    bytes[8] = 4;
    let refused = |bytes: &[u8]| data::decode(ID, bytes, bytes.len() as u64).unwrap_err();
    let damaged = refused(&bytes);
    assert!(!damaged.newer && damaged.to_string().contains("the checksum of 2"), "{damaged}");
    // Another layout has another checksum.
    bytes[12] ^= 1;
    let newer = refused(&bytes);
    assert!(newer.newer && newer.to_string().ends_with("use a newer Cairn"), "{newer}");
    bytes[8..12].fill(0xbf);
    let damaged = refused(&bytes);
    assert!(!damaged.newer && damaged.to_string().contains("restore it"), "{damaged}");
}

fn part() -> MapPart {
    let extent = |start, count, object, offset| MapExtent { start, count, object, offset };
    MapPart {
        objects: vec![(ID, 100_000), (ObjectId { sequence: 1, ..ID }, 5000)],
        extents: vec![
            extent(0, 100, 0, 112),
            extent(200, 1, 1, 64),
            extent(REGION, 8, 1, 64 + 512),
        ],
    }
}

#[test]
fn a_map_object_is_read_as_it_is_written() {
    let bytes = map::encode(MAP, &part());
    assert_eq!((&bytes[..8], bytes.len()), (&b"CairnMap"[..], 32 + 2 * 32 + 3 * 24));
    assert_eq!(map::decode(MAP, &bytes, 2 * REGION), Ok(part()));
    for at in 0..bytes.len() {
        let mut bad = bytes.to_vec();
        bad[at] ^= 4;
        assert!(map::decode(MAP, &bad, 2 * REGION).is_err(), "byte {at}");
    }
    assert!(map::decode(MAP, &bytes, REGION + 7).is_err(), "the disk is smaller");
    for (what, change) in [
        ("no order", (|part: &mut MapPart| part.extents.swap(0, 1)) as fn(&mut MapPart)),
        ("two regions", |part| {
            part.extents[1] = MapExtent { start: REGION - 4, count: 8, ..part.extents[1] }
        }),
        ("no object", |part| part.extents[1].object = 2),
        ("beyond the object", |part| part.extents[1].offset = 4999),
        ("in the header", |part| part.extents[1].offset = 10),
        ("empty", |part| part.extents[1].count = 0),
    ] {
        let mut bad = part();
        change(&mut bad);
        assert!(map::decode(MAP, &map::encode(MAP, &bad), 2 * REGION).is_err(), "{what}");
    }
}

fn manifest() -> Manifest {
    Manifest {
        version: 1,
        id: 0xabc,
        size: 1 << 30,
        object_size: 8 << 20,
        epoch: 3,
        generation: 9,
        writer: Some(Writer {
            host: "host\n\"x\"".into(),
            pid: 5,
            process: "p".into(),
            nonce: u64::MAX,
            log: None,
        }),
        read_only: false,
        incomplete: false,
        map: vec![MapRef { name: MapName(MAP), regions: [0, 1, 3].into() }],
        replay: vec![Replay { id: 0xabc, epoch: 3, from: 18, to: None, recorded: 0 }],
    }
}

#[test]
fn a_manifest_is_text_with_a_checksum() {
    let bytes = manifest().encode();
    let text = str::from_utf8(&bytes).unwrap();
    assert!(text.starts_with("{\"cairn_object_volume\":1,\"id\":\"0000000000000abc\","), "{text}");
    assert_eq!((text.lines().count(), text.lines().last().unwrap().len()), (2, 15));
    assert_eq!(Manifest::decode("main", &bytes), Ok(manifest()));
    assert!(!text.contains("recorded"), "{text}");
    let mut logged = manifest();
    logged.replay[0].recorded = 42;
    assert!(str::from_utf8(&logged.encode()).unwrap().contains("\"recorded\":42"));
    assert_eq!(Manifest::decode("main", &logged.encode()), Ok(logged));
    for at in 0..bytes.len() - 1 {
        let mut bad = bytes.to_vec();
        bad[at] ^= 4;
        assert!(Manifest::decode("main", &bad).is_err(), "byte {at}");
    }
}

#[test]
fn a_manifest_that_no_volume_writes_is_refused() {
    for (said, change) in [
        ("a disk of 1000 bytes", (|one: &mut Manifest| one.size = 1000) as fn(&mut Manifest)),
        ("objects of 1 bytes", |one| one.object_size = 1),
        ("region 0 in two", |one| one.map.push(one.map[0].clone())),
        ("region 4, behind the end", |one| one.map[0].regions = [0, 4].into()),
        ("ends before it begins", |one| one.replay[0].to = Some(1)),
        ("an open log of another", |one| one.replay[0].id = 1),
        ("a later epoch", |one| one.replay[0].epoch = 4),
        ("has counted to 18446744073709551615", |one| one.generation = u64::MAX),
        ("has counted to 9223372036854775808", |one| one.replay[0].from = 1 << 63),
        ("has counted to 9223372036854775808", |one| one.replay[0].recorded = 1 << 63),
        ("version 2 of the layout", |one| one.version = 2),
        ("version 0", |one| one.version = 0),
    ] {
        let mut bad = manifest();
        change(&mut bad);
        let refused = Manifest::decode("main", &bad.encode()).unwrap_err().to_string();
        assert!(refused.contains(said) && refused.contains("volumes/main"), "{refused}");
    }
    let json = b"{\"cairn_object_volume\":7}";
    let text = format!("\ncrc32c {:08x}\n", checksum(&[json]));
    let newer = Manifest::decode("main", &[&json[..], text.as_bytes()].concat()).unwrap_err();
    assert!(newer.newer, "an unknown layout may have any other members: {newer}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_bytes_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        changes in prop::collection::vec((0..300_usize, any::<u8>()), 1..4),
        kind in 0..4,
    ) {
        let mut bytes = match kind {
            0 => bytes,
            1 => object().0,
            2 => map::encode(MAP, &part()).to_vec(),
            _ => data::encode_fence(ID, 4).to_vec(),
        };
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        // With the right checksum, too.
        for field in [0..0, 12..16] {
            if bytes.len() > 16 && !field.is_empty() {
                bytes[field.clone()].fill(0);
                let head = if bytes.starts_with(b"CairnObj") { 112 } else { bytes.len() };
                let sum = checksum(&[&bytes[..head.min(bytes.len())]]).to_le_bytes();
                bytes[field].copy_from_slice(&sum);
            }
            let _ = data::decode(ID, &bytes, bytes.len() as u64);
            let _ = map::decode(MAP, &bytes, 2 * REGION);
            let _ = Manifest::decode("main", &bytes);
        }
    }
}
