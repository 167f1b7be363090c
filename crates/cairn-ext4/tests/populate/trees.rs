//! Seeded trees of all kinds of nodes.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use cairn_ext4::mkfs::populate::Source;
use cairn_testkit::judge::{KernelMount, mke2fs, run};
use cairn_testkit::tree::{
    PathTarget, Snapshot, SnapshotOptions, TreeSpec, build, digest_path, plan,
};

use rustix::fs::{XattrFlags, setxattr};

use crate::host::HostTree;
use crate::support::{fill, judged, options};

/// Builds a tree on the kernel's ext4, which stores every attribute. Returns the scanned tree while
/// `work` runs.
fn on_ext4<T>(
    steps: impl FnOnce(&Path),
    work: impl FnOnce(Arc<dyn Source>, &Snapshot, &Path) -> T,
) -> T {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("source");
    mke2fs(&image, 256 << 20, &["-t", "ext4", "-b", "4096", "-N", "120000"]);
    let mount = KernelMount::new(&image, "");
    steps(mount.path());
    let expected =
        digest_path(mount.path(), SnapshotOptions::default()).expect("a tree that can be read");
    let tree = Arc::new(HostTree::scan(mount.path()).unwrap());
    let result = work(tree, &expected, directory.path());
    mount.unmount();
    result
}

const FORMS: [(&str, u32); 8] = [
    ("", 4096),
    ("", 1024),
    ("^metadata_csum", 1024),
    ("^64bit,^flex_bg,^has_journal", 2048),
    ("^metadata_csum,uninit_bg", 1024),
    ("meta_bg", 1024),
    ("inline_data", 4096),
    ("^dir_index,^resize_inode,sparse_super2", 1024),
];

#[test]
fn seeded_trees_are_as_the_kernel_reads_the_source() {
    let seeds = if std::env::var_os("CAIRN_DEEP").is_some() { 40 } else { 4 };
    for seed in 0..seeds {
        println!("seed {seed}");
        let spec = TreeSpec::small(seed);
        on_ext4(
            |root| build(&PathTarget::new(root), &plan(&spec)),
            |tree, expected, place| {
                for (features, block_size) in FORMS {
                    println!("{features} with blocks of {block_size}");
                    let image = place.join("image");
                    fill(tree.clone(), &options(features, block_size), 0, 2, &image);
                    expected.assert_same(&judged(&image));
                    let again = place.join("again");
                    fill(tree.clone(), &options(features, block_size), 0, 4, &again);
                    let same = std::fs::read(&image).unwrap() == std::fs::read(&again).unwrap();
                    assert!(same, "the number of threads changes the bytes");
                    std::fs::remove_file(&image).unwrap();
                    std::fs::remove_file(&again).unwrap();
                }
            },
        );
    }
}

#[test]
fn access_lists_capabilities_and_sockets_arrive() {
    let make = |root: &Path| {
        let (file, directory) = (root.join("file"), root.join("directory"));
        std::fs::write(&file, b"contents").unwrap();
        std::fs::create_dir(&directory).unwrap();
        drop(UnixListener::bind(root.join("socket")).unwrap());
        run("setfacl", [Path::new("-m"), Path::new("u:1000:rwx,g:70000:r"), &file]);
        run("setfacl", [Path::new("-m"), Path::new("d:u:5:rx,u:6:x"), &directory]);
        // cap_net_raw=ep
        let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let flags = XattrFlags::empty();
        setxattr(&file, "security.capability", &capability, flags).unwrap();
        setxattr(&file, "trusted.overlay.opaque", b"y", flags).unwrap();
    };
    on_ext4(make, |tree, expected, place| {
        let facts = expected.get(b"file").unwrap();
        assert!(facts.contains("posix_acl_access"), "{facts}");
        for (features, block_size) in FORMS {
            let image = place.join("image");
            fill(tree.clone(), &options(features, block_size), 0, 2, &image);
            expected.assert_same(&judged(&image));
            std::fs::remove_file(&image).unwrap();
        }
    });
}
