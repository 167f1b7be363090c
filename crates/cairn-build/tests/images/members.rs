//! tar archives member by member, also such as no program writes.

/// A member of a tar archive: name, kind, link, size in the header, contents.
#[derive(Clone, Copy)]
pub struct Member<'a>(pub &'a [u8], pub u8, pub &'a [u8], pub u64, pub &'a [u8]);

/// Its header.
pub fn header(member: &Member<'_>) -> Vec<u8> {
    let mut block = vec![0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, member.0);
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", member.3).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[member.1]);
    put(157, member.2);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// An archive of members, with an end mark.
pub fn archive(members: &[Member<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for member in members {
        bytes.extend(header(member));
        bytes.extend_from_slice(member.4);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// A regular file.
pub const fn file<'a>(name: &'a [u8], contents: &'a [u8]) -> Member<'a> {
    Member(name, b'0', b"", contents.len() as u64, contents)
}
