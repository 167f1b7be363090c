//! A mount of what an NBD server exports: the address stands for the image everywhere.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use cairn_testkit::judge;

use crate::fixture::{CAIRN, Volume, is_mounted};

/// A server, ended with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn cairn(arguments: &[&str]) -> String {
    let output = Command::new(CAIRN).args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_export_is_mounted_changed_and_unmounted_by_its_address() {
    let volume = Volume::make(64 << 20, &[]);
    let mut server = Command::new(CAIRN)
        .args(["serve", "nbd"])
        .arg(volume.image())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let _server = Served(server);
    let address = address.trim_end();
    let root = volume.root();
    let point = root.to_str().unwrap();
    cairn(&["mount", address, point]);
    fs::write(volume.path("file"), vec![7; 1_000_000]).unwrap();
    fs::File::open(volume.path("file")).unwrap().sync_all().unwrap();
    assert!(cairn(&["stats", "--json", address]).contains("journal"));
    cairn(&["remount", "-o", "commit=9", address]);
    let second = Command::new(CAIRN).args(["rm", address, "file"]).output().unwrap();
    assert_eq!(second.status.code(), Some(6), "{}", String::from_utf8_lossy(&second.stderr));
    cairn(&["umount", address]);
    assert!(!is_mounted(&root));
    assert_eq!(cairn(&["cat", address, "/file"]).len(), 1_000_000);
    judge::assert_clean(&volume.image());
}
