//! [`ConnectOptions`].

use std::time::Duration;

/// How to connect, and how long to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The export is to be written. Fails if the server exports it read-only, or can neither flush
    /// nor force writes to its medium.
    pub write: bool,
    /// Time for a connection and its negotiation.
    pub connect_timeout: Duration,
    /// A request that is not answered in this time ends the connection.
    pub request_timeout: Duration,
    /// Time from the end of a connection until its successor works. After that the device fails
    /// for good.
    pub reconnect_timeout: Duration,
    /// Connections, if the server allows several.
    pub connections: usize,
    /// Bytes of writes that may be kept until a flush. Half of it causes a flush; who writes more
    /// than all of it waits.
    pub unflushed: u64,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            write: false,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            reconnect_timeout: Duration::from_secs(60),
            connections: 2,
            unflushed: 64 << 20,
        }
    }
}
