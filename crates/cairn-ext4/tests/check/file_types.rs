//! Wrong file types in modes: a repair that may lose nothing loses nothing.

use cairn_block::BlockDeviceExt;
use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{KernelMount, mke2fs};

use crate::repaired::{complaint, injected, repaired, snapshot};

const PATHS: &[&str] = &["/dir", "/dir/file", "/dir/small", "/dir/empty", "/dir/fast", "/dir/slow"];
const TYPES: &[u16] = &[0, 1, 2, 4, 6, 8, 10, 12, 14];
const PLAIN: &str = "^metadata_csum,^metadata_csum_seed";

/// Repairs each path with each wrong type.
fn sweep(args: &[&str], proves: bool) {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    mke2fs(&sound, 4 << 20, args);
    let mount = KernelMount::new(&sound, "");
    let at = mount.path().join("dir");
    std::fs::create_dir(&at).unwrap();
    let bytes: Vec<u8> = (0..10_000_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(at.join("file"), &bytes).unwrap();
    std::fs::write(at.join("small"), &bytes[..100]).unwrap();
    std::fs::write(at.join("empty"), "").unwrap();
    std::os::unix::fs::symlink("some/target", at.join("fast")).unwrap();
    std::os::unix::fs::symlink("long/".repeat(30), at.join("slow")).unwrap();
    mount.unmount();
    let before = snapshot(read_image(&sound).unwrap());
    for path in PATHS {
        for kind in TYPES {
            let request = format!("sif {path} mode 0{:o}", kind << 12 | 0o755);
            let device = injected(&sound, &hurt, &request);
            let lines = |tree: &cairn_testkit::tree::Snapshot| {
                let paths = ["dir", "dir/file", "dir/small", "dir/fast", "dir/slow"];
                paths.map(|path| {
                    let line = tree.get(path.as_bytes()).unwrap_or("gone").to_owned();
                    (path, line)
                })
            };
            let is_bare = *path == "/dir/empty" && !proves;
            if let Some((plan, after)) = repaired(&device, Scope::Accounting) {
                assert_eq!(plan.steps.losing().count(), 0, "{request}");
                let now = snapshot(after.fork());
                for ((path, was), (_, is)) in lines(&before).into_iter().zip(lines(&now)) {
                    // The permissions are those of the request.
                    let rest = |line: &str| without_mode(line);
                    assert_eq!(rest(&was), rest(&is), "{request}: {path}");
                }
                assert_eq!(complaint(&after, &hurt), None, "{request}");
            } else {
                assert!(!proves, "{request}: refused");
            }
            if !is_bare {
                let (_, after) = repaired(&device, Scope::All).expect(&request);
                assert_eq!(complaint(&after, &hurt), None, "{request}");
            }
        }
    }
}
