//! The platform of a root: the one that was asked for, or that of the programs in the tree.

use cairn::partition::PartitionKind;

use crate::node::{Kind, RegularFile};
use crate::tree::Tree;

/// Programs that are looked at.
const PROGRAMS: usize = 64;
/// Files that are looked at for these.
const FILES: usize = 4096;
/// Bytes of the header of a program that tell its machine.
const HEADER: usize = 20;
const EXECUTABLE: u32 = 0o111;

/// Names of platforms, machines of ELF (`e_machine`), and the types of their roots.
const PLATFORMS: &[(&str, u16, &str)] = &[
    ("amd64", 62, "root-x86-64"),
    ("386", 3, "root-x86"),
    ("arm64", 183, "root-arm64"),
    ("arm", 40, "root-arm"),
    ("riscv64", 243, "root-riscv64"),
];

/// The type of a root partition. If the platform is not known, that of any files of Linux.
pub(super) fn root_kind(platform: Option<&str>, tree: Option<&Tree>) -> PartitionKind {
    let named = platform.and_then(|platform| platform.split('/').nth(1));
    let machine = || tree.and_then(machine_of);
    let found = match named {
        Some(name) => PLATFORMS.iter().find(|(known, ..)| *known == name),
        None => machine().and_then(|number| PLATFORMS.iter().find(|row| row.1 == number)),
    };
    let kind = found.and_then(|(.., word)| PartitionKind::parse(word).ok());
    kind.unwrap_or_else(PartitionKind::linux)
}

/// The machine that most programs are for.
fn machine_of(tree: &Tree) -> Option<u16> {
    let programs = tree.nodes().iter().filter_map(|node| match &node.kind {
        Kind::Regular(file) if node.metadata.permissions & EXECUTABLE != 0 => Some(file),
        _ => None,
    });
    let is_whole = |file: &&RegularFile| {
        file.data.first().is_some_and(|data| data.start == 0 && data.end >= HEADER as u64)
    };
    let header = |file: &RegularFile| {
        let mut header = [0; HEADER];
        // What cannot be read has been an error before, or will be one for its volume.
        tree.read(file, 0, &mut header).ok()?;
        machine_in(&header)
    };
    let machines: Vec<u16> =
        programs.filter(is_whole).take(FILES).filter_map(header).take(PROGRAMS).collect();
    let count = |machine: u16| machines.iter().filter(|other| **other == machine).count();
    machines.iter().copied().max_by_key(|machine| (count(*machine), *machine))
}

/// `e_machine`, in the order of bytes that the header states.
fn machine_in(header: &[u8; HEADER]) -> Option<u16> {
    let [0x7f, b'E', b'L', b'F', _, order, .., low, high] = *header else { return None };
    match order {
        1 => Some(u16::from_le_bytes([low, high])),
        2 => Some(u16::from_be_bytes([low, high])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_read_from_the_header() {
        let mut header = [0; HEADER];
        header[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        header[18] = 183;
        assert_eq!(machine_in(&header), Some(183));
        header[5] = 2;
        assert_eq!(machine_in(&header), Some(183 << 8));
        header[0] = b'#';
        assert_eq!(machine_in(&header), None);
    }

    #[test]
    fn a_platform_that_was_asked_for_decides() {
        let kind = |word| PartitionKind::parse(word).unwrap();
        assert_eq!(root_kind(Some("linux/arm64"), None), kind("root-arm64"));
        assert_eq!(root_kind(Some("linux/arm/v7"), None), kind("root-arm"));
        assert_eq!(root_kind(Some("linux/vax"), None), PartitionKind::linux());
        assert_eq!(root_kind(None, None), PartitionKind::linux());
    }
}
