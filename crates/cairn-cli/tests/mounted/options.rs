//! Every option of the mount itself has a visible effect: in the mount table, in the daemon's
//! counters, or in the calls that the kernel allows. The list of options comes from the code, so a
//! new option without a case is found.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use cairn_fuse::MountOptions;
use cairn_testkit::judge;
use rustix::fs::{XattrFlags, setxattr};

use crate::fixture::{CAIRN, Volume};

const SIZE: u64 = 32 << 20;

/// The other options, the option, whether a remount can change it, and the observed quantity.
type Effect = (&'static str, &'static str, bool, fn(&Volume) -> String);

const EFFECTS: &[Effect] = &[
    ("", "ro", true, |volume| in_table(volume, "ro")),
    ("ro", "rw", true, |volume| in_table(volume, "rw")),
    ("nosuid", "suid", true, |volume| in_table(volume, "nosuid")),
    ("", "nosuid", true, |volume| in_table(volume, "nosuid")),
    ("nodev", "dev", true, |volume| in_table(volume, "nodev")),
    ("", "nodev", true, |volume| in_table(volume, "nodev")),
    ("noexec", "exec", true, executed),
    ("", "noexec", true, executed),
    ("noatime", "relatime", true, |volume| in_table(volume, "noatime")),
    ("noatime", "atime", true, |volume| in_table(volume, "noatime")),
    ("noatime", "strictatime", true, |volume| in_table(volume, "noatime")),
    ("", "noatime", true, |volume| in_table(volume, "noatime")),
    ("", "sync", true, fsyncs_of_a_write),
    ("sync", "async", true, fsyncs_of_a_write),
    ("", "dirsync", true, fsyncs_of_names),
    ("", "sync", true, fsyncs_of_names),
    ("", "sync", true, fsyncs_of_attributes),
    ("", "nowriteback_cache", false, small_writes),
    ("nowriteback_cache", "writeback_cache", false, small_writes),
    ("", "no_open", false, opens),
    ("no_open", "nono_open", false, opens),
    ("", "no_open", false, requests_of_new_files),
    ("", "noxattr", false, requests_of_new_files),
    ("noxattr", "xattr", false, requests_of_new_files),
    ("", "private", false, requests_of_new_files),
    ("", "one_user", false, requests_of_new_files),
    ("private", "noprivate", false, requests_of_new_files),
    ("private", "default_permissions", false, requests_of_new_files),
    ("", "build", false, requests_of_new_files),
    ("", "build", false, small_writes),
];

/// Options whose effect another test checks.
const ELSEWHERE: &[(&str, &str)] = &[
    ("allow_other", "user::: root's mounts have it anyway"),
    ("idmap", "idmapped::"),
    ("noidmap", "idmapped::"),
    ("threads", "none: who is woken by which request depends on the machine"),
    ("transport", "ring::"),
    ("spin", "cairn_fuse::servers::tests: it changes nothing but time"),
];

/// True if the mount table has the option.
fn in_table(volume: &Volume, word: &str) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = volume.root();
    let fields = |line: &'_ str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let found =
        table.lines().map(fields).find(|fields| fields[4] == point.to_str().unwrap()).unwrap();
    format!("{word}: {}", found[5].split(',').any(|flag| flag == word))
}

fn executed(volume: &Volume) -> String {
    let path = volume.path("program");
    judge::copy_program(Path::new("/bin/true"), &path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let done = Command::new(&path).status();
    fs::remove_file(&path).unwrap();
    done.map_or_else(|error| error.kind().to_string(), |status| status.to_string())
}

/// The number of requests of a kind while `work` runs.
fn requests(volume: &Volume, kinds: &[&str], work: impl FnOnce()) -> u64 {
    let count = || {
        let stats = volume.stats();
        let of = |kind: &&str| {
            stats.pointer(&format!("/fuse/requests/{kind}")).and_then(serde_json::Value::as_u64)
        };
        kinds.iter().map(|kind| of(kind).unwrap_or(0)).sum::<u64>()
    };
    let before = count();
    work();
    count() - before
}

fn fsyncs(volume: &Volume, work: impl FnOnce()) -> String {
    format!("{} fsyncs", requests(volume, &["fsync", "fsyncdir"], work))
}

fn fsyncs_of_a_write(volume: &Volume) -> String {
    let path = volume.path("written");
    let mut file = File::create(&path).unwrap();
    fsyncs(volume, || file.write_all(b"something").unwrap())
}

fn fsyncs_of_names(volume: &Volume) -> String {
    let path = |name: &str| volume.path(name);
    fsyncs(volume, || {
        fs::create_dir(path("made")).unwrap();
        File::create(path("file")).unwrap();
        fs::hard_link(path("file"), path("made/link")).unwrap();
        fs::rename(path("file"), path("made/moved")).unwrap();
        symlink("target", path("symlink")).unwrap();
        fs::remove_file(path("made/link")).unwrap();
        fs::remove_file(path("made/moved")).unwrap();
        fs::remove_file(path("symlink")).unwrap();
        fs::remove_dir(path("made")).unwrap();
    })
}

fn fsyncs_of_attributes(volume: &Volume) -> String {
    let path = volume.path("file");
    File::create(&path).unwrap();
    fsyncs(volume, || {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        setxattr(&path, "user.a", b"b", XattrFlags::empty()).unwrap();
    })
}

fn small_writes(volume: &Volume) -> String {
    let mut file = File::create(volume.path("small")).unwrap();
    let writes =
        requests(volume, &["write"], || (0..8).for_each(|_| file.write_all(b"something").unwrap()));
    format!("{writes} writes")
}

fn opens(volume: &Volume) -> String {
    let path = volume.path("file");
    File::create(&path).unwrap();
    // With the first request the kernel learns whether it has to ask.
    File::open(&path).unwrap();
    format!(
        "{} opens",
        requests(volume, &["open"], || (0..5).for_each(|_| drop(File::open(&path).unwrap())))
    )
}

/// [`crate::requests`] has the exact numbers.
fn requests_of_new_files(volume: &Volume) -> String {
    let file = |kind: &str, n: u32| volume.path(&format!("{kind} {n}"));
    let counts = ["mknod", "getxattr", "release"].map(|kind| {
        let make = |n| fs::write(file(kind, n), "text").unwrap();
        // With the first file the kernel learns what it need not ask.
        make(9);
        let count = requests(volume, &[kind], || (0..5).for_each(make));
        (0..5).chain([9]).for_each(|n| fs::remove_file(file(kind, n)).unwrap());
        format!("{count} {kind}")
    });
    let dir = |n: u32| volume.path(&format!("dir {n}"));
    let count =
        requests(volume, &["getattr"], || (0..5).for_each(|n| fs::create_dir(dir(n)).unwrap()));
    (0..5).for_each(|n| fs::remove_dir(dir(n)).unwrap());
    format!("{}, {count} getattr", counts.join(", "))
}

fn change(volume: &Volume, word: &str) -> Result<(), String> {
    let output =
        Command::new(CAIRN).args(["remount", "-o", word]).arg(volume.root()).output().unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn every_option_of_the_mount_changes_something() {
    let name = |word: &str| word.split('=').next().unwrap().to_owned();
    let known =
        EFFECTS.iter().map(|effect| effect.1).chain(ELSEWHERE.iter().map(|(word, _)| *word));
    let known: Vec<String> = known.map(name).collect();
    let missing: Vec<String> =
        MountOptions::settings().filter(|setting| !known.contains(&name(setting))).collect();
    assert!(missing.is_empty(), "options whose effect no test has shown: {missing:?}");
    let mut in_vain = Vec::new();
    for (against, word, live, seen) in EFFECTS {
        let mut volume = Volume::mounted(SIZE, against);
        let without = seen(&volume);
        if *live {
            change(&volume, word)
                .unwrap_or_else(|error| panic!("{word} on a live mount with {against}: {error}"));
        } else {
            let refused = change(&volume, word).expect_err(word);
            assert!(refused.contains("mount again"), "{word}: {refused}");
            volume.unmount();
            volume.mount(&[*against, *word].join(","));
        }
        let with = seen(&volume);
        println!("{word} against `{against}`: {without} / {with}");
        if without == with {
            in_vain.push(format!("{word} against `{against}`: {with}"));
        }
        volume.unmount();
    }
    assert!(in_vain.is_empty(), "options without an effect: {in_vain:#?}");
}
