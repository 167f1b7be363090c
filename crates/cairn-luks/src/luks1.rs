//! The header of LUKS 1: 592 bytes, big-endian.

use cairn_block::BlockDevice;
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::cipher::CipherName;
use crate::error::{Error, Result};
use crate::hash::Hash;
use crate::kdf::Kdf;
use crate::read;
use crate::unlock::{Digest, Keyslot, Segment, Volume};

const SECTOR: u64 = 512;
const LEN: usize = 592;
const ENABLED: u32 = 0x00ac_71f3;
/// cryptsetup makes 4000.
const MOST_STRIPES: u32 = 1 << 16;

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawKeyslot {
    active: U32,
    iterations: U32,
    salt: [u8; 32],
    key_material_offset: U32,
    stripes: U32,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 6],
    version: U16,
    cipher_name: [u8; 32],
    cipher_mode: [u8; 32],
    hash_spec: [u8; 32],
    payload_offset: U32,
    key_bytes: U32,
    mk_digest: [u8; 20],
    mk_digest_salt: [u8; 32],
    mk_digest_iterations: U32,
    uuid: [u8; 40],
    keyslots: [RawKeyslot; 8],
}

const _: () = assert!(size_of::<RawHeader>() == LEN);

/// A text that ends with a zero byte.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Reads and validates the header.
pub(crate) fn read(device: &dyn BlockDevice) -> Result<Volume> {
    let bytes = read::bytes(device, "header", 0, LEN as u64)?;
    let raw = RawHeader::ref_from_bytes(&bytes).expect("it has this size and no alignment");
    let hash = Hash::named(&text(&raw.hash_spec))?;
    let cipher = format!("{}-{}", text(&raw.cipher_name), text(&raw.cipher_mode));
    let key_len = raw.key_bytes.get();
    if !(1..=64).contains(&key_len) {
        return Err(Error::damaged("keyBytes", key_len, "not from 1 to 64"));
    }
    if raw.payload_offset.get() == 0 {
        return Err(Error::unsupported("a detached header"));
    }
    let offset = u64::from(raw.payload_offset.get()) * SECTOR;
    let end = device.geometry().size;
    if offset >= end {
        return Err(Error::damaged(
            "payloadOffset",
            offset / SECTOR,
            "beyond the end of the device",
        ));
    }
    let mut keyslots = Vec::new();
    for (number, slot) in (0..).zip(&raw.keyslots) {
        if slot.active.get() == ENABLED {
            keyslots.push(keyslot(number, slot, hash, &cipher, key_len)?);
        }
    }
    Ok(Volume {
        version: 1,
        uuid: text(&raw.uuid),
        label: String::new(),
        segment: Segment {
            offset,
            len: end - offset,
            first_sector: 0,
            sector_size: SECTOR as u32,
            cipher: CipherName(cipher),
        },
        keyslots,
        digest: Digest {
            hash,
            iterations: raw.mk_digest_iterations.get(),
            salt: raw.mk_digest_salt.to_vec(),
            digest: raw.mk_digest.to_vec(),
        },
    })
}

fn keyslot(
    number: u32,
    slot: &RawKeyslot,
    hash: Hash,
    cipher: &str,
    key_len: u32,
) -> Result<Keyslot> {
    let stripes = slot.stripes.get();
    if !(1..=MOST_STRIPES).contains(&stripes) {
        return Err(Error::damaged("stripes of a keyslot", stripes, "not from 1 to 65536"));
    }
    Ok(Keyslot {
        number,
        key_len,
        stripes,
        af_hash: hash,
        area: u64::from(slot.key_material_offset.get()) * SECTOR,
        area_cipher: CipherName(cipher.to_owned()),
        area_key_len: key_len,
        kdf: Kdf::Pbkdf2 { hash, iterations: slot.iterations.get(), salt: slot.salt.to_vec() },
    })
}
