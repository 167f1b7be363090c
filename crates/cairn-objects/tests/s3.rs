//! An S3 server of somebody else: moto, a program in Python. It must be installed
//! (`pip install 'moto[server]'`).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cairn_block::{BlockDevice, BlockDeviceExt, ErrorKind};
use cairn_objects::address::Address;
use cairn_objects::pool::{Copy, Pool};
use cairn_objects::store::connect::connect;
use cairn_objects::store::{Condition, ErrorKind as StoreError, Moment, Store, Trouble};
use cairn_objects::volume::{CreateOptions, ObjectVolume, Options, create_in};
use cairn_objects::{create, open};

/// A server, which ends with the test.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start() -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("moto_server");
        command.args(["-H", "127.0.0.1", "-p", &address.port().to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("moto_server: pip install 'moto[server]'");
        let mut server = Self { process, address };
        while TcpStream::connect(address).is_err() {
            assert!(server.process.try_wait().unwrap().is_none(), "moto_server has ended");
            std::thread::yield_now();
        }
        server
    }

    fn make_bucket(&self, name: &str) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let host = format!("Host: {}\r\nConnection: close\r\nContent-Length: 0", self.address);
        write!(stream, "PUT /{name} HTTP/1.1\r\n{host}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// Runs a test of this program again, with the environment that the AWS tools read.
fn run(test: &str, endpoint: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    command.env("AWS_ENDPOINT_URL", endpoint).env("AWS_REGION", "us-east-1");
    command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
    let status = command.status().unwrap();
    assert!(status.success(), "{test}");
}

fn options() -> Options {
    Options { patience: Duration::from_secs(20), reclaim: false, ..Options::default() }
}

fn small() -> CreateOptions {
    CreateOptions { object_size: 256 << 10, ..CreateOptions::default() }
}

#[test]
fn a_volume_in_a_bucket() {
    let server = Server::start();
    server.make_bucket("bucket");
    run("in_a_bucket", &format!("http://{}", server.address));
}

#[test]
#[ignore = "a_volume_in_a_bucket runs it"]
fn in_a_bucket() {
    let address: Address = "s3://bucket/some/pool@disk".parse().unwrap();
    let store = connect(&address.place).unwrap();
    behaves(&*store);
    create(&address, 16 << 20, &small(), &options()).unwrap();
    let device = open(&address, &options()).unwrap();
    let block = |n: u8| vec![n; 4096];
    for n in 1..=40 {
        device.write_at(u64::from(n) * 4096, block(n)).unwrap();
        device.flush().unwrap();
    }
    device.write_at(8 << 20, vec![77; 4 << 20]).unwrap();
    device.flush().unwrap();
    let busy = open(&address, &options()).err().unwrap();
    assert_eq!(busy.kind, ErrorKind::InUse, "{busy}");
    let pool = Pool::new(store.clone(), options().runtime, options().patience);
    pool.copy("disk", "copy", Copy::Clone).unwrap();
    let check = |device: &dyn BlockDevice| {
        for n in 1..=40 {
            assert!(*device.read_at(u64::from(n) * 4096, 4096).unwrap() == *block(n), "{n}");
        }
        let large = device.read_at(8 << 20, 4 << 20).unwrap();
        assert!(large.iter().all(|byte| *byte == 77));
    };
    check(&*device);

    // Taken over: the first writer is told.
    let over = Options { take_over: cairn_objects::volume::TakeOver::Always, ..options() };
    let second = ObjectVolume::open_in(store.clone(), "disk", &over).unwrap();
    check(&second);
    device.write_at(0, block(9)).unwrap();
    assert_eq!(device.flush().unwrap_err().kind, ErrorKind::InUse);
    drop(device);
    second.write_at(0, block(8)).unwrap();
    second.close().unwrap();
    pool.gc().unwrap();
    let third = ObjectVolume::open_in(store.clone(), "disk", &options()).unwrap();
    check(&third);
    assert_eq!(third.read_at(0, 512).unwrap()[0], 8);
    third.close().unwrap();
    check(&ObjectVolume::open_in(store.clone(), "copy", &options()).unwrap());
    let (_, damaged) = pool.verify("disk").unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
    lost_answers(&store);
}

/// As `store::tests` asks of the other stores.
fn behaves(store: &dyn Store) {
    let kind = |answer: Result<_, cairn_objects::store::Error>| answer.map(drop).unwrap_err().kind;
    let put = |name: &str, text: &str, condition: Condition<'_>| {
        let (head, tail) = text.split_at(1);
        store.put(name, &[head.to_owned().into(), tail.to_owned().into()], condition)
    };
    assert_eq!(kind(store.get("t/a").map(drop)), StoreError::Missing);
    let first = put("t/a", "first", Condition::IfAbsent).unwrap();
    assert_eq!(kind(put("t/a", "other", Condition::IfAbsent).map(drop)), StoreError::Conflict);
    assert_eq!(store.get("t/a").unwrap().tag, first);
    assert_eq!(&store.get_range("t/a", 3..300).unwrap()[..], b"st");
    let second = put("t/a", "second", Condition::IfMatch(&first)).unwrap();
    assert_eq!(kind(put("t/a", "x", Condition::IfMatch(&first)).map(drop)), StoreError::Conflict);
    assert_eq!(store.get("t/a").unwrap().tag, second);
    for name in ["t/d-3", "t/d-1", "t/d-2", "t/e/f"] {
        put(name, "12", Condition::IfAbsent).unwrap();
    }
    let names = |prefix: &str, after: Option<&str>| -> Vec<String> {
        store.list(prefix, after).unwrap().into_iter().map(|listed| listed.name).collect()
    };
    assert_eq!(names("t/", None), ["t/a", "t/d-1", "t/d-2", "t/d-3", "t/e/f"]);
    assert_eq!(names("t/d-", Some("t/d-1")), ["t/d-2", "t/d-3"]);
    assert_eq!(names("t/d-", None), ["t/d-1", "t/d-2", "t/d-3"]);
    for name in names("", None) {
        store.delete(&name).unwrap();
        store.delete(&name).unwrap();
    }
    assert_eq!(names("", None), Vec::<String>::new());
}

/// Every third request is answered with an error, or its answer is lost.
fn lost_answers(store: &Arc<dyn Store>) {
    create_in(store.clone(), "shaky", 4 << 20, &small(), &options()).unwrap();
    let trouble = Arc::new(Trouble::new(store.clone()));
    trouble.set(|number, moment, _, _| match number % 6 {
        1 => moment == Moment::After,
        4 => moment == Moment::Before,
        _ => false,
    });
    let device = ObjectVolume::open_in(trouble, "shaky", &options()).unwrap();
    for n in 1..=20_u8 {
        device.write_at(u64::from(n) * 512, vec![n; 512]).unwrap();
        device.flush().unwrap();
    }
    device.close().unwrap();
    let device = ObjectVolume::open_in(store.clone(), "shaky", &options()).unwrap();
    for n in 1..=20_u8 {
        assert_eq!(*device.read_at(u64::from(n) * 512, 512).unwrap(), [n; 512]);
    }
}

#[test]
fn what_cannot_be_reached_is_one_line() {
    let server = Server::start();
    run("not_there", &format!("http://{}", server.address));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    run("not_reached", &format!("http://{closed}"));
}

#[test]
#[ignore = "what_cannot_be_reached_is_one_line runs it"]
fn not_there() {
    let address: Address = "s3://absent/pool".parse().unwrap();
    for error in [
        open(&address, &options()).err().unwrap(),
        create(&address, 1 << 20, &small(), &options()).unwrap_err(),
    ] {
        let said = error.to_string();
        assert_eq!(error.kind, ErrorKind::NotFound, "{said}");
        assert!(said.contains("s3://absent/pool") && !said.contains('\n'), "{said}");
    }
}

#[test]
#[ignore = "what_cannot_be_reached_is_one_line runs it"]
fn not_reached() {
    let address: Address = "s3://bucket/pool".parse().unwrap();
    let impatient = Options { patience: Duration::ZERO, ..options() };
    let error = open(&address, &impatient).err().unwrap();
    let said = error.to_string();
    assert_eq!(error.kind, ErrorKind::Io, "{said}");
    assert!(said.contains("look whether the store can be reached"), "{said}");
    assert!(!said.contains('\n'), "{said}");
}
