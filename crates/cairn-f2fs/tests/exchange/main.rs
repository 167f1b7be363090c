//! Cairn and Linux (in a virtual machine) use the same volumes in turn, with power cuts on both
//! sides. The next side replays what the other has fsynced, and fsck.f2fs judges the volume each
//! time. Another test compares the numbers of blocks that both write for the same work.

mod against_linux;
mod android;
mod compressed;
mod filled;
mod power;
mod resized;
mod roots;
mod shutdown;
mod support;

/// The machine runs this test.
#[test]
#[ignore = "runs in the machine"]
fn in_the_machine() {
    cairn_testkit::vm::serve();
}
