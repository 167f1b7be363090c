//! The control channel of a mount.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::stats::Report;
use cairn_fuse::control::{Control, Hold, serve_client};

/// A mount that can be held.
struct Quiet;

impl Control for Quiet {
    fn stats(&self) -> Report {
        let mut report = Report::new();
        report.section("mount").set("requests", 7_u64);
        report
    }

    fn remount(&self, options: &str) -> Result<(), String> {
        if options.contains("ro") { Ok(()) } else { Err(format!("unknown option '{options}'")) }
    }

    fn freeze(
        &self,
        _limit: Option<Duration>,
        _is_awaited: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        Ok(())
    }

    fn hold(&self, _is_awaited: &dyn Fn() -> bool) -> Result<Box<dyn Hold>, String> {
        Ok(Box::new(Held))
    }

    fn thaw(&self) -> Result<(), String> {
        Err("the volume is not frozen".to_owned())
    }

    fn end(&self) -> Result<(), String> {
        Ok(())
    }
}

struct Held;

impl Hold for Held {
    fn end(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Sends the input to a daemon, and takes each line of it as an answer of one.
pub(super) fn control(bytes: &[u8]) {
    let (mut client, daemon) = UnixStream::pair().expect("a pair of sockets");
    client.write_all(bytes).expect("the input fits the socket");
    client.shutdown(Shutdown::Write).expect("the socket is open");
    serve_client(&daemon, Arc::new(Quiet));
    drop(daemon);
    let mut answers = Vec::new();
    client.read_to_end(&mut answers).expect("the answers are read");
    for line in answers.split_inclusive(|byte| *byte == b'\n') {
        let text = std::str::from_utf8(line).expect("answers are text");
        assert!(text.starts_with("{\"cairn\":1,") && text.ends_with("}\n"), "{text}");
    }
}
