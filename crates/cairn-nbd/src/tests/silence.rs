//! A server that accepts requests and does not answer: who waits learns for what.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cairn_block::BlockDeviceExt;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::address;
use super::hostile_server::{negotiate, play};
use crate::wire::Headers;
use crate::wire::reply::To;
use crate::wire::request::{Kind, Request};
use crate::{Client, ConnectOptions, WAITING};

/// The messages about silent servers.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Told {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == WAITING
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn the_log_tells_once_of_a_silent_server() {
    let told = Told::default();
    tracing::subscriber::set_global_default(told.clone()).unwrap();
    let was_silent = AtomicBool::new(false);
    let (_dir, socket) = play(move |stream| {
        if negotiate(stream, Headers::Structured).is_none() {
            return;
        }
        let mut bytes = vec![0; Request::size(Headers::Structured)];
        while stream.read_exact(&mut bytes).is_ok() {
            let request = Request::decode(&bytes, Headers::Structured).unwrap();
            if request.kind == Kind::Disconnect {
                return;
            }
            // The first connection is silent, the next one is not.
            if was_silent.swap(true, Ordering::Relaxed) {
                let to = To { headers: Headers::Structured, cookie: request.cookie, offset: 8192 };
                let _ = stream.write_all(&[to.data(4096), vec![5; 4096]].concat());
            }
        }
    });
    let request_timeout = Duration::from_millis(800);
    let options = ConnectOptions { request_timeout, ..ConnectOptions::default() };
    let client = Client::connect(&address(&socket), &options).unwrap();
    assert!(client.read_at(8192, 4096).unwrap().iter().all(|byte| *byte == 5));
    let told = told.0.lock().unwrap();
    let socket = socket.to_str().unwrap();
    let said: Vec<_> = told.iter().filter(|line| line.contains(socket)).collect();
    assert_eq!(said.len(), 1, "{told:?}");
    assert!(said[0].contains("does not answer: after 0.8 s the request is sent again"), "{told:?}");
}
