//! Targets of `cairn build`: archives, lists, sparse images.

use std::path::PathBuf;

use cairn_build::{Kind, Limits, Rules, Source, Tree, UnpackOptions, assemble, unpack};

use crate::scratch;

/// What a build of a small image takes.
const LIMITS: Limits = Limits { bytes: 4 << 20, nodes: 2000 };
/// Bytes of a tar archive's block.
const BLOCK: usize = 512;

/// Puts an archive together with what is in it: tar, cpio, container images, compressed or not.
/// The first byte says whether checksums of tar headers are put right.
pub(super) fn build(bytes: &[u8]) {
    let Some((how, rest)) = bytes.split_first() else { return };
    let mut archive = rest.to_vec();
    if *how != u8::MAX {
        seal_tar(&mut archive);
    }
    let path = scratch::write("archive", &archive);
    let source = Source { name: path.into_os_string(), platform: None };
    match assemble(&[source], Rules::default(), LIMITS, scratch::folder()) {
        Ok(tree) => read(&tree),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Puts the checksum of each header right whose block has the mark of one.
fn seal_tar(archive: &mut [u8]) {
    const SUM: std::ops::Range<usize> = 148..156;
    for header in archive.chunks_exact_mut(BLOCK) {
        if header[257..262] == *b"ustar" {
            header[SUM].fill(b' ');
            let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
            header[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}

/// Reads all names and the beginning and end of all files.
fn read(tree: &Tree) {
    let mut buffer = vec![0; 4096];
    let named = tree.each_name(&mut |_, _, _| Ok(()));
    named.expect("names of a tree can be read");
    for node in tree.nodes() {
        let Kind::Regular(file) = &node.kind else { continue };
        for offset in [0, file.size.saturating_sub(4096)] {
            let len = usize::try_from(file.size - offset).unwrap_or(usize::MAX).min(buffer.len());
            drop(tree.read(file, offset, &mut buffer[..len]).map_err(|error| error.to_string()));
        }
    }
}

/// Applies a list of attributes, in any form, to an empty tree and to one with files.
pub(super) fn manifest(bytes: &[u8]) {
    let path = scratch::write("list", bytes);
    let archive = small_archive();
    let rules = || Rules { manifests: vec![path.clone()], ..Rules::default() };
    let source = Source { name: archive.into_os_string(), platform: None };
    for sources in [&[][..], &[source]] {
        match assemble(sources, rules(), LIMITS, scratch::folder()) {
            Ok(tree) => read(&tree),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// A tar archive with a few names, which lists may state something of. It is made once.
fn small_archive() -> PathBuf {
    let path = scratch::path("small.tar");
    if !path.exists() {
        let mut archive = Vec::new();
        for (name, kind, link) in [
            ("etc/", b'5', ""),
            ("etc/passwd", b'0', ""),
            ("bin", b'2', "usr/bin"),
            ("f", b'0', ""),
        ] {
            let mut header = [0; BLOCK];
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[100..107].copy_from_slice(b"0000644");
            header[124..135].fill(b'0');
            header[156] = kind;
            header[157..157 + link.len()].copy_from_slice(link.as_bytes());
            header[257..265].copy_from_slice(b"ustar\x0000");
            archive.extend(header);
        }
        archive.extend([0; 2 * BLOCK]);
        seal_tar(&mut archive);
        scratch::write("small.tar", &archive);
    }
    path
}

/// Makes an image of a sparse image of Android. Images that would be large are left out.
pub(super) fn sparse(bytes: &[u8]) {
    const LARGEST: u64 = 4 << 20;
    let number = |at: usize| {
        bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .map_or(0, |four| u32::from_le_bytes(*four))
    };
    if u64::from(number(12)) * u64::from(number(16)) > LARGEST {
        return;
    }
    let output = scratch::path("image");
    scratch::remove(&output);
    let inputs = vec![scratch::write("sparse", bytes)];
    let options = UnpackOptions { inputs, output, overwrite: true };
    if let Err(error) = unpack(&options) {
        assert!(!error.to_string().is_empty());
    }
}
