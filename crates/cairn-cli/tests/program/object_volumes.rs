//! Volumes in object stores, by their addresses. A directory is the store; with the feature
//! `remote` also a server that answers what a test says.

use std::fs;
use std::path::{Path, PathBuf};

use cairn::{ImageSpec, OpenOptions};
use cairn_testkit::judge;
use cairn_testkit::place::Place;
use serde_json::Value;

use crate::serve::{Served, nbdcopy};
use crate::support::{cairn, fails, in_dir, works};

/// A directory, and the address of a pool in it.
pub(crate) fn pool() -> (Place, String) {
    let (dir, path) = in_dir("pool");
    (dir, format!("file-store://{path}"))
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&works(arguments)).unwrap()
}

/// The files below a directory that tests compare, with their bytes.
fn files(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.clone(), fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

/// Changes the text of a manifest.
fn change_manifest(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    let line = text.lines().next().unwrap().replace(from, to);
    let sum = !cairn_base::checksum::crc32c(!0, line.as_bytes());
    fs::write(file, format!("{line}\ncrc32c {sum:08x}\n")).unwrap();
}

/// The raw bytes of a volume are what an independent checker calls clean.
#[track_caller]
pub(crate) fn assert_clean(dir: &Path, address: &str) {
    let raw = dir.join("raw").to_str().unwrap().to_owned();
    let served = Served::start(&["--read-only", address]);
    nbdcopy(&served.address, &raw);
    served.end();
    judge::assert_clean(Path::new(&raw));
    fs::remove_file(raw).unwrap();
}

#[test]
fn a_volume_in_a_store_is_used_like_any_other() {
    let (dir, pool) = pool();
    let volume = format!("{pool}@disk");
    let said = fails(&["mkfs", &volume], 2);
    assert!(said.contains("give its size"), "{said}");
    works(&["mkfs", "--size", "64M", &volume]);
    let info = json(&["info", "--json", &volume]);
    assert_eq!(info["device"][0]["kind"], "object volume", "{info}");
    assert!(info["device"][0]["detail"].as_str().unwrap().contains("a flush is one PUT"), "{info}");
    fs::create_dir_all(dir.path().join("tree/below")).unwrap();
    fs::write(dir.path().join("tree/below/file"), vec![7; 300_000]).unwrap();
    let tree = dir.path().join("tree").to_str().unwrap().to_owned();
    works(&["put", &volume, &tree, "/"]);
    assert_eq!(works(&["cat", &volume, "/tree/below/file"]).len(), 300_000);
    works(&["check", &volume]);
    works(&["tune", "-L", "stored", &volume]);
    works(&["mkfs", "-F", "-t", "f2fs", "--size", "64M", &format!("{pool}@flash")]);
    works(&["touch", &format!("{pool}@flash"), "/x"]);
    works(&["check", &format!("{pool}@flash")]);
    assert_clean(dir.path(), &volume);
    // With a directory for what was read, and little memory.
    let cache = dir.path().join("cache");
    let cached = format!("{volume}?cache={}&memory=1M", cache.display());
    assert_eq!(works(&["cat", &cached, "/tree/below/file"]).len(), 300_000);
    assert!(fs::read_dir(&cache).unwrap().count() > 0, "nothing is kept");
    // Sizes are the volume's.
    let said = fails(&["mkfs", "-F", "--size", "32M", &volume], 2);
    assert!(said.contains("67108864 bytes"), "{said}");
    let said = fails(&["mkfs", "--size", "1M", "-b", "65536", &format!("{pool}@new")], 2);
    assert!(!json(&["info", "--json", "--pool", &pool]).to_string().contains("new"), "{said}");
}

#[test]
fn an_image_is_built_into_a_store() {
    let (dir, pool) = pool();
    let disk = format!("{pool}@disk");
    fs::create_dir(dir.path().join("tree")).unwrap();
    fs::write(dir.path().join("tree/file"), "contents").unwrap();
    let tree = format!("{}/", dir.path().join("tree").display());
    works(&["build", "--partition", "gpt", "--size", "32M", &disk, &tree]);
    let part = format!("{disk}#1");
    assert_eq!(works(&["cat", &part, "/file"]), "contents");
    works(&["touch", &part, "/new"]);
    let raw = format!("{disk}?format=raw#1");
    assert!(works(&["ls", &raw]).contains("new"));
    let local = dir.path().join("local.img").to_str().unwrap().to_owned();
    works(&["build", &local, &part]);
    works(&["diff", &local, &part]);
    let archive = dir.path().join("all.tar").to_str().unwrap().to_owned();
    works(&["export", &part, "-o", &archive]);
    works(&["diff", &part, &archive]);
    let said = fails(&["build", &disk, &tree], 1);
    assert!(said.contains("exists: add --force"), "{said}");
    works(&["build", "-F", "-t", "f2fs", &disk, &tree]);
    works(&["check", &disk]);
    let volumes = json(&["info", "--json", "--pool", &pool]);
    assert_eq!(volumes["volumes"].as_array().unwrap().len(), 1, "{volumes}");
    let said = fails(&["build", "--sparse", &format!("{pool}@other"), &tree], 2);
    assert!(said.contains("leave that out"), "{said}");
}

#[test]
fn volumes_of_a_pool_are_copied_listed_and_removed() {
    let (dir, pool) = pool();
    let volume = format!("{pool}@disk");
    works(&["mkfs", "--size", "16M", &volume]);
    works(&["touch", &volume, "/before"]);
    assert_eq!(works(&["snapshot", &volume, "monday"]), format!("{pool}@monday\n"));
    works(&["clone", &format!("{pool}@monday"), "second"]);
    let second = format!("{pool}@second");
    works(&["touch", &second, "/of second"]);
    works(&["rm", &volume, "/before"]);
    assert!(works(&["ls", &second]).contains("before"));
    let said = fails(&["touch", &format!("{pool}@monday"), "/x"], 3);
    assert!(said.contains("is a snapshot") && said.contains("clone it"), "{said}");
    let said = fails(&["clone", &volume, "second"], 1);
    assert!(said.contains("choose another name"), "{said}");
    fails(&["snapshot", &volume, "Not a name"], 3);
    fails(&["snapshot", &format!("{pool}@absent"), "x"], 3);
    let said = fails(&["snapshot", "disk.img", "x"], 2);
    assert!(said.contains("s3://BUCKET/PREFIX@NAME"), "{said}");

    let listed = json(&["info", "--json", "--pool", &pool]);
    let of = |name: &str| {
        let mut volumes = listed["volumes"].as_array().unwrap().iter();
        volumes.find(|one| one["name"] == name).unwrap().clone()
    };
    assert_eq!((&of("monday")["snapshot"], &of("disk")["snapshot"]), (&true.into(), &false.into()));
    assert_eq!((&of("disk")["size"], &of("disk")["writer"]), (&(16 << 20).into(), &Value::Null));
    assert_eq!(of("second")["address"], second);
    assert_eq!(works(&["info", "--pool", &pool]).lines().count(), 4);

    let removed = json(&["gc", "--json", "--verify", "--remove", "disk", &pool]);
    assert!(removed["objects"].as_u64() > Some(0), "{removed}");
    assert!(removed["verified"].as_u64() > Some(0), "{removed}");
    fails(&["ls", &volume], 3);
    for name in ["monday", "second"] {
        let address = format!("{pool}@{name}");
        assert!(works(&["ls", &address]).contains("before"), "{name}");
        works(&["check", &address]);
    }
    works(&["gc", "--remove", "monday", "--remove", "second", &pool]);
    let logs = dir.path().join("pool/log");
    assert!(
        !logs.exists() || files(&logs).is_empty(),
        "objects are left: {:?}",
        files(&logs).len()
    );
}

#[test]
fn a_volume_has_one_writer() {
    let (dir, pool) = pool();
    works(&["mkfs", "--size", "16M", &pool]);
    let open = |name: &str| {
        cairn::open(&ImageSpec::parse(name.as_ref()).unwrap(), &OpenOptions::default())
    };
    let held = open(&pool).unwrap();
    for arguments in [
        &["touch", &pool, "/second"][..],
        &["ls", &pool],
        &["mkfs", "-F", &pool],
        &["gc", "--remove", "main", &pool],
    ] {
        let said = fails(arguments, 6);
        assert!(said.contains("process") && said.contains("unmount it there"), "{said}");
    }
    assert_eq!(
        json(&["info", "--json", "--pool", &pool])["volumes"][0]["writer"]["process"],
        std::process::id()
    );
    // What it has flushed can be read from a snapshot.
    works(&["snapshot", &pool, "now"]);
    works(&["ls", &format!("{pool}@now")]);
    // It runs here, and can be ended.
    let over = format!("{pool}?take-over");
    for arguments in [&["touch", &over, "/second"][..], &["ls", &over]] {
        let said = fails(arguments, 6);
        let process = format!("process {} of this machine", std::process::id());
        assert!(said.contains(&process), "{said}");
    }
    // It seems to be of another machine.
    let manifest = dir.path().join("pool/volumes/main");
    change_manifest(&manifest, "\"process\":\"", "\"process\":\"elsewhere-");
    works(&["touch", &over, "/second"]);
    let root = held.filesystem().root();
    let error = held.filesystem().sync().and_then(|()| {
        let caller = cairn_vfs::Caller::ROOT;
        let new = cairn_vfs::NewInode::Regular;
        held.filesystem().create(root, b"lost", new, 0o644, &caller)?;
        held.filesystem().sync()
    });
    let said = error.unwrap_err().to_string();
    assert!(said.contains("another writer has taken over"), "{said}");
    drop(held);
    assert!(works(&["ls", &pool]).contains("second"));
    works(&["check", &pool]);
}

#[test]
fn what_cannot_be_opened_is_one_line_and_changes_nothing() {
    let (dir, pool) = pool();
    works(&["mkfs", "--size", "16M", &pool]);
    let root = dir.path().join("pool");
    let manifest = root.join("volumes/main");
    let text = fs::read_to_string(&manifest).unwrap();
    let refused = |said: &str| {
        let before = files(&root);
        for arguments in [&["ls", &pool][..], &["touch", &pool, "/x"], &["mkfs", "-F", &pool]] {
            let line = fails(arguments, 3);
            assert!(line.contains(said), "{arguments:?}: {line}");
        }
        assert!(files(&root) == before, "something was written");
    };
    change_manifest(&manifest, "\"cairn_object_volume\":1", "\"cairn_object_volume\":9");
    refused("use a newer Cairn");
    fs::write(&manifest, text.replace("\"size\"", "\"Size\"")).unwrap();
    refused("volumes/main");
    fs::write(&manifest, &text).unwrap();
    // An object that the map needs is gone.
    let maps = root.join("map");
    let hidden = dir.path().join("hidden");
    fs::rename(&maps, &hidden).unwrap();
    let before = files(&root);
    let line = fails(&["ls", &pool], 3);
    assert!(line.contains("map/"), "{line}");
    assert!(files(&root) == before);
    fs::rename(&hidden, &maps).unwrap();
    let logs = root.join("log");
    fs::rename(&logs, &hidden).unwrap();
    let (status, _, said) = cairn(&["ls", &pool]);
    assert!(matches!(status, 3 | 7) && said.lines().count() == 1, "{status}: {said}");
    assert!(said.contains("log/"), "{said}");
    // A line for each object.
    let (status, _, said) = cairn(&["gc", "--verify", &pool]);
    assert!(status == 4 && said.lines().all(|line| line.contains("log/")), "{status}: {said}");
    fs::rename(&hidden, &logs).unwrap();
    works(&["ls", &pool]);

    for (name, status, said) in [
        ("file-store://relative/dir", 2, "from / on"),
        ("s3://", 2, "names no bucket"),
        ("file-store:///x@UP", 2, "no name of a volume"),
        ("file-store:///nowhere/at/all", 3, "there is no volume main"),
        ("file-store:///x?cache-size=1G", 2, "cache=DIR"),
        ("file-store:///x?unknown=1", 2, "only cache=DIR"),
        ("file-store:///x?log=/a&log=/b", 2, "contradict each other: give one"),
        ("file-store:///x#1?memory=1M", 2, "the part comes last, as in 'IMAGE?memory=1M#1'"),
    ] {
        let line = fails(&["ls", name], status);
        assert!(line.contains(said), "{name}: {line}");
    }
}

/// What the store has lost is named, and is no reason to lose more.
#[test]
fn a_lost_object_refuses_its_volume_and_gc_removes_nothing() {
    let (dir, pool) = pool();
    let root = dir.path().join("pool");
    works(&["mkfs", "--size", "16M", &pool]);
    works(&["clone", &pool, "bad"]);
    works(&["touch", &format!("{pool}@bad"), "/x"]);
    // The last words of killed processes.
    fs::write(root.join("log/.new-1-0"), "half").unwrap();
    let removed = json(&["gc", "--json", &pool]);
    assert_eq!(removed["unfinished"], 1, "{removed}");
    assert!(!root.join("log/.new-1-0").exists());

    let manifest = root.join("volumes/bad");
    let text = fs::read_to_string(&manifest).unwrap();
    for garbage in ["garbage".to_owned(), text.replace(":1,", ":9,")] {
        fs::write(&manifest, garbage).unwrap();
        let before = files(&root);
        let (status, listed, said) = cairn(&["info", "--pool", &pool]);
        assert!(status == 4 && said.contains("volumes/bad"), "{status}: {said}");
        assert!(listed.contains("main") && listed.contains("unreadable"), "{listed}");
        let (status, listed, _) = cairn(&["info", "--json", "--pool", &pool]);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        assert_eq!((status, &listed["unreadable"][0]["name"]), (4, &"bad".into()), "{listed}");
        let said = fails(&["gc", &pool], 3);
        assert!(said.contains("nothing is removed") && said.contains("--remove bad"), "{said}");
        let (status, _, said) = cairn(&["gc", "--verify", &pool]);
        assert!(status == 4 && said.contains("gc --force --remove bad"), "{status}: {said}");
        works(&["ls", &pool]);
        assert!(files(&root) == before);
    }
    works(&["gc", "--force", "--remove", "bad", &pool]);
    // A map that is gone.
    let maps = files(&root.join("map"));
    for (path, _) in &maps {
        fs::remove_file(path).unwrap();
    }
    for arguments in [&["snapshot", &pool, "new"][..], &["gc", &pool], &["gc", "--verify", &pool]] {
        let (status, _, said) = cairn(arguments);
        assert!(status == 3 && said.contains("map/"), "{arguments:?}: {status}: {said}");
        assert!(!said.contains("try again"), "{said}");
    }
    assert!(!root.join("volumes/new").exists());
    for (path, bytes) in &maps {
        fs::write(path, bytes).unwrap();
    }
    works(&["snapshot", &pool, "new"]);
    works(&["ls", &format!("{pool}@new")]);
}

#[test]
fn a_volume_in_a_store_changes_its_size() {
    let (dir, pool) = pool();
    works(&["mkfs", "--size", "16M", &pool]);
    fs::write(dir.path().join("file"), vec![7; 3_000_000]).unwrap();
    let file = dir.path().join("file").to_str().unwrap().to_owned();
    works(&["put", &pool, &file, "/"]);
    let size = || json(&["info", "--json", "--pool", &pool])["volumes"][0]["size"].clone();
    for (wish, bytes) in [("64M", 64 << 20), ("min", 0), ("+8M", 0), ("max", 0), ("16M", 16 << 20)]
    {
        works(&["resize", &pool, wish]);
        let now = size().as_u64().unwrap();
        assert!(bytes == 0 || now == bytes, "{wish}: {now}");
        assert_eq!(works(&["cat", &pool, "/file"]).len(), 3_000_000, "{wish}");
        assert_clean(dir.path(), &pool);
    }
    works(&["mkfs", "-t", "f2fs", "--size", "64M", &format!("{pool}@flash")]);
    works(&["resize", &format!("{pool}@flash"), "128M"]);
    works(&["touch", &format!("{pool}@flash"), "/x"]);
    works(&["check", &format!("{pool}@flash")]);
}

#[cfg(not(feature = "remote"))]
#[test]
fn a_program_without_stores_in_the_network_says_how_to_build_one() {
    let said = fails(&["ls", "s3://bucket/prefix@name"], 3);
    assert!(said.contains("--features remote"), "{said}");
}

#[cfg(feature = "remote")]
mod remote {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::process::Command;

    /// A server that answers each request as `answer` says: status line and headers.
    fn serve(answer: fn(&str) -> &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut first, mut length) = (String::new(), 0);
                let _ = reader.read_line(&mut first);
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) <= 2 {
                        break;
                    }
                    let lower = line.to_lowercase();
                    if let Some(number) = lower.strip_prefix("content-length:") {
                        length = number.trim().parse().unwrap();
                    }
                }
                let _ = reader.read_exact(&mut vec![0; length]);
                let head = answer(first.split(' ').next().unwrap_or_default());
                let _ = write!(
                    stream,
                    "HTTP/1.1 {head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
            }
        });
        format!("http://{address}")
    }

    #[track_caller]
    fn fails(endpoint: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
        command.args(arguments).env("AWS_ENDPOINT_URL", endpoint).env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    }

    #[test]
    fn wrong_credentials_are_named() {
        let endpoint = serve(|_| "403 Forbidden");
        for arguments in [&["ls", "s3://bucket/p"][..], &["mkfs", "--size", "16M", "s3://bucket/p"]]
        {
            let said = fails(&endpoint, arguments);
            assert!(said.contains("AWS_ACCESS_KEY_ID"), "{said}");
        }
    }

    #[test]
    fn a_store_that_ignores_conditions_is_refused() {
        let endpoint = serve(|method| match method {
            "GET" | "HEAD" => "404 Not Found",
            "DELETE" => "204 No Content",
            _ => "200 OK\r\nETag: \"1\"",
        });
        let said = fails(&endpoint, &["mkfs", "--size", "16M", "s3://bucket/p"]);
        assert!(said.contains("two writers could damage a volume"), "{said}");
    }
}
