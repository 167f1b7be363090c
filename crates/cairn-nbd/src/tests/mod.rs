//! Client and server against bytes that no peer should send.

mod hostile_client;
mod hostile_server;
mod silence;

use std::path::Path;
use std::sync::Arc;

use cairn_block::BlockDevice;

use crate::server::{Export, Listen, Options, Server};
use crate::{Address, ConnectOptions, Place};

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
