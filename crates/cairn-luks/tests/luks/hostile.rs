//! Damaged and hostile headers: an error, never a panic, a hang or too much memory.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_luks::{Error, Limits, Luks, Options, Passphrase, inspect};
use sha2::{Digest, Sha256};

use crate::cryptsetup::{LUKS1, LUKS2, PASSPHRASE, Place};

fn open(bytes: &[u8]) -> Result<Luks, Error> {
    let limits = Limits { memory_kib: 1 << 10, passed_gib: 1, iterations: 5000 };
    let device = Arc::new(MemoryDevice::from_image(bytes));
    Luks::open(device, &Passphrase::new(PASSPHRASE), &Options { write: false, limits })
}

/// The first header of version 2 with another text in its JSON, and the right checksum.
fn with_json(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let end = 0x4000;
    let json = String::from_utf8(bytes[4096..end].to_vec()).unwrap();
    assert!(json.contains(from), "{from} is not in {json}");
    let mut json = json.replacen(from, to, 1).into_bytes();
    json.resize(end - 4096, 0);
    let mut changed = bytes.to_vec();
    changed[4096..end].copy_from_slice(&json);
    // Newer than the second one.
    changed[23] = 200;
    changed[448..512].fill(0);
    let digest = Sha256::digest(&changed[..end]);
    changed[448..480].copy_from_slice(&digest);
    changed
}

#[test]
fn values_of_the_metadata_are_named() {
    let place = Place::new();
    let path = place.format(17 << 20, &[&LUKS2[..], &["--sector-size", "512"]].concat());
    let bytes = std::fs::read(path).unwrap();
    open(&bytes).unwrap();
    let refused =
        |from: &str, to: &str| open(&with_json(&bytes, from, to)).unwrap_err().to_string();
    let sector = refused("\"sector_size\":512", "\"sector_size\":513");
    assert!(sector.contains("sector_size is 513, not 512"), "{sector}");
    let iterations = refused("\"iterations\":1000", "\"iterations\":4294967295");
    assert!(iterations.contains("4294967295 iterations"), "{iterations}");
    let stripes = refused("\"stripes\":4000", "\"stripes\":400000000");
    assert!(stripes.contains("stripes is 400000000"), "{stripes}");
    let offset = refused("\"offset\":\"16777216\"", "\"offset\":\"99999999999\"");
    assert!(offset.contains("offset of a segment is 99999999999"), "{offset}");
    let size = refused("\"size\":\"dynamic\"", "\"size\":\"18446744073709551615\"");
    assert!(size.contains("more than the device has"), "{size}");
    let area = refused("\"offset\":\"32768\"", "\"offset\":\"18446744073709551615\"");
    assert!(area.contains("area of a keyslot"), "{area}");
    for inside in ["4096", "16777216", "16777000"] {
        let area = refused("\"offset\":\"32768\"", &format!("\"offset\":\"{inside}\""));
        assert!(area.contains("not between the headers and the data"), "{inside}: {area}");
    }
    let empty: String = (1..33).map(|slot| format!("\"{slot}\":{{}},")).collect();
    let many = refused("\"keyslots\":{", &format!("\"keyslots\":{{{empty}"));
    assert!(many.contains("keyslots is 33, more than the 32"), "{many}");
    let digests = refused("\"digests\":{", &format!("\"digests\":{{{empty}"));
    assert!(digests.contains("JSON"), "{digests}");
    let kind = refused("\"type\":\"crypt\"", "\"type\":\"linear\"");
    assert!(kind.contains("a segment of type \"linear\""), "{kind}");
    let integrity = refused("\"sector_size\":512", "\"sector_size\":512,\"integrity\":{}");
    assert!(integrity.contains("integrity protection"), "{integrity}");
    let config = "\"config\":{";
    let wanted = "\"config\":{\"requirements\":{\"mandatory\":[\"online-reencrypt-v2\"]},";
    let reencryption = refused(config, wanted);
    assert!(reencryption.contains("the requirement online-reencrypt-v2"), "{reencryption}");
    let salt = refused("\"salt\":\"", "\"salt\":\"?");
    assert!(salt.contains("not base64"), "{salt}");
    // Both copies, so that none is whole.
    let mut both = bytes.clone();
    both[4100] ^= 1;
    both[0x4000 + 4100] ^= 1;
    let sums = open(&both).unwrap_err().to_string();
    assert!(
        sums.contains("the checksum of the header at byte 0 does not match it, and no whole copy")
            && sums.contains("luksHeaderRestore")
            && !sums.contains("csum"),
        "{sums}"
    );
    let cut = open(&bytes[..3000]).unwrap_err().to_string();
    assert!(cut.contains("header is at byte 0, and the device ends before"), "{cut}");
    let deep = format!("{}{}", "[".repeat(5000), config);
    assert!(refused(config, &deep).contains("JSON"));
}

#[test]
fn random_damage_is_survived() {
    let place = Place::new();
    let mut headers = vec![std::fs::read(place.format(17 << 20, &LUKS2)).unwrap()];
    headers.push(std::fs::read(place.format(3 << 20, &LUKS1)).unwrap());
    let count = if cairn_testkit::deep() { 3000 } else { 100 };
    for bytes in headers {
        for seed in 0..count {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut head = bytes[..0x8000].to_vec();
            for _ in 0..rng.u32(1..4) {
                let end = if rng.bool() { 600 } else { 5500 };
                head[rng.usize(0..end)] = rng.u8(..);
            }
            if rng.u32(0..4) == 0 {
                head.truncate(rng.usize(0..0x8000));
            }
            // The checksum holds, so that the values count.
            if head.len() >= 0x4000 && head[7] == 2 {
                head[448..512].fill(0);
                let digest = Sha256::digest(&head[..0x4000]);
                head[448..480].copy_from_slice(&digest);
            }
            let device = MemoryDevice::from_image(&head);
            if inspect(&device).is_ok() && seed % 4 == 0 {
                let _ = open(&head);
            }
        }
    }
}
