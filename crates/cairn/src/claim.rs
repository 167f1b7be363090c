//! Keeps other users of Cairn on this system away from an export of an NBD server that is written.
//!
//! The protocol has no locks. A writer binds sockets of Linux's abstract namespace, whose names
//! follow from the server and the export, however the server is spelled: the file of a socket, or
//! the addresses of a host. All addresses of this system count as one. The kernel frees the names
//! when the process ends, however it ends. Other systems are not seen, and neither is one server
//! that listens on a socket and on a port, or an export with two names.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use cairn_nbd::{Address, Place};
use uuid::Uuid;

/// An export that no other process can claim until this is dropped.
pub(crate) struct Claim {
    _names: Vec<UnixDatagram>,
}

impl Claim {
    /// Claims an export; `None` if another process, or another volume of this one, has it.
    pub(crate) fn of(address: &Address) -> Option<Self> {
        let mut bound = Vec::new();
        for name in names(address) {
            match UnixDatagram::bind_addr(&name) {
                Ok(socket) => bound.push(socket),
                Err(error) if error.kind() == ErrorKind::AddrInUse => return None,
                // A system without such sockets, or without descriptors.
                Err(_) => {}
            }
        }
        Some(Self { _names: bound })
    }
}

/// Has a process claimed the export?
pub(crate) fn is_claimed(address: &Address) -> bool {
    let Ok(socket) = UnixDatagram::unbound() else { return false };
    names(address).iter().any(|name| socket.connect_addr(name).is_ok())
}

/// The names by which an export is claimed, each once.
fn names(address: &Address) -> Vec<SocketAddr> {
    let mut servers = match &address.place {
        Place::Unix(path) => socket_names(path),
        Place::Tcp { host, port } => host_names(host, *port),
    };
    servers.sort();
    servers.dedup();
    let named = servers.iter().map(|server| {
        let text = format!("{server}\0{}", address.export);
        let name = Uuid::new_v5(&Uuid::NAMESPACE_URL, text.as_bytes());
        SocketAddr::from_abstract_name(format!("cairn-nbd-{name}"))
    });
    named.filter_map(Result::ok).collect()
}

/// The path, which a server that was started again has, too, and the file, which may have others.
fn socket_names(path: &Path) -> Vec<String> {
    let whole = fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    let whole = whole.unwrap_or_else(|_| path.to_owned());
    let mut names = vec![format!("path {}", hex(whole.as_os_str().as_encoded_bytes()))];
    if let Ok(found) = fs::metadata(path) {
        names.push(format!("file {} {}", found.dev(), found.ino()));
    }
    names
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name, and the addresses that it has now.
fn host_names(host: &str, port: u16) -> Vec<String> {
    let mut names = vec![format!("host {} {port}", host.to_ascii_lowercase())];
    for found in (host, port).to_socket_addrs().into_iter().flatten() {
        let ip = found.ip().to_canonical();
        match is_of_this_system(ip) {
            true => names.push(format!("here {port}")),
            false => names.push(format!("address {ip} {port}")),
        }
    }
    names
}

/// Only an address of this system can be bound.
fn is_of_this_system(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    #[test]
    fn a_server_is_one_however_it_is_spelled() {
        let port = 40_000 + std::process::id() % 20_000;
        let first = address(&format!("nbd://127.0.0.1:{port}/disk"));
        let claim = Claim::of(&first).unwrap();
        for host in ["localhost", "LOCALHOST", "[::1]", "127.0.0.2", "[::ffff:127.0.0.1]"] {
            let other = address(&format!("nbd://{host}:{port}/disk"));
            assert!(is_claimed(&other) && Claim::of(&other).is_none(), "{host}");
        }
        for other in [format!("nbd://127.0.0.1:{port}/other"), "nbd://127.0.0.1:9/disk".into()] {
            assert!(!is_claimed(&address(&other)), "{other}");
        }
        drop(claim);
        assert!(!is_claimed(&first) && Claim::of(&first).is_some());
    }

    #[test]
    fn a_socket_is_one_by_each_of_its_paths() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let socket = place.join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        fs::hard_link(&socket, place.join("hard")).unwrap();
        symlink(place, place.join("linked")).unwrap();
        symlink(&socket, place.join("soft")).unwrap();
        let at = |path: &str| {
            address(&format!("nbd+unix:///disk?socket={}", place.join(path).display()))
        };
        let claim = Claim::of(&at("socket")).unwrap();
        for path in ["./socket", "linked/socket", "soft", "hard"] {
            assert!(is_claimed(&at(path)) && Claim::of(&at(path)).is_none(), "{path}");
        }
        // The server is started again.
        drop(listener);
        fs::remove_file(&socket).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(is_claimed(&at("linked/socket")));
        drop(claim);
        assert!(!is_claimed(&at("hard")));
    }
}
