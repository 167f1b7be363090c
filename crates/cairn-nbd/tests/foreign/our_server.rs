//! The server, judged by the clients of others.

use std::path::Path;
use std::sync::Arc;

use cairn_block::file::{FileDevice, OpenOptions};
use cairn_nbd::server::{Export, Listen, Options, Server};
use cairn_nbd::{Address, Place};

use super::{output, place};

fn serve(socket: &Path, image: &Path, read_only: bool) -> Server {
    let options = OpenOptions { write: !read_only, ..OpenOptions::read() };
    let device = FileDevice::open(image, options).unwrap();
    let export = Export {
        name: "the disk".into(),
        description: "of a test".into(),
        device: Arc::new(device),
        read_only,
        extents: None,
    };
    Server::start(&Listen::Unix(socket.to_owned()), vec![export], Options::default()).unwrap()
}

fn uri(server: &Server) -> String {
    Address { place: server.place(), export: "the disk".into(), tls: None }.to_string()
}

fn contents() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(3);
    let mut bytes = vec![0; 12 << 20];
    for start in (0..bytes.len()).step_by(1 << 20) {
        let len = random.usize(0..1 << 19);
        random.fill(&mut bytes[start..start + len]);
    }
    bytes
}

#[test]
fn nbdinfo_knows_it() {
    let (dir, socket) = place("socket");
    let image = dir.path().join("image");
    std::fs::write(&image, contents()).unwrap();
    for read_only in [false, true] {
        let server = serve(&socket, &image, read_only);
        let told = output("nbdinfo", &["--json", &uri(&server)]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["protocol"], "newstyle-fixed");
        assert_eq!(told["structured"], true);
        let export = &told["exports"][0];
        assert_eq!(export["export-name"], "the disk");
        assert_eq!(export["export-size"], 12 << 20);
        assert_eq!(export["is_read_only"], read_only);
        assert_eq!(export["can_multi_conn"], true);
        assert_eq!(export["can_flush"], true);
        assert_eq!(export["can_fua"], true);
        assert_eq!(export["can_zero"], !read_only);
        assert_eq!(export["can_trim"], !read_only);
        assert_eq!(export["block_size_minimum"], 1);
        assert_eq!(export["block_size_maximum"], 32 << 20);
        let list = output("nbdinfo", &["--list", "--json", &uri(&server)]);
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list["exports"][0]["description"], "of a test");
        server.stop().unwrap();
    }
}

#[test]
fn nbdcopy_and_qemu_img_copy_it() {
    let (dir, socket) = place("socket");
    let bytes = contents();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("image"), &bytes).unwrap();
    let server = serve(&socket, Path::new(&at("image")), false);
    let uri = uri(&server);
    output("nbdcopy", &[&uri, &at("copied")]);
    assert!(std::fs::read(at("copied")).unwrap() == bytes);
    output("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, &at("qcow2")]);
    output("qemu-img", &["compare", "-q", "-f", "raw", "-F", "qcow2", &uri, &at("qcow2")]);
    // The other way round, over other bytes; and with holes, which clients write as zeros.
    let other: Vec<u8> = bytes.iter().rev().copied().collect();
    std::fs::write(at("other"), &other).unwrap();
    output("nbdcopy", &["--flush", "--connections=4", &at("other"), &uri]);
    assert!(std::fs::read(at("image")).unwrap() == other);
    output("qemu-img", &["convert", "-n", "-f", "qcow2", "-O", "raw", &at("qcow2"), &uri]);
    assert!(std::fs::read(at("image")).unwrap() == bytes);
    for command in ["write -f -P 7 4096 65536", "write -z 1M 1M", "discard 3M 1M", "flush"] {
        output("qemu-io", &["-f", "raw", "-c", command, &uri]);
    }
    let written = std::fs::read(at("image")).unwrap();
    assert!(written[4096..][..65536].iter().all(|byte| *byte == 7));
    assert!(written[1 << 20..2 << 20].iter().all(|byte| *byte == 0));
    server.stop().unwrap();
}

/// Over TCP, with an option that no server of today needs, and one that Cairn does not have.
#[test]
fn nbdcopy_over_tcp() {
    let (dir, _) = place("socket");
    let image = dir.path().join("image");
    let bytes = contents();
    std::fs::write(&image, &bytes).unwrap();
    let device = FileDevice::open(&image, OpenOptions::read()).unwrap();
    let export = Export {
        name: String::new(),
        description: String::new(),
        device: Arc::new(device),
        read_only: true,
        extents: None,
    };
    let listen = Listen::Tcp("127.0.0.1:0".parse().unwrap());
    let server = Server::start(&listen, vec![export], Options::default()).unwrap();
    let Place::Tcp { host, port } = server.place() else { panic!("TCP was asked for") };
    let uri = format!("nbd://{host}:{port}/");
    let copied = dir.path().join("copied");
    output("nbdcopy", &[&uri, copied.to_str().unwrap()]);
    assert!(std::fs::read(copied).unwrap() == bytes);
    server.stop().unwrap();
}
