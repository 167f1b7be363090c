//! TLS, with nbdkit and certificates that openssl makes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt, Error, ErrorKind};
use cairn_nbd::server::{Certificates, Export, Listen, Options, Server};
use cairn_nbd::{Address, Client, Place, TlsWish};

use super::{Foreign, output, place, writing};

/// A directory with an authority, and a server's certificate for `localhost`.
fn certificates(directory: &Path) -> PathBuf {
    let path = directory.join("pki");
    std::fs::create_dir(&path).unwrap();
    let at = |name: &str| path.join(name).to_str().unwrap().to_owned();
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let new = |more: &[&str]| {
        output("openssl", &[&["req"], &key[..], more].concat());
    };
    let (ca, ca_key) = (at("ca-cert.pem"), at("ca-key.pem"));
    let (request, server_key) = (at("request.pem"), at("server-key.pem"));
    new(&["-x509", "-days", "9", "-subj", "/CN=authority", "-keyout", &ca_key, "-out", &ca]);
    let name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
    new(&[&name[..], &["-keyout", &server_key, "-out", &request]].concat());
    let sign = ["x509", "-req", "-days", "9", "-copy_extensions", "copy", "-in", &request];
    let by = ["-CA", &ca, "-CAkey", &ca_key, "-out", &at("server-cert.pem")];
    output("openssl", &[&sign[..], &by[..]].concat());
    path
}

fn secure(server: &Foreign, authorities: &Path, name: &str) -> Address {
    let tls = TlsWish { authorities: Some(authorities.to_owned()), hostname: Some(name.into()) };
    Address { tls: Some(tls), ..server.address() }
}

fn refused(address: &Address) -> Error {
    let error = Client::connect(address, &writing()).err().expect("it is refused");
    println!("{error}");
    error
}

#[test]
fn encrypted_connections() {
    let (dir, socket) = place("socket");
    let pki = certificates(dir.path());
    let disk = dir.path().join("disk");
    std::fs::write(&disk, vec![0; 8 << 20]).unwrap();
    let directory = format!("--tls-certificates={}", pki.display());
    let arguments = ["--tls=require", &directory, "file", disk.to_str().unwrap()];
    let mut server = Foreign::nbdkit(&socket, &arguments);
    let address = secure(&server, &pki, "localhost");
    let client = Client::connect(&address, &writing()).unwrap();
    let bytes: Vec<u8> = (0..5 << 20).map(|at: u32| (at % 251) as u8).collect();
    client.write_at(4096, bytes.clone()).unwrap();
    client.flush().unwrap();
    assert!(*client.read_at(4096, bytes.len()).unwrap() == bytes);
    // The successor is asked for its certificate, too.
    client.write_at(0, vec![9; 4096]).unwrap();
    server.kill();
    server = Foreign::nbdkit(&socket, &arguments);
    assert!(client.read_at(0, 4096).unwrap().iter().all(|byte| *byte == 9));
    client.flush().unwrap();
    drop(client);
    let read = std::fs::read(&disk).unwrap();
    assert!(read[..4096] == [9; 4096] && read[4096..][..bytes.len()] == bytes);

    let other = certificates(&tempfile::tempdir_in(dir.path()).unwrap().keep());
    for (address, words) in [
        (secure(&server, &other, "localhost"), "TLS: "),
        (secure(&server, &pki, "otherhost"), "tls-hostname=NAME"),
        (server.address(), "write nbds://"),
        (Address { tls: Some(TlsWish::default()), ..server.address() }, "tls-hostname=NAME"),
    ] {
        let error = refused(&address);
        assert_eq!(error.kind, ErrorKind::PermissionDenied);
        assert!(error.detail.contains(words), "{error}");
    }
    let missing = refused(&secure(&server, &dir.path().join("missing"), "localhost"));
    assert!(missing.kind == ErrorKind::NotFound && missing.detail.contains("missing"));
    let plain = Foreign::nbdkit(&dir.path().join("plain"), &["--tls=off", "memory", "1M"]);
    let error = refused(&secure(&plain, &pki, "localhost"));
    assert!(error.detail.contains("the server has no TLS"), "{error}");
}

#[test]
fn our_server_encrypts() {
    let (dir, _) = place("socket");
    let pki = certificates(dir.path());
    let options =
        Options { certificates: Some(Certificates::load(&pki).unwrap()), ..Options::default() };
    let export = Export::new("", Arc::new(MemoryDevice::new(4 << 20)), false);
    let listen = Listen::Tcp("127.0.0.1:0".parse().unwrap());
    let server = Server::start(&listen, vec![export], options).unwrap();
    assert!(server.is_encrypted());
    let Place::Tcp { port, .. } = server.place() else { panic!("TCP was asked for") };
    let uri = format!("nbds://localhost:{port}/?tls-certificates={}", pki.display());
    let told = output("nbdinfo", &["--json", &uri]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["TLS"], true, "{told}");
    let bytes: Vec<u8> = (0..4 << 20).map(|at: u32| (at % 253) as u8).collect();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("from"), &bytes).unwrap();
    output("nbdcopy", &["--flush", &at("from"), &uri]);
    output("nbdcopy", &[&uri, &at("to")]);
    assert!(std::fs::read(at("to")).unwrap() == bytes);
    let own = Client::connect(&Address::parse(&uri).unwrap(), &writing()).unwrap();
    own.write_at(0, vec![9; 4096]).unwrap();
    own.flush().unwrap();
    assert!(own.read_at(0, 4096).unwrap().iter().all(|byte| *byte == 9));
    drop(own);
    // Who does not encrypt learns nothing, by either way to choose an export.
    let plain = format!("nbd://localhost:{port}/");
    let error = refused(&Address::parse(&plain).unwrap());
    assert!(error.detail.contains("write nbds://"), "{error}");
    for more in [&["--list"][..], &["--json"]] {
        let refused = Command::new("nbdinfo").args(more).arg(&plain).output().unwrap();
        assert!(!refused.status.success());
    }
    server.stop().unwrap();
    for missing in ["server-key.pem", "server-cert.pem"] {
        std::fs::remove_file(pki.join(missing)).unwrap();
        let error = Certificates::load(&pki).unwrap_err();
        assert!(error.kind == ErrorKind::NotFound && error.detail.contains(missing), "{error}");
    }
}
