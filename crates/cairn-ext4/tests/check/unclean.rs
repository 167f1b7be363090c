//! Volumes as a power cut leaves them: copies of the image while the kernel has it mounted. What
//! waits in the journal, and what waits for its deletion, is no damage.

use std::fs::File;
use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{KernelMount, e2fsck_preen, mke2fs, run};

use crate::checked::{check_image, lines};
use crate::damaged_log::mounted;
use crate::repaired::{complaint, injected, place_of, repaired, snapshot};
use crate::support::edit_superblock;

const FORMATS: &[&[&str]] = &[
    &["-t", "ext3"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-O", "^metadata_csum,^metadata_csum_seed"],
    &["-t", "ext4", "-O", "orphan_file"],
];

/// Offsets in a record of an inode, and in the superblock.
const I_SIZE: u64 = 4;
const I_BLOCK: u64 = 40;
const S_JNL_BACKUP_TYPE: usize = 253;
const S_JNL_BLOCKS: usize = 268;

/// A copy of the image of a mounted volume, with all that was done.
fn cut(mount: &KernelMount, image: &Path, to: &Path) {
    rustix::fs::syncfs(File::open(mount.path()).unwrap()).unwrap();
    std::fs::copy(image, to).unwrap();
}

#[test]
fn removed_directories_and_files_that_are_open_are_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (image, copy) = (dir.path().join("image"), dir.path().join("copy"));
    for args in FORMATS {
        mke2fs(&image, 32 << 20, args);
        let Ok(mount) = KernelMount::try_new(&image, "") else {
            // Kernels before 5.15 know no orphan file.
            assert!(args.contains(&"orphan_file"), "{args:?}");
            continue;
        };
        let root = mount.path();
        let kept = root.join("kept");
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), [7; 30_000]).unwrap();
        let removed: Vec<File> = ["first", "kept/second", "kept/third"]
            .iter()
            .map(|name| {
                std::fs::create_dir(root.join(name)).unwrap();
                let open = File::open(root.join(name)).unwrap();
                std::fs::remove_dir(root.join(name)).unwrap();
                open
            })
            .chain([0, 1, 5000, 200_000].iter().map(|size| {
                let path = kept.join(format!("removed-{size}"));
                std::fs::write(&path, vec![1; *size]).unwrap();
                let open = File::open(&path).unwrap();
                std::fs::remove_file(&path).unwrap();
                open
            }))
            .collect();
        cut(&mount, &image, &copy);
        drop(removed);
        mount.unmount();

        assert_eq!(lines(&check_image(&copy)), "", "{args:?}");
        let device = read_image(&copy).unwrap();
        let (plan, after) = repaired(&device, Scope::Accounting).expect("it is repaired");
        assert_eq!(plan.steps.losing().count(), 0, "{args:?}");
        assert_eq!(complaint(&after, &image), None, "{args:?}");
        let tree = snapshot(after);
        tree.assert_same(&mounted(&device).unwrap());
        // As e2fsck ends them.
        let _ = e2fsck_preen(&copy);
        tree.assert_same(&snapshot(read_image(&copy).unwrap()));
    }
}

/// `tune2fs -j` gives a mounted volume a journal with a name. If the record of its inode is still
/// only in that journal, the copy of its map in the superblock leads to it.
#[test]
fn a_journal_with_a_name_is_a_file_of_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let (image, copy) = (dir.path().join("image"), dir.path().join("copy"));
    let hurt = dir.path().join("hurt");
    mke2fs(&image, 32 << 20, &["-t", "ext2", "-b", "1024"]);
    let mount = KernelMount::new(&image, "");
    std::fs::write(mount.path().join("before"), [1; 5000]).unwrap();
    run("tune2fs", ["-j", mount.device().to_str().unwrap()]);
    let name = mount.path().join(".journal");
    assert!(name.exists(), "tune2fs makes a visible journal on a mounted volume");
    mount.unmount();
    assert_eq!(complaint(&read_image(&image).unwrap(), &copy), None);
    assert_eq!(lines(&check_image(&image)), "");

    let mount = KernelMount::new(&image, "");
    std::fs::write(mount.path().join("after"), [2; 5000]).unwrap();
    cut(&mount, &image, &copy);
    mount.unmount();
    assert_eq!(lines(&check_image(&copy)), "");
    let sound = read_image(&copy).unwrap();
    let before = mounted(&sound).unwrap();

    // As e2fsck copies the map when it looks at such a volume.
    let record = place_of(&copy, "/.journal");
    let map = sound.read_at(record + I_BLOCK, 60).unwrap();
    let size = sound.read_at(record + I_SIZE, 4).unwrap();
    let device = injected(&copy, &hurt, "clri /.journal");
    edit_superblock(&device, |superblock| {
        superblock[S_JNL_BLOCKS..][..60].copy_from_slice(&map);
        superblock[S_JNL_BLOCKS + 64..][..4].copy_from_slice(&size);
        superblock[S_JNL_BACKUP_TYPE] = 1;
    });
    let (plan, after) = repaired(&device, Scope::Accounting).expect("the journal is found");
    assert_eq!(plan.steps.losing().count(), 0);
    assert_eq!(complaint(&after, &hurt), None);
    let log = b".journal".as_slice();
    before.without(log).assert_same(&snapshot(after).without(log));
    let names = run("debugfs", ["-R", "ls /", hurt.to_str().unwrap()]);
    assert!(names.contains(".journal"), "{names}");
    assert_eq!(lines(&check_image(&hurt)), "");
}
