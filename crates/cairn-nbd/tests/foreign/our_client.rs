//! The client, judged by what other servers answer.

use std::process::Command;
use std::sync::Arc;

use cairn_block::{BlockDevice, BlockDeviceExt, Durability, ErrorKind};
use cairn_nbd::{Client, ConnectOptions};

use super::{Foreign, output, place, writing};

const MIB: u64 = 1 << 20;

/// Writes, reads, zeros, discards and flushes in random places.
fn exercise(client: &Client, seed: u64) {
    println!("seed {seed}");
    let size = client.geometry().size;
    let unit = u64::from(client.geometry().logical_block);
    let mut model = vec![0_u8; usize::try_from(size).unwrap()];
    let mut random = fastrand::Rng::with_seed(seed);
    for step in 0..120 {
        let offset = random.u64(0..size / unit) * unit;
        let most = ((size - offset) / unit).min(3 * MIB / unit);
        let len = random.u64(1..=most) * unit;
        let range = offset as usize..(offset + len) as usize;
        match random.u8(0..8) {
            0..=3 => {
                let data: Vec<u8> = (0..len).map(|at| (at as u8) ^ (step as u8)).collect();
                model[range].copy_from_slice(&data);
                let durability = Durability { preflush: random.bool(), fua: random.bool() };
                client.write_durable(offset, data, durability).unwrap();
            }
            4 => {
                model[range].fill(0);
                client.write_zeroes(offset, len).unwrap();
            }
            5 => client.flush().unwrap(),
            _ => {
                let read = client.read_at(offset, len as usize).unwrap();
                assert!(*read == model[range], "{len} bytes at {offset}");
            }
        }
    }
    let read = client.read_at(0, model.len()).unwrap();
    assert!(*read == model, "the whole");
}

#[test]
fn nbdkit_with_and_without_its_abilities() {
    let (_dir, socket) = place("socket");
    for (filters, connections) in [
        (&[][..], 2),
        (&["--filter=multi-conn", "multi-conn-mode=disable"], 1),
        (&["--filter=fua", "fuamode=emulate"], 2),
        (&["--filter=nozero", "zeromode=none"], 2),
        (&["--filter=noparallel"], 2),
        (&["--filter=delay", "rdelay=1ms"], 2),
        (&["--no-sr"], 2),
        (
            &[
                "--filter=blocksize-policy",
                "blocksize-minimum=512",
                "blocksize-preferred=4096",
                "blocksize-maximum=65536",
                "blocksize-error-policy=error",
            ],
            2,
        ),
    ] {
        println!("{filters:?}");
        let (options, parameters): (Vec<&str>, Vec<&str>) =
            filters.iter().partition(|word| word.starts_with("--"));
        let arguments = [&options[..], &["memory", "8M"], &parameters[..]].concat();
        let server = Foreign::nbdkit(&socket, &arguments);
        let client = server.connect();
        assert_eq!(client.connections(), connections);
        exercise(&client, 5);
        client.discard(0, 8 * MIB).unwrap();
    }
}

#[test]
fn errors_of_nbdkit() {
    let (_dir, socket) = place("socket");
    for (error, kind) in [
        ("EPERM", ErrorKind::PermissionDenied),
        ("EIO", ErrorKind::Io),
        ("ENOMEM", ErrorKind::Io),
        ("EINVAL", ErrorKind::Io),
        ("ENOSPC", ErrorKind::NoSpace),
    ] {
        let error = format!("error={error}");
        let filter = ["--filter=error", "memory", "1M", "error-pwrite-rate=100%", &error];
        let server = Foreign::nbdkit(&socket, &filter);
        let client = server.connect();
        assert_eq!(client.write_at(0, vec![1; 4096]).unwrap_err().kind, kind, "{error}");
        client.read_at(0, 4096).unwrap();
        client.flush().unwrap();
    }
    // Half of the reads fail; the others are right, and the connection stays.
    let filter = ["--filter=error", "pattern", "1M", "error-pread-rate=50%", "error=EIO"];
    let server = Foreign::nbdkit(&socket, &filter);
    let client = Client::connect(&server.address(), &ConnectOptions::default()).unwrap();
    let (mut good, mut bad) = (0, 0);
    for at in 0..200_u64 {
        match client.read_at(at * 4096, 4096) {
            Ok(read) => {
                good += 1;
                assert_eq!(read[8..16], (at * 4096 + 8).to_be_bytes());
            }
            Err(error) => {
                bad += 1;
                assert_eq!(error.kind, ErrorKind::Io);
            }
        }
    }
    assert!(good > 40 && bad > 40, "{good} {bad}");
}

#[test]
fn exports_that_cannot_be_used() {
    let (_dir, socket) = place("socket");
    let refused = |arguments: &[&str], options: &ConnectOptions| {
        let server = Foreign::nbdkit(&socket, arguments);
        let mut address = server.address();
        address.export = "disk".into();
        let error = Client::connect(&address, options).err().expect("it is refused");
        println!("{error}");
        error
    };
    let large = [
        "--filter=blocksize-policy",
        "memory",
        "1M",
        "blocksize-minimum=65536",
        "blocksize-preferred=65536",
    ];
    let error = refused(&large, &writing());
    assert!(error.kind == ErrorKind::Unsupported && error.detail.contains("--filter=blocksize"));
    let error = refused(&["-r", "memory", "1M"], &writing());
    assert_eq!(error.kind, ErrorKind::ReadOnly);
    let error = refused(&["-o", "memory", "1M"], &writing());
    assert!(error.kind == ErrorKind::Unsupported && error.detail.contains("newstyle"), "{error}");
    let strict = ["--filter=exportname", "memory", "1M", "exportname=dusk"];
    let strict = [&strict[..], &["exportname-strict=true", "exportname-list=explicit"]].concat();
    let error = refused(&strict, &writing());
    assert!(error.kind == ErrorKind::NotFound && error.detail.contains("'dusk'"), "{error}");
}

#[test]
fn a_farewell_ends_the_last_connection() {
    let (_dir, socket) = place("socket");
    // The filter ends the server when its last client has left; the probe was a client, too.
    let mut command = Command::new("nbdkit");
    command.args(["-f", "--exit-with-parent", "--filter=exitlast", "-U"]).arg(&socket);
    command.args(["memory", "1M"]);
    let mut server = command.spawn().unwrap();
    let place = cairn_nbd::Place::Unix(socket);
    let address = cairn_nbd::Address { place, export: String::new(), tls: None };
    let client = loop {
        match Client::connect(&address, &writing()) {
            Ok(client) => break client,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
                assert!(server.try_wait().unwrap().is_none(), "nbdkit has ended");
                std::thread::yield_now();
            }
        }
    };
    client.write_at(0, vec![1; 4096]).unwrap();
    drop(client);
    assert!(server.wait().unwrap().success());
}

#[test]
fn extents_of_nbdkit() {
    let (_dir, socket) = place("socket");
    let server = Foreign::nbdkit(&socket, &["memory", "4M"]);
    let client = server.connect();
    client.write_at(MIB, vec![1; MIB as usize]).unwrap();
    let told = client.allocated(0..4 * MIB).unwrap();
    let shape: Vec<_> =
        told.iter().map(|extent| (extent.offset, extent.len, extent.hole)).collect();
    assert_eq!(shape, [(0, MIB, true), (MIB, MIB, false), (2 * MIB, 2 * MIB, true)]);
    let end = client.allocated(MIB + 4096..MIB + 8192).unwrap();
    assert!(end[0].offset == MIB + 4096 && end[0].len >= 4096 && !end[0].zero);
}

#[test]
fn many_threads_at_once() {
    let (_dir, socket) = place("socket");
    let server = Foreign::nbdkit(&socket, &["--filter=delay", "memory", "16M", "wdelay=2ms"]);
    let client = Arc::new(server.connect());
    let threads: Vec<_> = (0..16_u64)
        .map(|number| {
            let client = client.clone();
            std::thread::spawn(move || {
                for round in 0..8_u64 {
                    let fill = (number * 16 + round) as u8;
                    let at = (number * 8 + round) * 64 * 1024;
                    client.write_at(at, vec![fill; 64 * 1024]).unwrap();
                    client.flush().unwrap();
                    assert!(
                        client.read_at(at, 64 * 1024).unwrap().iter().all(|byte| *byte == fill)
                    );
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(client.kept(), 0);
}

#[test]
fn qemu_nbd_on_raw_and_qcow2() {
    for format in ["raw", "qcow2"] {
        let (dir, socket) = place("socket");
        let disk = dir.path().join("disk");
        let disk = disk.to_str().unwrap();
        output("qemu-img", &["create", "-q", "-f", format, disk, "8M"]);
        let mut command = Command::new("qemu-nbd");
        command.args(["-t", "-e", "4", "-f", format, "--discard=unmap", "-k"]);
        command.arg(&socket).arg(disk);
        let server = Foreign::start(&mut command, &socket);
        let client = server.connect();
        exercise(&client, 9);
        let before = client.read_at(0, 8 << 20).unwrap();
        let told = client.allocated(0..8 * MIB).unwrap();
        for extent in told.iter().filter(|extent| extent.zero) {
            let end = (extent.offset + extent.len).min(8 * MIB) as usize;
            assert!(before[extent.offset as usize..end].iter().all(|byte| *byte == 0));
        }
        client.flush().unwrap();
        drop(client);
        drop(server);
        let flat = dir.path().join("flat");
        output("qemu-img", &["convert", "-f", format, "-O", "raw", disk, flat.to_str().unwrap()]);
        assert!(std::fs::read(flat).unwrap() == *before);
        if format == "qcow2" {
            output("qemu-img", &["check", "-q", disk]);
        }
    }
}
