//! Volumes that go back and forth between Cairn and Linux in a virtual machine, and lose their
//! power on either side. The next side replays what the other fsynced, and fsck.f2fs judges each
//! time. A further test compares what both write for the same work.

mod against_linux;
mod compressed;
mod power;
mod shutdown;
mod support;

/// What runs in the machine.
#[test]
#[ignore = "runs in the machine"]
fn in_the_machine() {
    cairn_testkit::vm::serve();
}
