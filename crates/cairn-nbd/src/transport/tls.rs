//! [`Tls`]: encryption by rustls.
//!
//! Two threads use one session: one reads, others write. The session's lock is held while bytes are
//! encrypted or decrypted, never while the socket works. What was encrypted is sent in order, under
//! a lock of its own.
//!
//! Locking: `sending` has `Rank::Connection` and stands behind a lane's way out; `session` is a
//! leaf.

use std::fmt;
use std::io::{self, ErrorKind as Io, IoSlice, Read, Write};
use std::path::Path;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::{Error, ErrorKind};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};

use super::socket::{Socket, is_timeout};
use crate::address::{Address, Place, TlsWish};
use crate::clock::Deadline;
use crate::failure::Broken;

/// Bytes that are encrypted at once.
const PART: usize = 64 << 10;
/// The file of authorities in a directory of certificates, as other clients have it.
const AUTHORITIES: &str = "ca-cert.pem";
/// The files of a server there.
const OWN: [&str; 2] = ["server-cert.pem", "server-key.pem"];

/// An encrypted connection.
pub(crate) struct Tls {
    socket: Arc<Socket>,
    session: Mutex<Connection>,
    sending: Mutex<()>,
}

/// Encrypted bytes that have arrived.
pub(crate) struct Arrived {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Arrived {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; 32 << 10].into(), start: 0, end: 0 }
    }
}

fn refused(kind: ErrorKind, detail: String) -> Broken {
    Broken::Refused(Error::new(kind, "connect", detail))
}

impl Tls {
    /// Agrees on keys with the server, and checks who it is.
    pub(crate) fn connect(
        socket: &Arc<Socket>,
        address: &Address,
        wish: &TlsWish,
        deadline: Deadline,
    ) -> Result<Arc<Self>, Broken> {
        let config = Arc::new(config(wish)?);
        let session = ClientConnection::new(config, name(address, wish)?).map_err(failed)?;
        Self::agree(socket, session.into(), deadline)
    }

    /// As [`Tls::connect`], seen from the server.
    pub(crate) fn accept(
        socket: &Arc<Socket>,
        certificates: &Certificates,
        deadline: Deadline,
    ) -> Result<Arc<Self>, Broken> {
        let session = ServerConnection::new(certificates.0.clone()).map_err(failed)?;
        Self::agree(socket, session.into(), deadline)
    }

    fn agree(
        socket: &Arc<Socket>,
        session: Connection,
        deadline: Deadline,
    ) -> Result<Arc<Self>, Broken> {
        let session = shake_hands(socket, session, deadline)?;
        Ok(Arc::new(Self {
            socket: socket.clone(),
            session: Mutex::new(Rank::Leaf, session),
            sending: Mutex::new_ordered(Rank::Connection, 1, ()),
        }))
    }

    /// Sends all of these pieces.
    pub(crate) fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let _order = self.sending.lock();
        for piece in pieces {
            let mut left = &**piece;
            while !left.is_empty() {
                let part = &left[..left.len().min(PART)];
                let (count, encrypted) = {
                    let mut session = self.session.lock();
                    let count = session.writer().write(part)?;
                    (count, owed(&mut session)?)
                };
                left = left.get(count..).unwrap_or_default();
                (&*self.socket).write_all(&encrypted)?;
            }
        }
        Ok(())
    }

    /// Tells the other side that nothing more will come.
    pub(crate) fn close(&self) -> io::Result<()> {
        let _order = self.sending.lock();
        let encrypted = {
            let mut session = self.session.lock();
            session.send_close_notify();
            owed(&mut session)?
        };
        (&*self.socket).write_all(&encrypted)
    }

    /// Reads as `Read::read`.
    pub(crate) fn read(&self, arrived: &mut Arrived, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut session = self.session.lock();
            match session.reader().read(buf) {
                Err(error) if error.kind() == Io::WouldBlock => {}
                done => return done,
            }
            if arrived.start < arrived.end {
                let mut rest = arrived.bytes.get(arrived.start..arrived.end).unwrap_or_default();
                arrived.start += session.read_tls(&mut rest)?;
                session.process_new_packets().map_err(invalid)?;
                let owes = session.wants_write();
                drop(session);
                if owes {
                    self.send_owed()?;
                }
                continue;
            }
            drop(session);
            arrived.start = 0;
            arrived.end = (&*self.socket).read(&mut arrived.bytes)?;
            if arrived.end == 0 {
                return Err(Io::UnexpectedEof.into());
            }
        }
    }

    /// Sends what TLS itself has to say. If another thread is sending, it goes with what that one
    /// sends next: who reads does not wait.
    fn send_owed(&self) -> io::Result<()> {
        let Some(_order) = self.sending.try_lock() else { return Ok(()) };
        let encrypted = owed(&mut self.session.lock())?;
        (&*self.socket).write_all(&encrypted)
    }
}

fn owed(session: &mut Connection) -> io::Result<Vec<u8>> {
    let mut encrypted = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut encrypted)?;
    }
    Ok(encrypted)
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(Io::InvalidData, error)
}

fn failed(error: rustls::Error) -> Broken {
    let advice = "see that tls-certificates=FILE names its authority, and tls-hostname=NAME its \
                  name";
    refused(ErrorKind::PermissionDenied, format!("TLS: {error}: {advice}"))
}

fn shake_hands(
    socket: &Socket,
    mut session: Connection,
    deadline: Deadline,
) -> Result<Connection, Broken> {
    let mut bytes = [0; 8 << 10];
    loop {
        let mut socket_out = socket;
        socket_out.write_all(&owed(&mut session)?)?;
        if !session.is_handshaking() {
            return Ok(session);
        }
        socket.set_read_timeout(Some(deadline.check()?))?;
        let mut socket_in = socket;
        let count = match socket_in.read(&mut bytes) {
            Ok(0) => return Err(Broken::Io(Io::UnexpectedEof.into())),
            Ok(count) => count,
            Err(error) if is_timeout(&error) => continue,
            Err(error) => return Err(error.into()),
        };
        let mut rest = bytes.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            session.read_tls(&mut rest)?;
            if let Err(error) = session.process_new_packets() {
                // The other side learns why, if it can be told.
                let _ = owed(&mut session).and_then(|alert| socket_out.write_all(&alert));
                return Err(failed(error));
            }
        }
    }
}

/// The certificate of a server, and its key. Clients need none.
#[derive(Clone)]
pub struct Certificates(Arc<ServerConfig>);

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates")
    }
}

impl PartialEq for Certificates {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Certificates {}

impl Certificates {
    /// Those in a directory, as other servers have it: `server-cert.pem` and `server-key.pem`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: one of the files is missing, or is not what its name says.
    pub fn load(directory: &Path) -> cairn_block::Result<Self> {
        let [chain, key] = OWN.map(|name| directory.join(name));
        let wrong = |path: &Path, error: &dyn fmt::Display| {
            let advice = "a directory of certificates has server-cert.pem and server-key.pem";
            let detail = format!("{}: {error}: {advice}", path.display());
            Error::new(ErrorKind::NotFound, "read the certificates", detail)
        };
        let found = CertificateDer::pem_file_iter(&chain)
            .and_then(|all| all.collect::<Result<Vec<_>, _>>())
            .map_err(|error| wrong(&chain, &error))?;
        let own = PrivateKeyDer::from_pem_file(&key).map_err(|error| wrong(&key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(found, own))
            .map_err(|error| wrong(&chain, &error))?;
        Ok(Self(Arc::new(config)))
    }
}

fn config(wish: &TlsWish) -> Result<ClientConfig, Broken> {
    let mut roots = RootCertStore::empty();
    let none = match &wish.authorities {
        Some(path) => {
            let path = if path.is_dir() { path.join(AUTHORITIES) } else { path.clone() };
            for certificate in read(&path)? {
                roots.add(certificate).map_err(failed)?;
            }
            format!("{} has no certificates", path.display())
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            "the system has no certificates of authorities".to_owned()
        }
    };
    if roots.is_empty() {
        let detail = format!("{none}: name a file that has (tls-certificates=FILE)");
        return Err(refused(ErrorKind::NotFound, detail));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(failed)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, Broken> {
    let unreadable = |error: rustls::pki_types::pem::Error| {
        let detail = format!(
            "{}: {error}: name a file with certificates in PEM (tls-certificates=FILE)",
            path.display()
        );
        refused(ErrorKind::NotFound, detail)
    };
    let all = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    all.collect::<Result<_, _>>().map_err(unreadable)
}

fn name(address: &Address, wish: &TlsWish) -> Result<ServerName<'static>, Broken> {
    let name = match (&wish.hostname, &address.place) {
        (Some(name), _) => name,
        (None, Place::Tcp { host, .. }) => host,
        (None, Place::Unix(_)) => {
            let detail = "the name in the server's certificate must be given: tls-hostname=NAME";
            return Err(refused(ErrorKind::PermissionDenied, detail.into()));
        }
    };
    ServerName::try_from(name.clone()).map_err(|_| {
        let detail = format!("'{name}' is not a name that a certificate can have");
        refused(ErrorKind::PermissionDenied, detail)
    })
}
