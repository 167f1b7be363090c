//! Object volumes with a local log, by their addresses.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

use crate::object_volumes::{assert_clean, pool};
use crate::serve::{Served, nbdcopy};
use crate::support::{cairn, fails, works};

/// A server that writes with a local log is killed.
#[test]
fn a_local_log_is_asked_for_after_a_kill() {
    let (dir, pool) = pool();
    let log = dir.path().join("log").to_str().unwrap().to_owned();
    let logged = format!("{pool}?log={log}");
    works(&["mkfs", "--size", "16M", &logged]);
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
    let raw = dir.path().join("raw").to_str().unwrap().to_owned();
    works(&["mkfs", "--size", "16M", &raw]);
    works(&["touch", &raw, "/by-nbd"]);
    let served = Served::start(&[&logged]);
    nbdcopy(&raw, &served.address);
    // It is killed.
    drop(served);
    for arguments in [&["ls", &pool][..], &["touch", &pool, "/x"]] {
        let said = fails(arguments, 6);
        assert!(said.contains(&format!("open the volume with ?log={log}")), "{said}");
    }
    // What is dropped is told, and a command that reads drops nothing.
    let (status, _, said) = cairn(&["ls", &format!("{pool}?take-over")]);
    assert!(matches!(status, 0 | 4) && said.contains("are left out"), "{status}: {said}");
    assert!(works(&["ls", &logged]).contains("by-nbd"));
    works(&["touch", &logged, "/second"]);
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
    assert!(works(&["ls", &pool]).contains("second"));
    fs::remove_file(&raw).unwrap();
    assert_clean(dir.path(), &pool);
    fs::write(&log, "not a log").unwrap();
    let said = fails(&["ls", &logged], 3);
    assert!(said.contains("is no log of an object volume"), "{said}");
}

/// In a directory as /tmp, whoever has made the file first could read what is flushed.
#[test]
fn a_log_of_another_user_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let pool = format!("file-store://{}@v", at("pool"));
    works(&["mkfs", "-t", "ext4", "--size", "16M", &pool]);
    fs::create_dir(at("open")).unwrap();
    fs::set_permissions(at("open"), Permissions::from_mode(0o1777)).unwrap();
    fs::write(at("open/file"), "").unwrap();
    chown(at("open/file"), Some(2000), Some(2000)).unwrap();
    symlink(at("victim"), at("open/link")).unwrap();
    lchown(at("open/link"), Some(2000), Some(2000)).unwrap();
    for (name, why) in
        [("file", "belongs to another user"), ("link", "a symbolic link of another user")]
    {
        let logged = format!("{pool}?log={}", at(&format!("open/{name}")));
        let said = fails(&["touch", &logged, "/x"], 3);
        assert!(said.contains(why), "{said}");
        assert!(!dir.path().join("victim").exists());
    }
    assert_eq!(fs::read(at("open/file")).unwrap(), b"");
    works(&["touch", &format!("{pool}?log={}", at("open/own")), "/x"]);
}
