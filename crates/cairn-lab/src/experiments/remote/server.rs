//! [`Server`]: an nbdkit of its own.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Time for it to listen.
const START: Duration = Duration::from_secs(30);

/// A server of a disk in memory, which ends with this.
pub(super) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts it, and waits until it listens. With `delay` each read and write takes so many
    /// milliseconds.
    pub(super) fn start(size: u64, delay: Option<u32>) -> Result<Self> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = free.map_err(Error::host("a free port"))?.port();
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--exit-with-parent", "--ipaddr", "127.0.0.1", "--port"]);
        command.arg(port.to_string());
        if delay.is_some() {
            command.arg("--filter=delay");
        }
        command.args(["memory".to_owned(), format!("size={size}")]);
        if let Some(delay) = delay {
            command.args([format!("rdelay={delay}ms"), format!("wdelay={delay}ms")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Self { child: command.spawn().map_err(Error::host("nbdkit"))?, port };
        server.wait()?;
        Ok(server)
    }

    fn wait(&mut self) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.child.try_wait().map_err(Error::host("nbdkit"))?;
            if ended.is_some() || start.elapsed() > START {
                let why = "nbdkit does not serve: see that it has the plugin memory and the \
                           filter delay";
                return Err(Error::Program(why.into()));
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub(super) fn uri(&self) -> String {
        format!("nbd://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
