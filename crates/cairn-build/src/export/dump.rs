//! Writes what a tree states as a composefs-dump(5): a line for each name, which `--manifest` of a
//! build reads. Contents of files are not in it.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::error::{Error, Result};
use crate::node::{Kind, Node, NodeId};
use crate::tree::Tree;

/// Writes a line for each name.
///
/// # Errors
/// The dump cannot be written.
pub(super) fn write(
    tree: &Tree,
    to: &mut dyn Write,
    failed: &dyn Fn(io::Error) -> Error,
) -> Result<()> {
    let mut first: HashMap<NodeId, Vec<u8>> = HashMap::new();
    tree.each_name(&mut |path, id, node| {
        let path = [b"/", path].concat();
        let known = first.get(&id);
        let line = line(&path, node, known.map(Vec::as_slice));
        if node.links > 1 && known.is_none() {
            first.insert(id, path);
        }
        to.write_all(&line).map_err(failed)
    })
}

/// The line of a name; `first` is the one that the node had before.
fn line(path: &[u8], node: &Node, first: Option<&[u8]>) -> Vec<u8> {
    let of = &node.metadata;
    let mode = node.kind.file_kind().mode_bits() | of.permissions;
    let size = match &node.kind {
        Kind::Regular(file) => file.size,
        _ => 0,
    };
    let device = match node.kind {
        Kind::CharDevice(device) | Kind::BlockDevice(device) => device,
        _ => 0,
    };
    let (at, payload) = match (&node.kind, first) {
        (_, Some(first)) => ("@", field(first)),
        (Kind::Symlink(target), None) => ("", field(target)),
        _ => ("", "-".into()),
    };
    let (links, time) = (node.links, of.mtime);
    let mut line = format!(
        "{} {size} {at}{mode:o} {links} {} {} {device} {}.{} {payload} - -",
        field(path),
        of.uid,
        of.gid,
        time.seconds,
        time.nanoseconds
    );
    if first.is_none() {
        for xattr in &of.xattrs {
            line.push(' ');
            line.push_str(&escaped(&xattr.name));
            line.push('=');
            line.push_str(&escaped(&xattr.value));
        }
    }
    line.push('\n');
    line.into_bytes()
}

/// A field that is there.
fn field(bytes: &[u8]) -> String {
    if bytes == b"-" { "\\x2d".into() } else { escaped(bytes) }
}

/// Bytes that mean nothing else in a line are as they are.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"/._-+:,@%~#".contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_a_line_is_escaped() {
        assert_eq!(field(b"-"), "\\x2d");
        assert_eq!(field(b"/a b=c\\\n-"), "/a\\x20b\\x3dc\\x5c\\x0a-");
        assert_eq!(escaped(&[0xff, 0]), "\\xff\\x00");
    }
}
