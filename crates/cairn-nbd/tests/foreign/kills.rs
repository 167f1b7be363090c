//! nbdkit on a file, killed and started again at random moments under load. What it had written is
//! in the file; what was under way is sent again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_nbd::Client;

use super::{Foreign, place};

const WRITERS: u64 = 4;
const BLOCK: u64 = 16 << 10;
const BLOCKS: u64 = 32;

fn write(client: &Client, number: u64, stop: &AtomicBool, done: &AtomicU64) {
    let mut versions = [0_u8; BLOCKS as usize];
    let mut random = fastrand::Rng::with_seed(number);
    while !stop.load(Ordering::SeqCst) {
        let block = random.u64(0..BLOCKS);
        let at = (number * BLOCKS + block) * BLOCK;
        let version = &mut versions[block as usize];
        match random.u8(0..4) {
            0 => {
                let read = client.read_at(at, BLOCK as usize).unwrap();
                assert!(read.iter().all(|byte| *byte == *version), "block {block} of {number}");
            }
            1 => client.flush().unwrap(),
            _ => {
                *version = version.wrapping_add(1);
                client.write_at(at, vec![*version; BLOCK as usize]).unwrap();
            }
        }
        done.fetch_add(1, Ordering::SeqCst);
    }
    client.flush().unwrap();
    for (block, version) in versions.iter().enumerate() {
        let at = (number * BLOCKS + block as u64) * BLOCK;
        let read = client.read_at(at, BLOCK as usize).unwrap();
        assert!(read.iter().all(|byte| byte == version), "block {block} of {number}");
    }
}

#[test]
fn nbdkit_is_killed_under_load() {
    let kills = if std::env::var_os("CAIRN_DEEP").is_some() { 50 } else { 5 };
    let (dir, socket) = place("socket");
    let file = dir.path().join("disk");
    std::fs::write(&file, vec![0; (WRITERS * BLOCKS * BLOCK) as usize]).unwrap();
    let start = |socket: &Path| Foreign::nbdkit(socket, &["file", file.to_str().unwrap()]);
    let mut server = start(&socket);
    let client = Arc::new(server.connect());
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (client, stop, done) = (client.clone(), stop.clone(), done.clone());
            thread::spawn(move || write(&client, number, &stop, &done))
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..kills {
        let until = done.load(Ordering::SeqCst) + random.u64(1..200);
        while done.load(Ordering::SeqCst) < until {
            assert!(writers.iter().all(|writer| !writer.is_finished()), "a writer has failed");
            thread::yield_now();
        }
        server.kill();
        server = start(&socket);
    }
    stop.store(true, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    drop(client);
    drop(server);
}
