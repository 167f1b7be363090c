//! `private`: one user, whom no mode and no owner stops. What the kernel no longer checks and what
//! protects others is still checked.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use cairn_testkit::judge;

use crate::fixture::{CAIRN, Volume};

/// Becomes the user who mounted. Prints each result.
const ALLOWED: &str = r##"
import errno, os, subprocess, sys
os.setgroups([]), os.setresgid(65534, 65534, 65534), os.setresuid(65534, 65534, 65534)
place = sys.argv[1]
def attempt(what, work):
    try:
        print(what, work())
    except OSError as error:
        print(what, errno.errorcode[error.errno])

def make(name, mode, text="#!/bin/sh\necho ran\n"):
    path = place + "/" + name
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)
    return path

def mode(path):
    return oct(os.stat(path).st_mode & 0o7777)

closed = make("closed", 0)
attempt("read 0000", lambda: len(open(closed).read()))
attempt("write 0000", lambda: open(closed, "w").write("x"))
os.mkdir(place + "/dir", 0)
attempt("make in 0000", lambda: open(place + "/dir/file", "w").write("x"))
attempt("list 0000", lambda: os.listdir(place + "/dir"))
attempt("run 0644", lambda: subprocess.run([make("script", 0o644)]).returncode)
attempt("may run 0644", lambda: os.access(place + "/script", os.X_OK))
attempt("may write 0", lambda: os.access(closed, os.W_OK))
attempt("run 0755", lambda: subprocess.run([make("program", 0o755)], capture_output=True).stdout)
attempt("may run 0755", lambda: os.access(place + "/program", os.X_OK))
attempt("chdir 0000", lambda: os.chdir(place + "/dir"))
os.chdir("/")
# Privileges go with each change.
for what, change in {"write": lambda path: open(path, "a").write("x"), "truncate": lambda path: os.truncate(path, 1),
                     "chown": lambda path: os.chown(path, 7, 7)}.items():
    path = make("privileged " + what, 0o6755)
    attempt("changed by " + what, lambda: change(path) and None)
    print("left", mode(path))
    if what == "chown":
        # Somebody else's file, of a group that the caller is not in.
        attempt("set-group-id", lambda: os.chmod(path, 0o2755))
        print("left", mode(path))
        attempt("read another's", lambda: len(open(path).read()))
        attempt("give the directory away", lambda: (os.chmod(place, 0o1777), os.chown(place, 7, 7)) and None)
        attempt("remove in a sticky directory", lambda: os.remove(path))
        os.chown(place, 65534, 65534)
attempt("make a device", lambda: os.mknod(place + "/device", 0o20666, os.makedev(1, 3)))
# The mode follows an access control list.
path = make("list", 0o600)
subprocess.run(["setfacl", "-m", "u:12345:rw", path], check=True)
print("list", mode(path))
"##;

const RESULT: &str = "read 0000 19
write 0000 1
make in 0000 1
list 0000 ['file']
run 0644 EACCES
may run 0644 False
may write 0 True
run 0755 b'ran\\n'
may run 0755 True
chdir 0000 None
changed by write None
left 0o755
changed by truncate None
left 0o755
changed by chown None
left 0o755
set-group-id None
left 0o755
read another's 19
give the directory away None
remove in a sticky directory None
make a device EPERM
list 0o660
";

/// As [`super::user`]'s: all users can open `/dev/fuse`, in a mount namespace of its own.
/// Arguments: the program, the image, the mount point, a directory, the attempts, the options.
const SCRIPT: &str = r#"
set -e
mount -t tmpfs -o mode=755 device "$3"
mknod "$3/fuse" c 10 229
chmod 666 "$3/fuse"
mount --bind "$3/fuse" /dev/fuse
run() { user=$1 group=$2; shift 2; setpriv --reuid=$user --regid=$group --clear-groups -- "$@"; }
run 65534 65534 "$0" mount -o "$5" "$1" "$2"
python3 -c "$4" "$2"
# Neither another user, nor the same one with another group, nor root.
if run 12345 65534 ls "$2" 2>/dev/null; then echo "another user got in"; fi
if run 65534 12345 ls "$2" 2>/dev/null; then echo "another group got in"; fi
if ls "$2" 2>/dev/null; then echo "root got in"; fi
run 65534 65534 "$0" umount "$2"
"#;

fn said(output: &std::process::Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn a_user_may_do_everything_on_a_private_mount_and_nobody_else_anything() {
    // The user may not be able to reach where cargo builds.
    let place = tempfile::Builder::new().prefix("cairn-private-").tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (program, device) = (place.path().join("cairn"), place.path().join("device"));
    judge::copy_program(Path::new(CAIRN), &program);
    fs::create_dir(&device).unwrap();
    for options in ["private", "build"] {
        // The root directory belongs to root.
        let volume = Volume::make(64 << 20, &["-E", "root_owner=0:0"]);
        for path in [volume.image(), volume.root()] {
            chown(path, Some(65_534), Some(65_534)).unwrap();
        }
        let mut command = judge::command("unshare");
        command.args(["--mount", "sh", "-c", &[judge::FORGET_MOUNTS, SCRIPT].concat()]);
        command.args([&program, &volume.image(), &volume.root(), &device]);
        let output = command.args([ALLOWED, options]).output().unwrap();
        assert!(output.status.success(), "{options}: {}", said(&output));
        assert_eq!(said(&output), RESULT, "{options}");
        judge::assert_clean(&volume.image());
    }
}

#[test]
fn a_private_mount_of_root_is_for_root_alone() {
    for mut volume in [Volume::mounted(32 << 20, "private"), Volume::f2fs(64 << 20, "build")] {
        fs::write(volume.path("file"), "x").unwrap();
        fs::set_permissions(volume.path("file"), fs::Permissions::from_mode(0o666)).unwrap();
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "--", "cat"];
        let output =
            judge::command("setpriv").args(user).arg(volume.path("file")).output().unwrap();
        assert!(said(&output).contains("Permission denied"), "{}", said(&output));
        let output = Command::new(CAIRN)
            .args(["remount", "-o", "allow_other"])
            .arg(volume.root())
            .output()
            .unwrap();
        assert!(said(&output).contains("allow_other cannot be changed"), "{}", said(&output));
        assert_eq!(volume.stats()["options"]["mount"]["allow_other"], false);
        volume.unmount();
    }
}

#[test]
fn options_for_others_contradict_private() {
    let volume = Volume::make(32 << 20, &[]);
    for (options, advice) in [
        ("private,allow_other", "leave allow_other out"),
        ("allow_other,build", "leave allow_other out"),
        ("idmap,private", "leave one of them out"),
    ] {
        let mut command = Command::new(CAIRN);
        command.args(["mount", "-o", options]).arg(volume.image()).arg(volume.root());
        let output = command.output().unwrap();
        assert!(!output.status.success() && said(&output).contains(advice), "{}", said(&output));
    }
}
