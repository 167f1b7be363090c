//! What `make run` shows: it ends well on this checkout.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::fixture::CAIRN;

/// All but the measuring.
#[test]
fn the_demonstration_copies_recovers_and_compares_this_checkout() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/demo");
    let mut command = Command::new(script);
    let done = command.arg("volumes").env("CAIRN", CAIRN).stdin(Stdio::null()).output().unwrap();
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(done.status.success(), "{}\n{}", said[0], said[1]);
    assert_eq!(said[0].matches("the tree is the same").count(), 2, "{}", said[0]);
}
