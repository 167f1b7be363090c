//! A mount as the upper layer of overlayfs, as containers use it: names hidden by whiteouts,
//! directories replaced, files copied up. The results, merged and in the upper layer, are compared
//! with the kernel's ext4 as the upper layer.

use std::path::Path;

use cairn_testkit::judge;

use crate::fixture::Volume;

/// Changes as by a container, then the trees: merged, merged by a second mount, and the upper layer
/// itself.
const USE: &str = r#"
set -eu
mkdir -p $PLACE/lower/dir/deep $PLACE/lower/gone/deep $PLACE/merged $UPPER/u $UPPER/w
cd $PLACE/lower
echo one > dir/one; echo two > dir/two; echo deep > dir/deep/file; echo x > gone/deep/x; echo file > file; ln -s file link; chmod 4755 file
chown 5:6 dir/two; chmod 6755 dir/two
cd /
merge() { mount -t overlay overlay -o lowerdir=$PLACE/lower,upperdir=$UPPER/u,workdir=$UPPER/w $PLACE/merged; }
tree() { (cd $1; find . -mindepth 1 -exec stat -c '%n %A %h %t:%T' {} + | sed -E 's/( d[^ ]*) [0-9]+ /\1 /' | sort; find . -type f -exec md5sum {} + | sort -k2;
    getfattr -R -h -d -m 'trusted.overlay.(opaque|whiteout|redirect)' . 2>/dev/null | sort); }
merge
cd $PLACE/merged
rm dir/one
mv dir/two dir/moved
mv file dir/file
rm -r gone
mkdir gone; echo new > gone/new
rm link; mkfifo link
mv dir/moved dir/deep/file
mv gone gone2 && mkdir gone
cp -a dir copy
echo more >> copy/file
rm -r copy/deep
touch a b c; mv a b; ln c d; rm c; mv d a
python3 -c "import os; fd = os.open('.', os.O_TMPFILE | os.O_RDWR); os.write(fd, b'unnamed')"
cd /
tree $PLACE/merged
umount $PLACE/merged
merge
echo again; tree $PLACE/merged
umount $PLACE/merged
echo upper; tree $UPPER/u
rm -r $PLACE/lower
"#;

/// The transcript of [`USE`] with this upper layer.
fn transcript(upper: &Path) -> String {
    let outside = cairn_testkit::place::Place::new();
    let (place, upper) = (outside.path().to_str().unwrap(), upper.to_str().unwrap());
    let given = [("PLACE", place), ("UPPER", upper), ("KEEP", upper)];
    let given = given.map(|(name, value)| format!("{name}={value}"));
    let script = [judge::FORGET_MOUNTS, USE].concat();
    let way = ["unshare", "-m", "sh", "-c", &script];
    judge::run("env", given.iter().map(String::as_str).chain(way))
}

fn judge_upper_layer(mut volume: Volume) {
    let expected = judge::on_the_kernel_s_ext4(64 << 20, &[], transcript);
    assert!(expected.contains("c--------- 1 0:0"), "a whiteout is in the upper layer: {expected}");
    let found = transcript(&volume.root());
    assert_eq!(found, expected, "ours, the kernel's");
    volume.unmount();
}

#[test]
fn ext4_is_an_upper_layer() {
    judge_upper_layer(Volume::mounted(64 << 20, ""));
}

#[test]
fn f2fs_is_an_upper_layer() {
    judge_upper_layer(Volume::f2fs(64 << 20, ""));
}
