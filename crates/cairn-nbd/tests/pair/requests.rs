//! Every request, against the device beneath.

use std::sync::Arc;
use std::time::Duration;

use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Flushing;
use cairn_block::wrap::{Fault, Hold, Lasting, Operation, ReadOnly, Stats};
use cairn_block::{Batch, BlockDevice, BlockDeviceExt, Durability, ErrorKind, IoBuf, Request};
use cairn_nbd::server::{Export, Listen, Options, Server};
use cairn_nbd::{Address, Client, ConnectOptions, Extent, Place};

use crate::{address, serve, writing};

#[test]
fn what_is_written_is_read_from_both_ends() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let server = serve(&socket, device.clone());
    for connections in [1, 4] {
        let options = ConnectOptions { connections, ..writing() };
        let client = Client::connect(&address(&socket), &options).unwrap();
        assert_eq!(client.connections(), connections);
        assert_eq!(client.geometry().size, 16 << 20);
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..60 {
            let offset = random.u64(0..12 << 20);
            let len = random.usize(1..3 << 20);
            let fill = random.u8(..);
            client.write_at(offset, vec![fill; len]).unwrap();
            assert!(client.read_at(offset, len).unwrap().iter().all(|byte| *byte == fill));
            assert!(device.read_at(offset, len).unwrap().iter().all(|byte| *byte == fill));
            match random.u8(0..3) {
                0 => client.write_zeroes(offset, len as u64).unwrap(),
                1 => client.discard(offset, len as u64).unwrap(),
                _ => continue,
            }
            assert!(client.read_at(offset, len).unwrap().iter().all(|byte| *byte == 0));
        }
    }
    server.stop().unwrap();
}

#[test]
fn a_batch_keeps_the_order_of_its_buffers() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let device = Arc::new(MemoryDevice::new(8 << 20));
    let _server = serve(&socket, device.clone());
    let client = Client::connect(&address(&socket), &writing()).unwrap();
    let pieces: Vec<_> = (0..8_u8).map(|at| vec![at; 300_000].into()).collect();
    client
        .submit(Batch {
            requests: vec![Request::Write { offset: 0, bufs: pieces }],
            durability: Durability { preflush: true, fua: true },
        })
        .wait()
        .unwrap();
    let reads = [(2_400_000 - 1, 1), (0, 2_000_000), (5, 0), (600_000, 300_000)];
    let requests = reads.map(|(offset, len)| Request::Read { offset, buf: IoBuf::zeroed(len) });
    let batch = Batch { requests: requests.into(), durability: Durability::default() };
    let bufs = client.submit(batch).wait().unwrap();
    for (buf, (offset, len)) in bufs.iter().zip(reads) {
        assert!(**buf == *device.read_at(offset, len).unwrap());
        assert!(len == 0 || buf[0] == (offset / 300_000) as u8);
    }
    assert_eq!(bufs.len(), 4);
}

#[test]
fn barriers_reach_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let device = Arc::new(Stats::new(Arc::new(MemoryDevice::new(1 << 20))));
    let _server = serve(&socket, device.clone());
    let client = Client::connect(&address(&socket), &writing()).unwrap();
    let durability = Durability { preflush: true, fua: true };
    client.write_durable(0, vec![1; 4096], durability).unwrap();
    let counted = device.snapshot();
    assert_eq!((counted.flushes, counted.fua_writes, counted.writes), (1, 1, 1));
    client.flush().unwrap();
    client.flush().unwrap();
    assert_eq!(device.snapshot().flushes, 3);
}

#[test]
fn errors_of_the_device_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let fault = Arc::new(Fault::new(Arc::new(MemoryDevice::new(1 << 20))));
    let _server = serve(&socket, fault.clone());
    let client = Client::connect(&address(&socket), &writing()).unwrap();
    fault.fail(Operation::Read, 1, Lasting::Once);
    let error = client.read_at(8192, 4096).unwrap_err();
    assert_eq!((error.kind, error.range), (ErrorKind::Io, Some((8192, 4096))));
    assert!(error.detail.contains("injected fault"), "{error}");
    client.read_at(8192, 4096).unwrap();
    assert_eq!(client.read_at(1 << 20, 1).unwrap_err().kind, ErrorKind::OutOfRange);
    client.write_at(0, vec![1; 4096]).unwrap();
    fault.fail(Operation::Flush, 1, Lasting::Once);
    assert!(client.flush().unwrap_err().detail.contains("injected fault"));
    // The server may have dropped what it could not write.
    assert!(client.flush().is_err());
    let late = client.write_at(0, vec![2; 4096]).unwrap_err();
    assert!(late.detail.contains("a flush failed before"), "{late}");
    assert_eq!(client.read_at(0, 1).unwrap()[0], 1);
}

/// Requests do not wait for each other: what is behind a flush that waits is answered.
#[test]
fn answers_come_out_of_order() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let hold = Arc::new(Hold::new(Arc::new(MemoryDevice::new(1 << 20))));
    let _server = serve(&socket, hold.clone());
    let client = Arc::new(Client::connect(&address(&socket), &writing()).unwrap());
    hold.set(Flushing::Held);
    let flush = {
        let client = client.clone();
        std::thread::spawn(move || client.flush())
    };
    hold.wait_for(1);
    client.write_at(4096, vec![7; 4096]).unwrap();
    assert_eq!(client.read_at(4096, 1).unwrap()[0], 7);
    assert_eq!(client.kept(), 4096 + 128);
    hold.set(Flushing::Free);
    flush.join().unwrap().unwrap();
    // The flush was sent before the write was answered, so it does not cover it.
    assert_eq!(client.kept(), 4096 + 128);
    client.flush().unwrap();
    assert_eq!(client.kept(), 0);
}

#[test]
fn a_device_that_is_read_only_stays_so() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let device = ReadOnly::new(Arc::new(MemoryDevice::new(1 << 20)));
    let _server = serve(&socket, Arc::new(device));
    let refused = Client::connect(&address(&socket), &writing()).err().unwrap();
    assert_eq!(refused.kind, ErrorKind::ReadOnly);
    let client = Client::connect(&address(&socket), &ConnectOptions::default()).unwrap();
    assert!(client.geometry().read_only);
    assert_eq!(client.write_at(0, vec![0; 512]).unwrap_err().kind, ErrorKind::ReadOnly);
    client.read_at(0, 512).unwrap();
}

#[test]
fn extents_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(1 << 20));
    let extents = |range: std::ops::Range<u64>| {
        let step = 256 << 10;
        let mut told = Vec::new();
        let mut offset = range.start;
        while offset < range.end {
            let end = (offset / step + 1) * step;
            let hole = (offset / step) % 2 == 1;
            told.push(Extent { offset, len: end - offset, hole, zero: hole });
            offset = end;
        }
        Ok(told)
    };
    let export = |name: &str, extents| Export {
        name: name.into(),
        description: String::new(),
        device: device.clone(),
        read_only: false,
        extents,
    };
    let exports = vec![export("disk", Some(Arc::new(extents) as _)), export("other", None)];
    let listen = Listen::Unix(socket.clone());
    let _server = Server::start(&listen, exports, Options::default()).unwrap();
    let client = Client::connect(&address(&socket), &writing()).unwrap();
    let told = client.allocated(4096..1 << 20).unwrap();
    let shape: Vec<_> = told.iter().map(|extent| (extent.offset, extent.hole)).collect();
    assert_eq!(shape, [(4096, false), (256 << 10, true), (512 << 10, false), (768 << 10, true)]);
    let other = Address { export: "other".into(), ..address(&socket) };
    let client = Client::connect(&other, &writing()).unwrap();
    let whole = Extent { offset: 0, len: 1 << 20, hole: false, zero: false };
    assert_eq!(client.allocated(0..1 << 20).unwrap(), [whole]);
}

#[test]
fn who_cannot_connect_learns_why() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let connect = |address: &Address| Client::connect(address, &writing()).err().unwrap();
    let error = connect(&address(&socket));
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("see that the server runs"), "{error}");
    let server = serve(&socket, Arc::new(MemoryDevice::new(1 << 20)));
    let error = connect(&Address { export: "dusk".into(), ..address(&socket) });
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(
        error.to_string().contains("no export 'dusk' there")
            && error.to_string().contains("it has 'disk'"),
        "{error}"
    );
    let tls = Some(cairn_nbd::TlsWish::default());
    let error = connect(&Address { tls, ..address(&socket) });
    assert_eq!(error.kind, ErrorKind::PermissionDenied, "{error}");
    let why = "the server has no TLS (the server says: no TLS here";
    assert!(error.detail.contains(why), "{error}");
    // The default export.
    Client::connect(&Address { export: String::new(), ..address(&socket) }, &writing()).unwrap();
    let again = Server::start(&Listen::Unix(socket.clone()), Vec::new(), Options::default());
    assert_eq!(again.err().unwrap().kind, ErrorKind::InUse);
    drop(server);
    assert!(!socket.exists());
}

/// What waits for a server that does not come back fails, and says why.
#[test]
fn a_server_that_stays_away_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let server = serve(&socket, Arc::new(MemoryDevice::new(1 << 20)));
    let reconnect_timeout = Duration::from_millis(200);
    let options = ConnectOptions { reconnect_timeout, ..writing() };
    let client = Client::connect(&address(&socket), &options).unwrap();
    client.write_at(0, vec![1; 4096]).unwrap();
    drop(server);
    let error = client.flush().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    assert!(error.detail.contains("no new connection came"), "{error}");
    assert!(error.detail.contains("then open the volume again"), "{error}");
    assert_eq!(client.read_at(0, 1).unwrap_err().detail, error.detail);
}

/// Another disk under the same name is not taken for the old one.
#[test]
fn an_export_that_differs_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let server = serve(&socket, Arc::new(MemoryDevice::new(1 << 20)));
    let client = Client::connect(&address(&socket), &writing()).unwrap();
    drop(server);
    let _server = serve(&socket, Arc::new(MemoryDevice::new(2 << 20)));
    let error = client.read_at(0, 512).unwrap_err();
    assert!(error.detail.contains("the export has 2097152 bytes and had 1048576"), "{error}");
}

#[test]
fn a_server_listens_at_a_free_port() {
    let export = Export {
        name: "disk".into(),
        description: String::new(),
        device: Arc::new(MemoryDevice::new(1 << 20)),
        read_only: true,
        extents: None,
    };
    let listen = Listen::Tcp("127.0.0.1:0".parse().unwrap());
    let server = Server::start(&listen, vec![export], Options::default()).unwrap();
    let address = Address { place: server.place(), export: "disk".into(), tls: None };
    assert!(matches!(&address.place, Place::Tcp { port, .. } if *port != 0));
    let client = Client::connect(&address, &ConnectOptions::default()).unwrap();
    client.read_at(0, 1 << 20).unwrap();
    server.stop().unwrap();
}
