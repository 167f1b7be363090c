//! What a thread that waits for an answer is about to do to a file, as `/proc` shows it.
//!
//! The kernel asks for attributes with a handle's flag before each write into its cache, but also
//! before a read past the end and a seek to the end, and its request does not say which. The
//! thread's system call does. If the call may not be read, the process's descriptors of the file
//! are examined instead.
//!
//! The thread waits in the call, so these facts stay true until the answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

const O_ACCMODE: u32 = 0o3;
const O_APPEND: u32 = rustix::fs::OFlags::APPEND.bits();
/// How often to look at a thread that is just going to sleep.
const LOOKS: usize = 20;

/// Numbers of system calls: reads and seeks, those that write from a buffer, and those that write
/// from several.
struct Calls {
    read: &'static [u64],
    write: u64,
    write_at: u64,
    write_pieces: &'static [u64],
}

#[cfg(target_arch = "x86_64")]
const CALLS: Calls = Calls {
    read: &[0, 8, 17, 19, 295, 327],
    write: 1,
    write_at: 18,
    write_pieces: &[20, 296, 328],
};
/// The numbers of all newer architectures.
#[cfg(not(target_arch = "x86_64"))]
const CALLS: Calls = Calls {
    read: &[62, 63, 65, 67, 69, 286],
    write: 64,
    write_at: 68,
    write_pieces: &[66, 70, 287],
};

/// What the thread is about to do. `None` in a field: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It reads, or seeks to the end.
    Read,
    /// It writes, or may write.
    Write {
        /// True if it writes at the end of the file.
        append: Option<bool>,
        /// From this offset on.
        offset: Option<u64>,
        /// Number of bytes.
        len: Option<u64>,
    },
}

impl Intent {
    const UNKNOWN: Self = Self::Write { append: None, offset: None, len: None };

    /// The intent of the thread `tid` for the file with this inode number.
    pub(crate) fn of(tid: u32, ino: u64) -> Self {
        // 0 stands for a thread of the kernel, or of a process that is not visible from here.
        if tid == 0 {
            Self::UNKNOWN
        } else {
            Self::look(&PathBuf::from(format!("/proc/{tid}")), ino)
        }
    }

    fn look(task: &Path, ino: u64) -> Self {
        let open = descriptors(task, ino);
        let Some([number, first, _, third, fourth]) = system_call(task) else {
            return Self::by_descriptors(open.as_deref());
        };
        let of = |fd: u64| open.iter().flatten().find(|open| u64::from(open.fd) == fd);
        let append = of(first).map(|open| open.append);
        if CALLS.read.contains(&number) {
            Self::Read
        } else if number == CALLS.write {
            Self::Write { append, offset: of(first).map(|open| open.position), len: Some(third) }
        } else if number == CALLS.write_at {
            Self::Write { append, offset: Some(fourth), len: Some(third) }
        } else if CALLS.write_pieces.contains(&number) {
            Self::Write { append, offset: None, len: None }
        } else {
            Self::by_descriptors(open.as_deref())
        }
    }

    fn by_descriptors(open: Option<&[Descriptor]>) -> Self {
        match open {
            None | Some([]) => Self::UNKNOWN,
            Some(open) => {
                let mut writable = open.iter().filter(|open| open.writable);
                match (writable.next(), writable.next()) {
                    (None, _) => Self::Read,
                    (Some(one), None) => Self::Write {
                        append: Some(one.append),
                        offset: Some(one.position),
                        len: None,
                    },
                    _ => Self::UNKNOWN,
                }
            }
        }
    }
}

/// Number and first four arguments of the call that a thread waits in. `None` if they are not
/// readable.
fn system_call(task: &Path) -> Option<[u64; 5]> {
    for _ in 0..LOOKS {
        let line = fs::read_to_string(task.join("syscall")).ok()?;
        if line.trim() != "running" {
            return parse_call(&line);
        }
        thread::yield_now();
    }
    None
}

fn parse_call(line: &str) -> Option<[u64; 5]> {
    let mut words = line.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    Some([number, argument()?, argument()?, argument()?, argument()?])
}

struct Descriptor {
    fd: u32,
    position: u64,
    writable: bool,
    append: bool,
}

/// The descriptors that a process has of an inode. `None` if they are not readable.
fn descriptors(task: &Path, ino: u64) -> Option<Vec<Descriptor>> {
    let entries = fs::read_dir(task.join("fdinfo")).ok()?;
    let each = entries.flatten().filter_map(|entry| {
        let fd = entry.file_name().to_str()?.parse().ok()?;
        parse_descriptor(fd, &fs::read_to_string(entry.path()).ok()?, ino)
    });
    Some(each.collect())
}

fn parse_descriptor(fd: u32, text: &str, ino: u64) -> Option<Descriptor> {
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    // Kernels before 5.14 do not show the inode: any descriptor may be of this file.
    if field("ino").is_some_and(|found| found != ino.to_string()) {
        return None;
    }
    let flags = u32::from_str_radix(field("flags")?, 8).ok()?;
    Some(Descriptor {
        fd,
        position: field("pos")?.parse().ok()?,
        writable: flags & O_ACCMODE != 0,
        append: flags & O_APPEND != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task as `/proc` shows it.
    fn task(call: Option<&str>, descriptors: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        if let Some(call) = call {
            fs::write(dir.path().join("syscall"), call).unwrap();
        }
        fs::create_dir(dir.path().join("fdinfo")).unwrap();
        for (fd, text) in descriptors.iter().enumerate() {
            fs::write(dir.path().join("fdinfo").join(fd.to_string()), text).unwrap();
        }
        dir
    }

    fn writes(append: Option<bool>, offset: Option<u64>, len: Option<u64>) -> Intent {
        Intent::Write { append, offset, len }
    }

    const READ_ONLY: &str = "pos:\t7\nflags:\t0100000\nmnt_id:\t24\nino:\t12\n";
    const WRITABLE: &str = "pos:\t4096\nflags:\t0100002\nmnt_id:\t24\nino:\t12\n";
    const APPENDS: &str = "pos:\t0\nflags:\t0102001\nmnt_id:\t24\nino:\t12\n";
    const OTHER: &str = "pos:\t0\nflags:\t0100001\nmnt_id:\t24\nino:\t13\n";

    #[test]
    fn the_call_tells_what_is_done_and_how_much() {
        let open = [OTHER, READ_ONLY, WRITABLE, APPENDS];
        let call = |number: u64, fd: u64| {
            let line = format!("{number} 0x{fd:x} 0x7f00 0x1000 0x2000 0x0 0x0 0x7ffe 0x7efc\n");
            Intent::look(task(Some(&line), &open).path(), 12)
        };
        assert!(CALLS.read.iter().all(|number| call(*number, 2) == Intent::Read));
        assert_eq!(call(CALLS.write, 2), writes(Some(false), Some(4096), Some(4096)));
        assert_eq!(call(CALLS.write, 3), writes(Some(true), Some(0), Some(4096)));
        assert_eq!(call(CALLS.write_at, 2), writes(Some(false), Some(8192), Some(4096)));
        assert_eq!(call(CALLS.write_pieces[0], 2), writes(Some(false), None, None));
    }

    #[test]
    fn without_a_call_the_descriptors_tell() {
        let of = |descriptors: &[&str]| Intent::look(task(None, descriptors).path(), 12);
        assert_eq!(of(&[OTHER, READ_ONLY]), Intent::Read);
        assert_eq!(of(&[READ_ONLY, WRITABLE]), writes(Some(false), Some(4096), None));
        assert_eq!(of(&[APPENDS]), writes(Some(true), Some(0), None));
        assert_eq!(of(&[WRITABLE, APPENDS]), Intent::UNKNOWN);
        assert_eq!(of(&[OTHER]), Intent::UNKNOWN, "a file that the kernel holds for it");
        assert_eq!(Intent::look(Path::new("/nowhere"), 12), Intent::UNKNOWN);
        let kernel = task(Some("-1 0x7ffe 0x7efc\n"), &[READ_ONLY]);
        assert_eq!(Intent::look(kernel.path(), 12), Intent::Read);
    }
}
