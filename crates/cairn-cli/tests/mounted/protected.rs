//! The calls that immutable and append-only files allow, and the extended attributes that each user
//! sees, compared with the kernel's ext4.

use std::path::Path;

use cairn_testkit::judge;

use crate::fixture::Volume;

/// Every way to open, write, map, truncate, rename… a protected file.
const ATTEMPTS: &str = include_str!("protected/run.py");

/// Expected differences. The kernel does not know that a FUSE file is append-only.
const DIFFERENCES: [(&str, &str); 3] = [
    ("append map ra r ", "mmap is the kernel's alone: it cannot refuse"),
    (
        "append map ra ",
        "what was written through such a mapping is refused when it is written back",
    ),
    (
        "append opened before write ",
        "pages of the kernel do not say which descriptor they were written through: refused",
    ),
];

/// Names of attributes and a value, as root, as another user, as root without the capability, and
/// as root of a user namespace.
const ATTRIBUTES: &str = r#"
import os, subprocess, sys
path = sys.argv[1] + "/attributes"
open(path, "w").close()
for name in ("user.a", "trusted.b", "security.c"):
    os.setxattr(path, name, b"value")
LOOK = """
import errno, os, sys
def value(name):
    try:
        return os.getxattr(sys.argv[1], name)
    except OSError as error:
        return errno.errorcode[error.errno]
print(sorted(os.listxattr(sys.argv[1])), [value(name) for name in ("user.a", "trusted.b", "security.c")])
"""
look = ["python3", "-c", LOOK, path]
user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"]
for who in ([], user, without, ["unshare", "--user", "--map-root-user"]):
    print(subprocess.run(who + look, capture_output=True, text=True, check=True).stdout.strip())
"#;

fn run(program: &str, place: &Path) -> Vec<String> {
    let told = judge::run("python3", [Path::new("-c"), Path::new(program), place]);
    // The output does not contain the path.
    told.lines().map(|line| line.replace(place.to_str().unwrap(), "")).collect()
}

fn by_the_kernel(program: &str) -> Vec<String> {
    judge::on_the_kernel_s_ext4(64 << 20, &[], |root| run(program, root))
}

/// Immutable and append-only files are by default protected as on the kernel's ext4, from `open`
/// on.
#[test]
fn protected_files_are_as_protected_as_the_kernels() {
    let expected = by_the_kernel(ATTEMPTS);
    assert!(expected.len() > 70, "{expected:#?}");
    let volumes = ["", "private"]
        .map(|options| [Volume::mounted(64 << 20, options), Volume::f2fs(64 << 20, options)]);
    for mut volume in volumes.into_iter().flatten() {
        let found = run(ATTEMPTS, &volume.root());
        assert_eq!(expected.len(), found.len());
        for (kernel, ours) in expected.iter().zip(&found) {
            let known = DIFFERENCES.iter().find(|(attempt, _)| kernel.starts_with(attempt));
            assert_eq!(
                kernel != ours,
                known.is_some(),
                "the kernel's, ours:\n{kernel}\n{ours}\n{known:?}"
            );
        }
        volume.unmount();
    }
}

#[test]
fn names_of_trusted_attributes_are_for_administrators() {
    let expected = by_the_kernel(ATTRIBUTES);
    let shows = |line: &String| line.contains("trusted.b");
    assert_eq!(
        expected.iter().map(shows).collect::<Vec<_>>(),
        [true, false, false, false],
        "{expected:#?}"
    );
    for mut volume in [Volume::mounted(64 << 20, ""), Volume::f2fs(64 << 20, "")] {
        assert_eq!(run(ATTRIBUTES, &volume.root()), expected);
        volume.unmount();
    }
}
