//! Client and server against each other, and against servers that lose what was not flushed.

mod crashes;
mod requests;
mod volatile;

use std::path::Path;
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_nbd::server::{Export, Listen, Options, Server};
use cairn_nbd::{Address, ConnectOptions, Place};

/// A server of one device at this socket.
fn serve(socket: &Path, device: Arc<dyn BlockDevice>) -> Server {
    let export = Export {
        name: "disk".into(),
        description: "a test".into(),
        device,
        read_only: false,
        extents: None,
    };
    let listen = Listen::Unix(socket.to_owned());
    Server::start(&listen, vec![export], Options::default()).unwrap()
}

fn address(socket: &Path) -> Address {
    Address { place: Place::Unix(socket.to_owned()), export: "disk".into(), tls: None }
}

fn writing() -> ConnectOptions {
    ConnectOptions { write: true, ..ConnectOptions::default() }
}
