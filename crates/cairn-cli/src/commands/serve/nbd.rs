//! `cairn serve nbd`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use cairn_block::ErrorKind;
use cairn_nbd::server::{Certificates, Export, Listen, Options, Server};
use cairn_nbd::{Address, TlsWish};
use tempfile::TempDir;

use crate::failure::{Failure, Outcome, Status};
use crate::output::with_stdout;
use crate::session::ImageArg;
use crate::signals::on_ending;

/// Arguments of `serve nbd`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn serve nbd disk.img
  cairn serve nbd --socket disk.sock disk.img
  cairn serve nbd --read-only --listen 127.0.0.1:10809 'disk.img#2'
  cairn serve nbd --listen 127.0.0.1:0 --tls-certificates certs disk.img

Prints the address when clients can connect, and serves until a signal ends it \
(SIGTERM, ctrl-C); then everything is on the disk. Meanwhile no other program can \
open the image. There is no login: who can connect can read and write. A socket can \
be used by its owner alone. --tls-certificates encrypts.")]
pub(super) struct Args {
    /// The socket to listen at. Without this option and --listen, one in a new directory.
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    socket: Option<PathBuf>,
    /// The address and port to listen at; port 0 for a free one.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen)]
    listen: Option<SocketAddr>,
    /// The name of the export. Clients that name none get it, too.
    #[arg(long, value_name = "NAME", default_value = "")]
    export: String,
    /// Clients must encrypt (TLS). The directory has server-cert.pem and server-key.pem, as those
    /// of nbdkit and qemu-nbd.
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// Clients cannot change the image.
    #[arg(short = 'r', long)]
    read_only: bool,
    #[command(flatten)]
    image: ImageArg,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "give a number and a port, such as 127.0.0.1:10809".to_owned())
}

/// Serves until a signal ends it.
///
/// # Errors
/// The image cannot be opened or has zones, the place cannot be listened at, or at the end not
/// everything could be written.
pub(super) fn run(args: &Args) -> Outcome {
    let image = args.image.spec()?;
    let certificates = args.tls_certificates.as_deref().map(Certificates::load).transpose();
    let certificates =
        certificates.map_err(|error| Failure::new(Status::NoImage, error.to_string()))?;
    let device = cairn::open_device(&image, &args.image.devices, !args.read_only)?;
    if device.as_zoned().is_some() {
        let why = format!("{image}: it has zones, of which NBD clients learn nothing: mount it");
        return Err(Failure::new(Status::Unsupported, why));
    }
    let (ending, ended) = mpsc::channel();
    on_ending(move || drop(ending), || ())?;
    let (place, _directory) = place(args)?;
    let export = Export::new(&args.export, device, args.read_only);
    let options = Options { certificates, ..Options::default() };
    let server = Server::start(&place, vec![export], options).map_err(of_server)?;
    let tls = server.is_encrypted().then(TlsWish::default);
    let address = Address { place: server.place(), export: args.export.clone(), tls };
    with_stdout(|output| {
        output.write_fmt(format_args!("{address}\n"))?;
        output.flush()
    })?;
    // An error says that the other end was dropped: there was a signal.
    let _: Result<(), _> = ended.recv();
    let stopped = server.stop().and_then(|()| cairn::objects::release_all());
    stopped.map_err(|error| Failure::new(Status::Io, format!("{image}: {error}")))
}

/// Where to listen; and the directory that was made for it, which goes at the end.
fn place(args: &Args) -> Outcome<(Listen, Option<TempDir>)> {
    if let Some(address) = args.listen {
        return Ok((Listen::Tcp(address), None));
    }
    if let Some(path) = &args.socket {
        return Ok((
            Listen::Unix(std::path::absolute(path).unwrap_or_else(|_| path.clone())),
            None,
        ));
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let parent = own.filter(|path| path.is_dir()).unwrap_or_else(std::env::temp_dir);
    let directory = tempfile::Builder::new().prefix("cairn-nbd-").tempdir_in(&parent);
    let directory = directory.map_err(|error| {
        let advice = "name a socket (--socket PATH)";
        Failure::start(&format!("no directory can be made in {}", shown(&parent)), &error, advice)
    })?;
    Ok((Listen::Unix(directory.path().join("socket")), Some(directory)))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn of_server(error: cairn_block::Error) -> Failure {
    let status = match error.kind {
        ErrorKind::InUse => Status::Busy,
        ErrorKind::OutOfRange => Status::Usage,
        _ => Status::Failed,
    };
    Failure::new(status, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::listen;

    #[test]
    fn an_address_has_a_port() {
        assert_eq!(listen("127.0.0.1:0").unwrap().port(), 0);
        assert_eq!(listen("[::1]:10809").unwrap().port(), 10809);
        assert!(listen("127.0.0.1").is_err() && listen("localhost:1").is_err());
    }
}
