//! One seeded sequence of operations on a mount beside the kernel's ext4 on a loop device: root and
//! an ordinary user, privileges, access control lists, times, file handles, buffered, mapped,
//! direct and asynchronous I/O. Every answer and every `stat` is the same, except for the
//! differences in [`KNOWN`].

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use cairn_testkit::{deep, judge};
use serde_json::Value;

use crate::fixture::Volume;

const PROGRAM: &str = include_str!("beside/run.py");
/// Flags of `chattr`.
const NODUMP: u32 = 0x40;
const IMMUTABLE_AND_APPEND: u32 = 0x30;

/// An expected difference.
struct Known {
    /// Operations that cause it (all if none).
    after: &'static [&'static str],
    is: fn(field: &str, kernel: &Value, ours: &Value) -> bool,
    why: &'static str,
}

const KNOWN: [Known; 7] = [
    Known {
        after: &[],
        is: |field, kernel, ours| {
            field.starts_with("times/") && without(kernel, 'a') == without(ours, 'a')
        },
        why: "what is read from the kernel's cache, or by it to complete a page, is no reading to \
            us, or is one",
    },
    Known {
        after: &["flags"],
        is: |field, kernel, ours| field.starts_with("times/") && kernel == "c" && ours.is_null(),
        why: "with its cache the kernel keeps a file's ctime, and does not take ours for what an \
            ioctl changed",
    },
    Known {
        after: &["truncate"],
        is: |field, kernel, ours| field.starts_with("times/") && kernel == "mc" && ours.is_null(),
        why: "with its cache the kernel changes no times where the size stays as it is",
    },
    Known {
        after: &["setxattr", "removexattr"],
        is: |field, kernel, ours| field.starts_with("times/") && kernel.is_null() && ours == "c",
        why: "the kernel's FUSE stamps an inode whose attribute stays as it was",
    },
    Known {
        after: &[],
        is: |field, kernel, ours| field == "result" && kernel == "EPERM" && ours == "EACCES",
        why: "where flags and permissions both forbid, the kernel's FUSE looks at the permissions \
            first",
    },
    Known {
        after: &["allocate"],
        is: |field, kernel, ours| field == "result" && kernel == "EPERM" && ours == "ETXTBSY",
        why: "the same of a file that is being run",
    },
    Known {
        after: &["allocate"],
        is: |field, kernel, ours| field.starts_with("times/") && kernel.is_null() && ours == "mc",
        why: "the kernel's FUSE stamps a file before it asks for a change that is refused",
    },
];

/// Which times changed, without one of them.
fn without(times: &Value, letter: char) -> String {
    times.as_str().unwrap_or_default().chars().filter(|time| *time != letter).collect()
}

/// The program drops the kernel's caches now and then. That shows times which the kernel has not
/// asked for: at the same place in both sequences, but anywhere in a test beside it.
static CACHES: Mutex<()> = Mutex::new(());

/// Runs the sequence in a directory.
fn run(place: &Path, seed: u64, steps: u32, flags: u32) -> Vec<Value> {
    let _alone = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
    let arguments = [seed.to_string(), steps.to_string(), flags.to_string()];
    let place = place.to_str().unwrap();
    let told = judge::run(
        "python3",
        ["-c", PROGRAM, place].into_iter().chain(arguments.iter().map(String::as_str)),
    );
    told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A difference in a step: field, the kernel's value, Cairn's value.
fn differences(kernel: &Value, ours: &Value) -> Vec<(String, Value, Value)> {
    let mut found = Vec::new();
    if kernel["result"] != ours["result"] {
        found.push(("result".to_owned(), kernel["result"].clone(), ours["result"].clone()));
    }
    for group in ["stat", "times"] {
        let names = |step: &Value| {
            step[group].as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>()
        };
        for name in names(kernel).union(&names(ours)) {
            let (kernel, ours) = (&kernel[group][name], &ours[group][name]);
            if kernel != ours {
                found.push((format!("{group}/{name}"), kernel.clone(), ours.clone()));
            }
        }
    }
    found
}

fn is_known(step: &Value, (field, kernel, ours): &(String, Value, Value)) -> bool {
    let what = step["what"].as_str().unwrap();
    KNOWN.iter().any(|known| {
        assert!(!known.why.is_empty());
        (known.after.is_empty() || known.after.contains(&what)) && (known.is)(field, kernel, ours)
    })
}

/// Runs the sequence on both, and compares.
fn compare(mut volume: Volume, seed: u64, flags: u32) {
    let steps = 300;
    let expected =
        judge::on_the_kernel_s_ext4(128 << 20, &[], |root| run(root, seed, steps, flags));
    let found = run(&volume.root(), seed, steps, flags);
    assert_eq!((expected.len(), found.len()), (steps as usize, steps as usize));
    for (kernel, ours) in expected.iter().zip(&found) {
        assert_eq!(kernel["arguments"], ours["arguments"], "not the same sequence");
        let unknown: Vec<_> = differences(kernel, ours)
            .into_iter()
            .filter(|difference| !is_known(kernel, difference))
            .collect();
        assert!(
            unknown.is_empty(),
            "seed {seed}, flags {flags:#x}: {ours}\nfield, the kernel's, ours: {unknown:#?}"
        );
    }
    volume.unmount();
}

fn seeds() -> std::ops::Range<u64> {
    if deep() { 0..40 } else { 0..2 }
}

#[test]
fn ext4_answers_as_the_kernel_s() {
    for seed in seeds() {
        compare(Volume::mounted(128 << 20, ""), seed, NODUMP);
    }
}

#[test]
fn f2fs_answers_as_the_kernel_s_ext4() {
    for seed in seeds() {
        compare(Volume::f2fs(128 << 20, ""), seed, NODUMP);
    }
}

/// The kernel asks before it opens. Without its writeback cache it also asks before it writes.
const ASKING: &str = "nono_open,nowriteback_cache";

#[test]
fn immutable_and_append_only_files_are_the_kernel_s() {
    for seed in seeds() {
        compare(Volume::mounted(128 << 20, ASKING), seed, NODUMP | IMMUTABLE_AND_APPEND);
    }
}

#[test]
fn immutable_and_append_only_files_of_f2fs_are_the_kernel_s() {
    for seed in seeds() {
        compare(Volume::f2fs(128 << 20, ASKING), seed, NODUMP | IMMUTABLE_AND_APPEND);
    }
}
