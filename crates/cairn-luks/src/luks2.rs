//! The header of LUKS 2: a binary header and metadata in JSON, both twice.

use std::collections::BTreeMap;

use argon2::Algorithm;
use base64ct::{Base64, Encoding};
use cairn_block::BlockDevice;
use serde::Deserialize;
use subtle::ConstantTimeEq;
use zerocopy::byteorder::big_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::cipher::CipherName;
use crate::error::{Error, Result};
use crate::hash::Hash;
use crate::kdf::Kdf;
use crate::luks1::text;
use crate::read;
use crate::unlock::{Digest, Keyslot, Segment, Volume};

const BINARY: u64 = 4096;
const MAGIC: &[u8; 6] = b"LUKS\xba\xbe";
const SECOND_MAGIC: &[u8; 6] = b"SKUL\xba\xbe";
/// The sizes that a header with its JSON can have; the second one follows the first.
const SIZES: [u64; 9] =
    [0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000];
/// cryptsetup makes 4000.
const MOST_STRIPES: u32 = 1 << 16;
/// Keyslots, and digests, that a header can have.
const MOST_OBJECTS: usize = 32;
const CHECKSUM: std::ops::Range<usize> = 448..512;

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBinary {
    magic: [u8; 6],
    version: U16,
    hdr_size: U64,
    seqid: U64,
    label: [u8; 48],
    csum_alg: [u8; 32],
    salt: [u8; 64],
    uuid: [u8; 40],
    subsystem: [u8; 48],
    hdr_offset: U64,
    padding: [u8; 184],
    csum: [u8; 64],
}

const _: () = assert!(size_of::<RawBinary>() == 512);

/// One valid header.
struct Header {
    size: u64,
    sequence: u64,
    label: String,
    uuid: String,
    json: Vec<u8>,
}

/// Numbers are strings in it, since JSON has no integers of 64 bits.
#[derive(Deserialize)]
struct Metadata {
    keyslots: BTreeMap<u32, serde_json::Value>,
    segments: BTreeMap<u32, serde_json::Value>,
    digests: BTreeMap<u32, JsonDigest>,
    config: Config,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    requirements: Requirements,
}

#[derive(Default, Deserialize)]
struct Requirements {
    #[serde(default)]
    mandatory: Vec<String>,
}

#[derive(Deserialize)]
struct JsonKeyslot {
    key_size: u32,
    priority: Option<u32>,
    af: JsonAf,
    area: JsonArea,
    kdf: JsonKdf,
}

#[derive(Deserialize)]
struct JsonAf {
    stripes: u32,
    hash: String,
}

#[derive(Deserialize)]
struct JsonArea {
    offset: String,
    encryption: String,
    key_size: u32,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum JsonKdf {
    Pbkdf2 { hash: String, iterations: u32, salt: String },
    Argon2i { time: u32, memory: u32, cpus: u32, salt: String },
    Argon2id { time: u32, memory: u32, cpus: u32, salt: String },
}

#[derive(Deserialize)]
struct JsonSegment {
    offset: String,
    size: String,
    iv_tweak: String,
    encryption: String,
    sector_size: u32,
}

#[derive(Deserialize)]
struct JsonDigest {
    #[serde(rename = "type")]
    kind: String,
    keyslots: Vec<String>,
    segments: Vec<String>,
    hash: String,
    iterations: u32,
    salt: String,
    digest: String,
}

fn binary(device: &dyn BlockDevice, offset: u64, magic: &[u8; 6]) -> Result<Header> {
    let bytes = read::bytes(device, "header", offset, 512)?;
    let raw = RawBinary::ref_from_bytes(&bytes).expect("it has this size and no alignment");
    if raw.magic != *magic {
        return Err(Error::NotLuks);
    }
    let version = raw.version.get();
    if version != 2 {
        return Err(Error::unsupported(format!("version {version}")));
    }
    let size = raw.hdr_size.get();
    if !SIZES.contains(&size) {
        return Err(Error::damaged("hdr_size", size, "no size that a header has"));
    }
    if raw.hdr_offset.get() != offset {
        return Err(Error::damaged("hdr_offset", raw.hdr_offset.get(), "not where it is"));
    }
    let hash = Hash::named(&text(&raw.csum_alg))?;
    let mut whole = read::bytes(device, "header", offset, size)?;
    whole[CHECKSUM].fill(0);
    let computed = hash.digest(&[&whole]);
    if !bool::from(computed.ct_eq(&raw.csum[..hash.len()])) {
        return Err(Error::Checksum(offset));
    }
    let (sequence, label, uuid) = (raw.seqid.get(), text(&raw.label), text(&raw.uuid));
    let mut json = whole.split_off(BINARY as usize);
    json.truncate(json.iter().position(|byte| *byte == 0).unwrap_or(json.len()));
    Ok(Header { size, sequence, label, uuid, json })
}

/// The newer one of the headers that are whole.
fn header(device: &dyn BlockDevice) -> Result<Header> {
    let first = binary(device, 0, MAGIC);
    let places = match &first {
        Ok(first) => vec![first.size],
        Err(_) => SIZES.to_vec(),
    };
    let end = device.geometry().size;
    let second = places
        .into_iter()
        .filter(|at| at + BINARY <= end)
        .find_map(|at| binary(device, at, SECOND_MAGIC).ok());
    match (first, second) {
        (Ok(first), Some(second)) if second.sequence > first.sequence => Ok(second),
        (Err(Error::Damaged { .. } | Error::Checksum(_) | Error::NotLuks), Some(second)) => {
            Ok(second)
        }
        (first, _) => first,
    }
}

/// Reads and validates the header.
pub(crate) fn read(device: &dyn BlockDevice) -> Result<Volume> {
    let header = header(device)?;
    let wrong =
        |error: serde_json::Error| Error::damaged("JSON", error, "not what the format describes");
    let metadata: Metadata = serde_json::from_slice(&header.json).map_err(wrong)?;
    if let Some(name) = metadata.config.requirements.mandatory.first() {
        return Err(Error::unsupported(format!("the requirement {name}")));
    }
    for (place, count) in
        [("keyslots", metadata.keyslots.len()), ("digests", metadata.digests.len())]
    {
        // Each keyslot may take minutes.
        if count > MOST_OBJECTS {
            return Err(Error::damaged(place, count, "more than the 32 that a header can have"));
        }
    }
    let (number, segment) = segment(&metadata, device, &header)?;
    let belongs = |list: &[String], of: u32| list.iter().any(|text| *text == of.to_string());
    let digest = metadata.digests.values().find(|digest| belongs(&digest.segments, number));
    let Some(digest) = digest else {
        return Err(Error::damaged("the number of a segment", number, "which has no digest"));
    };
    let mut keyslots = Vec::new();
    for (slot, value) in &metadata.keyslots {
        if belongs(&digest.keyslots, *slot)
            && let Some((priority, found)) = keyslot(*slot, value)?
        {
            outside_of_data(&found, 2 * header.size, &segment)?;
            keyslots.push((priority, found));
        }
    }
    // Those that are preferred first; those to be ignored are left out.
    keyslots.sort_by_key(|(priority, slot)| (std::cmp::Reverse(*priority), slot.number));
    keyslots.retain(|(priority, _)| *priority > 0);
    Ok(Volume {
        version: 2,
        uuid: header.uuid,
        label: header.label,
        segment,
        keyslots: keyslots.into_iter().map(|(_, slot)| slot).collect(),
        digest: self::digest(digest)?,
    })
}

/// Key material that lies in a header or in the data would be overwritten there.
fn outside_of_data(keyslot: &Keyslot, headers: u64, segment: &Segment) -> Result<()> {
    let len = u64::from(keyslot.key_len) * u64::from(keyslot.stripes);
    let end = keyslot.area.saturating_add(len);
    if keyslot.area < headers || end > segment.offset {
        let rule = "not between the headers and the data";
        return Err(Error::damaged("area of a keyslot", keyslot.area, rule));
    }
    Ok(())
}

fn number(place: &'static str, text: &str) -> Result<u64> {
    text.parse().map_err(|_| Error::damaged(place, text, "not a number"))
}

fn base64(place: &'static str, text: &str) -> Result<Vec<u8>> {
    Base64::decode_vec(text).map_err(|_| Error::damaged(place, text, "not base64"))
}

fn digest(json: &JsonDigest) -> Result<Digest> {
    if json.kind != "pbkdf2" {
        return Err(Error::unsupported(format!("the type {:?} of digest", json.kind)));
    }
    let digest = base64("digest", &json.digest)?;
    if digest.len() < 16 {
        return Err(Error::damaged("digest", digest.len(), "fewer than 16 bytes"));
    }
    Ok(Digest {
        hash: Hash::named(&json.hash)?,
        iterations: json.iterations,
        salt: base64("salt of a digest", &json.salt)?,
        digest,
    })
}

/// The one segment.
fn segment(
    metadata: &Metadata,
    device: &dyn BlockDevice,
    header: &Header,
) -> Result<(u32, Segment)> {
    let mut segments = metadata.segments.iter();
    let (Some((number_of, value)), None) = (segments.next(), segments.next()) else {
        let count = metadata.segments.len();
        return Err(Error::unsupported(format!("{count} segments (it is being encrypted anew)")));
    };
    if value.get("integrity").is_some() {
        return Err(Error::unsupported("integrity protection"));
    }
    let kind = value.get("type").and_then(|kind| kind.as_str()).unwrap_or_default();
    if kind != "crypt" {
        return Err(Error::unsupported(format!("a segment of type {kind:?}")));
    }
    let wrong =
        |error: serde_json::Error| Error::damaged("segment", error, "not one of the format");
    let json: JsonSegment = JsonSegment::deserialize(value).map_err(wrong)?;
    let size = json.sector_size;
    if ![512, 1024, 2048, 4096].contains(&size) {
        return Err(Error::damaged("sector_size", size, "not 512, 1024, 2048 or 4096"));
    }
    let (offset, end) = (number("offset of a segment", &json.offset)?, device.geometry().size);
    if offset < 2 * header.size {
        return Err(Error::unsupported("a detached header"));
    }
    if !offset.is_multiple_of(512) || offset >= end {
        let rule = "not a sector of the device";
        return Err(Error::damaged("offset of a segment", offset, rule));
    }
    let len = match json.size.as_str() {
        "dynamic" => end - offset,
        text => number("size of a segment", text)?,
    };
    if len > end - offset {
        return Err(Error::damaged("size of a segment", len, "more than the device has"));
    }
    let segment = Segment {
        offset,
        len,
        first_sector: number("iv_tweak", &json.iv_tweak)?,
        sector_size: size,
        cipher: CipherName(json.encryption),
    };
    Ok((*number_of, segment))
}

/// A keyslot with its priority: 0 to be ignored, 1, or 2 to be tried first. `None` for those of
/// reencryption, which hold no key.
fn keyslot(slot: u32, value: &serde_json::Value) -> Result<Option<(u32, Keyslot)>> {
    let kind = value.get("type").and_then(|kind| kind.as_str()).unwrap_or_default();
    if kind != "luks2" {
        return Ok(None);
    }
    let wrong =
        |error: serde_json::Error| Error::damaged("keyslot", error, "not one of the format");
    let json: JsonKeyslot = JsonKeyslot::deserialize(value).map_err(wrong)?;
    for (place, bytes) in [("key_size", json.key_size), ("key_size of an area", json.area.key_size)]
    {
        if !(1..=64).contains(&bytes) {
            return Err(Error::damaged(place, bytes, "not from 1 to 64"));
        }
    }
    if !(1..=MOST_STRIPES).contains(&json.af.stripes) {
        return Err(Error::damaged("stripes", json.af.stripes, "not from 1 to 65536"));
    }
    let argon2 = |algorithm, time, memory, lanes, salt: &str| {
        let salt = base64("salt of a keyslot", salt)?;
        Ok::<_, Error>(Kdf::Argon2 { algorithm, time, memory, lanes, salt })
    };
    let kdf = match &json.kdf {
        JsonKdf::Pbkdf2 { hash, iterations, salt } => Kdf::Pbkdf2 {
            hash: Hash::named(hash)?,
            iterations: *iterations,
            salt: base64("salt of a keyslot", salt)?,
        },
        JsonKdf::Argon2i { time, memory, cpus, salt } => {
            argon2(Algorithm::Argon2i, *time, *memory, *cpus, salt)?
        }
        JsonKdf::Argon2id { time, memory, cpus, salt } => {
            argon2(Algorithm::Argon2id, *time, *memory, *cpus, salt)?
        }
    };
    let keyslot = Keyslot {
        number: slot,
        key_len: json.key_size,
        stripes: json.af.stripes,
        af_hash: Hash::named(&json.af.hash)?,
        area: number("offset of an area", &json.area.offset)?,
        area_cipher: CipherName(json.area.encryption),
        area_key_len: json.area.key_size,
        kdf,
    };
    Ok(Some((json.priority.unwrap_or(1), keyslot)))
}
