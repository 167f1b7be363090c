//! Object volumes with a local log, by their addresses.

use std::fs;

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
