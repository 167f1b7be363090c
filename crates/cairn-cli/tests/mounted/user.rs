//! A mount by an ordinary user, through fusermount3.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use cairn_testkit::{judge, uring};

use crate::fixture::{CAIRN, RING, Volume, transports};

/// `nobody`, everywhere.
const USER: u32 = 65534;

/// Runs in its own mount namespace, in which all users can open `/dev/fuse`, as on most machines.
/// Arguments: the program, the image, the mount point, a directory, options.
const SCRIPT: &str = r#"
set -e
mount -t tmpfs -o mode=755 device "$3"
mknod "$3/fuse" c 10 229
chmod 666 "$3/fuse"
mount --bind "$3/fuse" /dev/fuse
as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
as_user "$0" mount -o "$4" "$1" "$2"
as_user sh -c 'echo hello > "$0"; cat "$0"' "$2/file"
# The volume has an end for this user, too, and what did fit is there after the next mount.
if as_user dd if=/dev/zero of="$2/zeros" bs=64k 2>"$3/said"; then echo "dd did not end"; fi
grep -q "No space left" "$3/said" || cat "$3/said"
if as_user sh -c 'for n in $(seq 2000); do echo "line $n" >> "$0" || exit 1; done' "$2/lines" 2>/dev/null; then
    test "$(as_user sh -c 'wc -l < "$0"' "$2/lines")" = 2000 || echo "lines were lost"
fi
zeros=$(as_user stat -c %s "$2/zeros")
test "$zeros" -gt 40000000 || echo "only $zeros bytes fit"
as_user cat "$2/zeros" | tr -d '\0' | head -c 100
as_user "$0" umount "$2"
as_user "$0" mount -o "$4" "$1" "$2"
test "$(as_user cat "$2/zeros" | wc -c)" = "$zeros" || echo "zeros were lost"
# Without allow_other not even root gets in.
if cat "$2/file" 2>/dev/null; then echo "root got in"; fi
grep -F " $2 " /proc/self/mountinfo | grep -F fuse.cairn | grep -qF '/my,\040disk\134,ro.img ' || { echo "no such mount:"; cat /proc/self/mountinfo; }
as_user "$0" umount "$2"
if grep " $2 " /proc/self/mountinfo; then echo "still mounted"; fi
# The user can also end a mount that is in use: its connection is aborted, or its daemon ends.
as_user "$0" mount -o "$4" "$1" "$2"
mkfifo "$3/opened"; chmod 666 "$3/opened"
# Not as_user: a shell between would be killed in the place of the program that holds the file.
setpriv --reuid=65534 --regid=65534 --clear-groups -- \
    sh -c 'exec 3<"$0"; echo > "$1"; exec sleep 60' "$2/file" "$3/opened" & holder=$!
read -r line < "$3/opened"
timeout 30 setpriv --reuid=65534 --regid=65534 --clear-groups -- "$0" umount --force "$2" || echo "not ended by force"
# The shell may say that it was terminated.
{ kill $holder; wait $holder; } 2>/dev/null || true
if grep " $2 " /proc/self/mountinfo; then echo "mounted after force"; fi
# Without the right to write the image, the user can still read it.
chmod 444 "$1"
as_user "$0" mount -o "$4" "$1" "$2" 2>"$3/said"
grep -q "mounted read-only: you may not write the image" "$3/said" || cat "$3/said"
test "$(as_user cat "$2/file")" = hello || echo "the file cannot be read"
if as_user touch "$2/file" 2>/dev/null; then echo "the file was changed"; fi
as_user "$0" umount "$2"
# Without the right to read it, nobody can.
chmod 000 "$1"
if as_user "$0" mount -o "$4" "$1" "$2" 2>"$3/said"; then echo "mounted without a right"; fi
grep -qi "permission denied" "$3/said" || cat "$3/said"
"#;

#[test]
fn an_ordinary_user_mounts_writes_and_unmounts() {
    transports().into_iter().for_each(mounts_writes_and_unmounts);
}

fn mounts_writes_and_unmounts(transport: &str) {
    let _allowed = (transport == RING).then(uring::allow);
    let volume = Volume::make(64 << 20, &["-E", &format!("root_owner={USER}:{USER}")]);
    let helper = fs::metadata(judge::tool("fusermount3")).unwrap();
    assert!(
        helper.permissions().mode() & 0o4000 != 0,
        "fusermount3 is not set-user-id: reinstall the package fuse3"
    );
    // The user may not be able to reach where cargo builds.
    let place = tempfile::Builder::new().prefix("cairn-user-").tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (program, device) = (place.path().join("cairn"), place.path().join("device"));
    judge::copy_program(Path::new(CAIRN), &program);
    fs::create_dir(&device).unwrap();
    // A name with commas, as between options.
    let image = volume.outside("my, disk\\,ro.img");
    fs::rename(volume.image(), &image).unwrap();
    for path in [&image, &volume.root()] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let mut command = judge::command("unshare");
    command.args(["--mount", "sh", "-c", &[judge::FORGET_MOUNTS, SCRIPT].concat()]).args([
        &program,
        &image,
        &volume.root(),
        &device,
    ]);
    command.arg(transport);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said == "hello\n", "{}: {said}", output.status);
    judge::assert_clean(&image);
    assert!(judge::debugfs(&image, "cat /file").contains("hello"));
}
