//! Lines of fstab that were written for Linux's drivers, through mount(8) and its helper.

use std::fs;
use std::path::Path;
use std::process::Output;

use cairn_testkit::judge;

use crate::fixture::{CAIRN, Volume};

const SIZE: u64 = 64 << 20;

/// Runs in its own mount namespace, in which an empty `/sbin` gets the helper. Arguments: the
/// program, the mount point, the table, a script.
const HELPER: &str = r#"
set -e
mount -t tmpfs none "$(readlink -f /sbin)"
cp "$0" /sbin/mount.fuse.cairn
eval "$3"
"#;

/// Runs a script in which `$0` is the program, `$1` the mount point and `$2` a table with this line
/// for it.
fn with_line(volume: &Volume, options: &str, script: &str) -> Output {
    let table = volume.outside("fstab");
    let line = format!(
        "{} {} fuse.cairn {options} 0 2\n",
        volume.image().display(),
        volume.root().display()
    );
    fs::write(&table, line).unwrap();
    let mut command = judge::command("unshare");
    command.args(["--mount", "sh", "-c", &[judge::FORGET_MOUNTS, HELPER].concat()]).args([
        Path::new(CAIRN),
        &volume.root(),
        &table,
        Path::new(script),
    ]);
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const MOUNTED: &str = r#"
grep -q " $1 .*fuse.cairn" /proc/self/mountinfo
echo hello > "$1/file"
mount -o remount,ro -T "$2" "$1"
mount -o remount,rw -T "$2" "$1"
"$0" umount "$1"
"#;

/// mount(8) keeps the word `private` for itself.
#[test]
fn one_user_is_private_in_fstab() {
    let volume = Volume::make(SIZE, &[]);
    let mounted = r#"mount -T "$2" "$1"; "$0" stats --json "$1" | grep -o '"private": *true'
        "$0" umount "$1""#;
    let output = with_line(&volume, "one_user,build", mounted);
    assert!(output.status.success() && said(&output).contains("true"), "{}", said(&output));
    volume.judge();
}

#[test]
fn a_fake_mount_mounts_nothing_and_finds_what_would_fail() {
    let volume = Volume::make(SIZE, &[]);
    let fake =
        r#"mount -f -T "$2" "$1"; if grep " $1 " /proc/self/mountinfo; then echo mounted; fi"#;
    let output = with_line(&volume, "noauto", fake);
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    for (options, why) in [("data=journal", "data=journal"), ("frob", "unknown option")] {
        let output = with_line(&volume, options, fake);
        assert!(
            !output.status.success() && said(&output).contains(why),
            "{options}: {}",
            said(&output)
        );
    }
}

#[test]
fn words_of_linux_are_taken_ignored_with_a_line_or_refused() {
    let ext4 = Volume::make(SIZE, &[]);
    let quiet = "defaults,noauto,nofail,user,exec,suid,dev,_netdev,x-systemd.automount,\
         comment=mine,data=ordered,errors=remount-ro,barrier,acl";
    let output = with_line(&ext4, quiet, &format!("mount -T \"$2\" \"$1\"\n{MOUNTED}"));
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    let ignored = [
        "barrier=0",
        "mb_optimize_scan=1",
        "data=writeback",
        "inode_readahead_blks=32",
        "lazytime",
        "strictatime",
        "journal_ioprio=3",
    ];
    let output =
        with_line(&ext4, &ignored.join(","), &format!("mount -T \"$2\" \"$1\"\n{MOUNTED}"));
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    for word in ignored {
        let lines = text
            .lines()
            .filter(|line| line.contains(&format!("option `{word}` has no effect: ")))
            .count();
        assert_eq!(lines, 1, "{word}: {text}");
    }
    assert_eq!(text.lines().count(), ignored.len(), "{text}");
    for word in ["data=journal", "usrquota", "journal_path=/dev/x", "nosymfollow"] {
        let output = with_line(&ext4, word, r#"mount -T "$2" "$1""#);
        assert!(
            !output.status.success() && said(&output).contains(word),
            "{word}: {}",
            said(&output)
        );
    }
    judge::assert_clean(&ext4.image());

    let mut f2fs = Volume::f2fs(SIZE, "");
    f2fs.unmount();
    let line = "active_logs=6,inline_data,fsync_mode=posix,\
         active_logs=4,flush_merge,compress_algorithm=lz4";
    let output = with_line(&f2fs, line, &format!("mount -T \"$2\" \"$1\"\n{MOUNTED}"));
    assert!(output.status.success() && said(&output).lines().count() == 3, "{}", said(&output));
    let output = with_line(&f2fs, "fsync_mode=strict", r#"mount -T "$2" "$1""#);
    assert!(
        !output.status.success() && said(&output).contains("fsync_mode=strict"),
        "{}",
        said(&output)
    );
    judge::assert_f2fs_clean(&f2fs.image());
}

#[test]
fn what_mount8_passes_on_is_heard() {
    let volume = Volume::make(SIZE, &[]);
    let output = with_line(&volume, "frob=3", r#"mount -s -T "$2" "$1"; "$0" umount "$1""#);
    assert!(
        output.status.success() && said(&output).contains("`frob=3` has no effect"),
        "{}",
        said(&output)
    );
    let output = with_line(
        &volume,
        "noauto",
        "mount -v -r -T \"$2\" \"$1\"; grep -o \" $1 ro\" /proc/self/mountinfo; \"$0\" umount \
         \"$1\"",
    );
    let text = said(&output);
    assert!(
        output.status.success() && text.contains("mounted on") && text.contains(" ro"),
        "{text}"
    );
    judge::assert_clean(&volume.image());
}
