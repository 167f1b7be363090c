//! The archive a machine boots from: `newc` cpio, made in memory.

use std::collections::BTreeSet;
use std::path::Path;

use crate::judge::command;

const MODE_DIRECTORY: u32 = 0o040_755;
const MODE_FILE: u32 = 0o100_000;

/// Collects files; directories are made as they are needed.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    present: BTreeSet<String>,
}

impl Archive {
    /// Adds a file unless one of that name (without a leading slash) is there.
    pub(super) fn file(&mut self, name: &str, mode: u32, content: Vec<u8>) {
        let mut at = 0;
        while let Some(slash) = name.get(at..).and_then(|rest| rest.find('/')) {
            let parent = name.get(..at + slash).unwrap_or_default();
            if self.present.insert(parent.to_owned()) {
                self.member(parent, MODE_DIRECTORY, &[]);
            }
            at += slash + 1;
        }
        if self.present.insert(name.to_owned()) {
            self.member(name, MODE_FILE | mode, &content);
        }
    }

    /// Adds an executable of the host as `/bin/NAME`, and every library the dynamic linker would
    /// load for it at the library's own place.
    pub(super) fn program(&mut self, path: &Path, name: &str) {
        self.file(&format!("bin/{name}"), 0o755, read(path));
        // ldd fails for a static executable, with an empty output.
        let output = command("ldd").arg(path).output().expect("ldd starts");
        let text = String::from_utf8_lossy(&output.stdout);
        // "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)" or "/lib64/ld-linux-x86-64.so.2
        // (0x…)"
        let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
        for library in libraries {
            self.file(library.trim_start_matches('/'), 0o755, read(Path::new(library)));
        }
    }

    fn member(&mut self, name: &str, mode: u32, content: &[u8]) {
        let number = self.present.len();
        let fields =
            [number, mode as usize, 0, 0, 1, 0, content.len(), 0, 0, 0, 0, name.len() + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.member("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
