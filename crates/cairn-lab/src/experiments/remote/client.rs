//! Cairn's client of the measured server.

use cairn_block::{Error as BlockError, ErrorKind};
use cairn_nbd::{Address, Client, ConnectOptions};

use super::server::Server;
use crate::error::{Error, Result};

/// A client with so many connections.
pub(super) fn client(server: &Server, connections: usize) -> Result<Client> {
    let options = ConnectOptions { write: true, connections, ..ConnectOptions::default() };
    let address = Address::parse(&server.uri()).map_err(|error| {
        Error::Device(BlockError::new(ErrorKind::Io, "name the server", error.to_string()))
    })?;
    Ok(Client::connect(&address, &options)?)
}

/// `1 connection`, `2 connections`.
pub(super) fn connections(count: usize) -> String {
    if count == 1 { "1 connection".into() } else { format!("{count} connections") }
}
