//! What is done with an input. Each target is one function; a finding is a panic, or what the
//! fuzzer sees from outside: too much time or memory.

mod archives;
mod channel;
mod disks;
mod network;
mod remains;
mod tables;
mod volumes;

/// A target.
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// Inputs are records, which [`crate::mutate()`] knows.
    pub has_records: bool,
    /// Longest input that is worth a try.
    pub most: usize,
    /// Runs one input.
    pub run: fn(&[u8]),
}

/// Longest input with records.
const RECORDS: usize = 520;

const fn volumes(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, has_records: true, most: RECORDS, run }
}

const fn bytes(name: &'static str, most: usize, run: fn(&[u8])) -> Target {
    Target { name, has_records: false, most, run }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    volumes("open", volumes::open),
    volumes("write", volumes::write),
    volumes("journal", volumes::journal),
    volumes("roll_forward", volumes::roll_forward),
    volumes("check", volumes::check),
    volumes("repair", volumes::repair),
    volumes("dump", remains::dump),
    volumes("rescue", remains::rescue),
    bytes("build", 16 << 10, archives::build),
    bytes("manifest", 2048, archives::manifest),
    bytes("sparse", 8192, archives::sparse),
    bytes("partition", 20 << 10, tables::partition),
    bytes("qcow2", 64 << 10, disks::qcow2),
    bytes("zst", 8192, disks::zst),
    bytes("luks", 34 << 10, disks::luks),
    bytes("control", 2048, channel::control),
    bytes("nbd_client", 8192, network::nbd_client),
    bytes("nbd_server", 8192, network::nbd_server),
];

/// The target of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
