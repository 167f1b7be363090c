//! Opens the connections of a session.

use std::sync::Arc;
use std::time::Duration;

use super::negotiate::{Agreed, Negotiation};
use super::options::ConnectOptions;
use super::session::{Lane, Session};
use crate::address::Address;
use crate::clock::Deadline;
use crate::failure::Broken;
use crate::transport::{self, Incoming, Outgoing, Socket};
use crate::wire::{ExportFlags, Violation};

/// Connections that are open, and what their servers agreed to.
pub(super) struct Opened {
    pub(super) session: Arc<Session>,
    /// One for each lane.
    pub(super) incoming: Vec<Incoming>,
    pub(super) agreed: Agreed,
}

/// Opens as many connections as are wanted and allowed.
pub(super) fn open(
    address: &Address,
    options: &ConnectOptions,
    number: u64,
    time: Duration,
) -> Result<Opened, Broken> {
    let deadline = Deadline::after(time);
    let (incoming, outgoing, agreed) = connect(address, options, deadline)?;
    let mut all = vec![(incoming, outgoing)];
    let several = agreed.flags.contains(ExportFlags::CAN_MULTI_CONN);
    for _ in 1..if several { options.connections } else { 1 } {
        let (incoming, outgoing, other) = connect(address, options, deadline)?;
        if other != agreed {
            let what = "an export that differs between connections: its size";
            return Err(Violation::Value { what, found: other.size }.into());
        }
        all.push((incoming, outgoing));
    }
    let (mut lanes, mut incoming) = (Vec::new(), Vec::new());
    for (arrives, leaves) in all {
        let socket = arrives.socket().clone();
        // From here on a server may take its time; the keeper counts it.
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(Some(options.request_timeout))?;
        lanes.push(Lane::new(leaves, socket));
        incoming.push(arrives);
    }
    let Agreed { headers, allocation, .. } = agreed;
    let session = Arc::new(Session { number, lanes, headers, allocation });
    Ok(Opened { session, incoming, agreed })
}

fn connect(
    address: &Address,
    options: &ConnectOptions,
    deadline: Deadline,
) -> Result<(Incoming, Outgoing, Agreed), Broken> {
    let socket = Arc::new(Socket::connect(&address.place, deadline)?);
    socket.set_write_timeout(Some(options.connect_timeout))?;
    let (mut incoming, mut outgoing) = transport::split(socket);
    let mut negotiation =
        Negotiation { incoming: &mut incoming, outgoing: &mut outgoing, deadline };
    let agreed = negotiation.agree(address)?;
    Ok((incoming, outgoing, agreed))
}
