//! A server and clients over a socket of their own, without a mount.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use cairn_base::stats::{Report, Value};

use super::{Client, Control, ControlError, Hold, Server, place, server};

/// How many freezes clients hold.
static HELD: AtomicUsize = AtomicUsize::new(0);

struct FakeHold;

impl Hold for FakeHold {
    fn end(&mut self) -> Result<(), String> {
        Err("it was thawed before".to_owned())
    }
}

impl Drop for FakeHold {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Fake;

impl Control for Fake {
    fn stats(&self) -> Report {
        let mut report = Report::new();
        report.section("zebra").set("first", 1_u64).set("second", 0.5);
        report.section("ant").set("messages", vec!["a".to_owned()]).set("on", true);
        report
    }

    fn remount(&self, options: &str) -> Result<(), String> {
        if options == "good" { Ok(()) } else { Err(format!("unknown option `{options}`")) }
    }

    fn freeze(&self, limit: Option<Duration>, is_awaited: &dyn Fn() -> bool) -> Result<(), String> {
        assert!(is_awaited(), "the client waits for the answer");
        if limit == Some(Duration::ZERO) { Err("no time at all".to_owned()) } else { Ok(()) }
    }

    fn hold(&self, is_awaited: &dyn Fn() -> bool) -> Result<Box<dyn Hold>, String> {
        assert!(is_awaited(), "the client waits for the answer");
        HELD.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(FakeHold))
    }

    fn end(&self) -> Result<(), String> {
        Ok(())
    }

    fn thaw(&self) -> Result<(), String> {
        Err("the volume is not frozen".to_owned())
    }
}

struct Rig {
    directory: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        Self { directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("0-1.sock")
    }

    fn listen(&self) -> Server {
        Server::listen(self.path(), Arc::new(Fake)).unwrap()
    }

    fn connect(&self) -> Result<Client, ControlError> {
        Client::connect_to(&self.path(), uid())
    }

    fn raw(&self, line: &str) -> String {
        let mut stream = UnixStream::connect(self.path()).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    }
}

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn reports_arrive_whole_and_in_order() {
    let rig = Rig::new();
    let _server = rig.listen();
    let report = rig.connect().unwrap().stats().unwrap();
    assert_eq!(report, Fake.stats());
    assert_eq!(report.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["zebra", "ant"]);
    assert_eq!(report.get("ant.messages"), Some(&Value::List(vec!["a".to_owned()])));
}

#[test]
fn refusals_are_told_in_the_daemons_words() {
    let rig = Rig::new();
    let _server = rig.listen();
    rig.connect().unwrap().remount("good").unwrap();
    rig.connect().unwrap().freeze(None).unwrap();
    rig.connect().unwrap().freeze(Some(5)).unwrap();
    let refused = rig.connect().unwrap().freeze(Some(0)).unwrap_err();
    assert_eq!(refused.to_string(), "no time at all");
    assert!(rig.connect().unwrap().thaw().unwrap_err().to_string().contains("not frozen"));
    let refused = rig.connect().unwrap().remount("bad").unwrap_err();
    assert_eq!(refused.to_string(), "unknown option `bad`");
}

/// A freeze that a client holds ends when the client goes, however that is.
#[test]
fn held_freezes_end_with_their_client() {
    let rig = Rig::new();
    let _server = rig.listen();
    let held = rig.connect().unwrap().hold().unwrap();
    assert_eq!(HELD.load(Ordering::SeqCst), 1);
    drop(held);
    while HELD.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
    let again = rig.connect().unwrap().hold().unwrap();
    let told = again.release().unwrap_err();
    assert_eq!(told.to_string(), "it was thawed before");
    while HELD.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn other_versions_and_nonsense_get_an_answer() {
    let rig = Rig::new();
    let _server = rig.listen();
    for (line, answer) in [
        ("{\"cairn\":2,\"request\":\"stats\"}\n", "uses version 1 of the protocol, not 2"),
        ("{\"request\":\"stats\"}\n", "gives no version"),
        ("{\"cairn\":1,\"request\":\"dance\"}\n", "dance"),
        ("hello\n", "not a request"),
        ("{\"cairn\":1,\"request\":\"remount\"}\n", "options"),
    ] {
        let got = rig.raw(line);
        assert!(
            got.starts_with("{\"cairn\":1,\"error\":") && got.contains(answer),
            "{line}: {got}"
        );
    }
    assert!(
        rig.raw("{\"cairn\":1,\"request\":\"stats\"}\n")
            .starts_with("{\"cairn\":1,\"ok\":{\"zebra\"")
    );
    // Longer than any request: nothing is answered, and nothing breaks.
    let long =
        format!("{{\"cairn\":1,\"request\":\"remount\",\"options\":\"{}\"}}\n", "x".repeat(70_000));
    let mut stream = UnixStream::connect(rig.path()).unwrap();
    let _ = stream.write_all(long.as_bytes());
    drop(stream);
    rig.connect().unwrap().stats().unwrap();
}

#[test]
fn silent_clients_hold_up_neither_others_nor_the_end() {
    let rig = Rig::new();
    let server = rig.listen();
    let silent: Vec<UnixStream> =
        (0..15).map(|_| UnixStream::connect(rig.path()).unwrap()).collect();
    rig.connect().unwrap().stats().unwrap();
    drop(server.close());
    drop(silent);
    assert!(!rig.path().exists());
}

#[test]
fn too_many_clients_are_sent_away() {
    let rig = Rig::new();
    let _server = rig.listen();
    let silent: Vec<UnixStream> =
        (0..16).map(|_| UnixStream::connect(rig.path()).unwrap()).collect();
    // Accepted in order: the 17th finds 16 being served.
    let refused = rig.connect().unwrap().stats().unwrap_err().to_string();
    assert!(refused.contains("try again later"), "{refused}");
    drop(silent);
}

#[test]
fn a_client_waits_for_a_place_that_becomes_free() {
    let rig = Rig::new();
    let _server = rig.listen();
    let silent: Vec<UnixStream> =
        (0..16).map(|_| UnixStream::connect(rig.path()).unwrap()).collect();
    let leaving = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        drop(silent);
    });
    rig.connect().unwrap().stats().unwrap();
    leaving.join().unwrap();
}

#[test]
fn waiting_clients_are_told_of_the_end() {
    let rig = Rig::new();
    let server = rig.listen();
    let ending = rig.connect().unwrap().wait_for_end().unwrap();
    let waiter = thread::spawn(move || ending.wait());
    server.close().tell(&Report::new().with("error", "the last write failed"));
    let last = waiter.join().unwrap().unwrap();
    assert_eq!(last.text("error"), Some("the last write failed"));
    // The daemon ends without a report.
    let server = rig.listen();
    let ending = rig.connect().unwrap().wait_for_end().unwrap();
    drop(server.close());
    assert_eq!(ending.wait(), None);
}

#[test]
fn a_stale_socket_is_reported_and_replaced() {
    let rig = Rig::new();
    drop(UnixListener::bind(rig.path()).unwrap());
    let gone = rig.connect().unwrap_err();
    assert!(
        matches!(gone, ControlError::Gone(_)) && gone.to_string().contains("detach the mount"),
        "{gone}"
    );
    let server = rig.listen();
    rig.connect().unwrap().stats().unwrap();
    drop(server);
    assert!(matches!(rig.connect(), Err(ControlError::Io { .. })));
}

/// The kernel reuses the number of a mount at once; the earlier daemon may still close its volume.
#[test]
fn the_latest_mount_with_a_number_has_its_socket() {
    let rig = Rig::new();
    let earlier = rig.listen();
    let waiting = rig.connect().unwrap().wait_for_end().unwrap();
    let later = rig.listen();
    let ending = rig.connect().unwrap().wait_for_end().unwrap();
    earlier.close().tell(&Report::new().with("error", "of the earlier"));
    assert_eq!(waiting.wait().unwrap().text("error"), Some("of the earlier"));
    // The end of the earlier daemon takes nothing from the later.
    rig.connect().unwrap().stats().unwrap();
    later.close().tell(&Report::new().with("error", "of the later"));
    assert_eq!(ending.wait().unwrap().text("error"), Some("of the later"));
    assert!(!rig.path().exists());
}

#[test]
fn a_daemon_that_is_about_to_listen_is_waited_for() {
    let rig = Rig::new();
    let places = [rig.directory.path().join("not here"), rig.path()];
    // First there is no socket, then that of a killed daemon, then the one that is looked for.
    let mut stages = 0;
    let mut server = None;
    let client = Client::connect_to_one(&places, uid(), || {
        stages += 1;
        match stages {
            1 => drop(UnixListener::bind(rig.path()).unwrap()),
            _ => server = Some(rig.listen()),
        }
        true
    });
    client.unwrap().stats().unwrap();
    assert_eq!(stages, 2);
    drop(server);
    let missing = Client::connect_to_one(&places, uid(), || false).unwrap_err();
    assert!(matches!(missing, ControlError::NoSocket(_)), "{missing}");
}

#[test]
fn only_root_and_the_owner_may_ask() {
    assert!(server::allowed(0, 1000) && server::allowed(1000, 1000));
    assert!(!server::allowed(1001, 1000) && !server::allowed(1000, 0));
}

#[test]
fn directories_that_others_could_change_are_not_trusted() {
    let rig = Rig::new();
    let open = rig.directory.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    let error = place::check(&open, uid()).unwrap_err();
    assert!(error.to_string().contains("others may enter"), "{error}");
    assert!(
        place::check(rig.directory.path(), uid() + 1)
            .unwrap_err()
            .to_string()
            .contains("belongs to user")
    );
    let link = rig.directory.path().join("link");
    std::os::unix::fs::symlink(rig.directory.path(), &link).unwrap();
    assert!(place::check(&link, uid()).unwrap_err().to_string().contains("not a directory"));
    // The first usable one is taken.
    let fine = rig.directory.path().join("fine");
    let made = place::make(&["/nonexistent/x".into(), open, fine.clone()], uid()).unwrap();
    assert_eq!(made, fine);
    place::check(&fine, uid()).unwrap();
}

#[test]
fn users_have_their_own_places() {
    let of = |uid, runtime: Option<&str>| place::directories(uid, uid, runtime.map(PathBuf::from));
    assert_eq!(of(0, Some("/run/user/7")), [PathBuf::from("/run/cairn"), "/tmp/cairn-0".into()]);
    assert_eq!(of(7, Some("/x"))[0], PathBuf::from("/x/cairn"));
    assert_eq!(of(7, Some("relative")), of(7, None));
    assert_eq!(of(7, Some("/run/user/7")), of(7, None));
    assert_eq!(place::name("0:52"), "0-52.sock");
}

#[test]
fn the_root_of_a_user_namespace_has_the_places_of_the_user_it_is_outside() {
    let places = place::directories(0, 1000, Some("/x".into()));
    assert_eq!(
        places,
        ["/run/cairn", "/x/cairn", "/run/user/1000/cairn", "/tmp/cairn-1000"].map(PathBuf::from)
    );
    let map = "         0       1000          1\n         1     100000      65536\n";
    assert_eq!(
        [0, 1, 65_536, 65_537].map(|uid| place::mapped(map, uid)),
        [1000, 100_000, 165_535, 65_537]
    );
    let initial = "         0          0 4294967295";
    assert_eq!([0, 1000].map(|uid| place::mapped(initial, uid)), [0, 1000]);
}

#[test]
fn a_directory_of_another_user_is_not_used() {
    let (foreign, rig) = (Rig::new(), Rig::new());
    fs::set_permissions(foreign.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let places = [foreign.path(), rig.path()];
    // The mount is there a moment before its daemon listens: also then the foreign place ends
    // nothing.
    let mut server = None;
    let client = Client::connect_to_one(&places, uid(), || {
        server = Some(rig.listen());
        true
    });
    client.unwrap().stats().unwrap();
    // Nor does a socket that a killed daemon left in a better place.
    fs::set_permissions(foreign.directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    drop(UnixListener::bind(foreign.path()).unwrap());
    Client::connect_to_one(&places, uid(), || false).unwrap().stats().unwrap();
    drop(server);
    fs::set_permissions(foreign.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let missing = Client::connect_to_one(&places, uid(), || false).unwrap_err().to_string();
    assert!(missing.contains("not in: others may enter it"), "{missing}");
}

#[test]
fn sockets_of_killed_daemons_are_cleared_away_and_those_of_live_ones_are_not() {
    let rig = Rig::new();
    let stale = rig.directory.path().join("0-7.sock");
    drop(UnixListener::bind(&stale).unwrap());
    let other = rig.directory.path().join("other");
    fs::write(&other, "").unwrap();
    let server = rig.listen();
    place::sweep(rig.directory.path());
    assert!(!stale.exists() && rig.path().exists() && other.exists());
    rig.connect().unwrap().stats().unwrap();
    drop(server);
}
