//! Makes the base images of the corpus anew: `cargo run -p cairn-fuzz --example make_bases`.
//!
//! It needs root, loop devices, mke2fs and mkfs.f2fs. Every corpus entry refers to the bases as
//! they are, so this is for a new base only: name those that are to be made.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_fuzz::image;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{KernelMount, f2fs_in_memory, mke2fs, run};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, XattrMode};

const MIB: u64 = 1 << 20;

/// A name, the size, arguments of mke2fs, and whether the image is copied from a live mount.
type Ext4 = (&'static str, u64, &'static [&'static str], bool);

const EXT4: [Ext4; 7] = [
    ("ext4", 4, &["-t", "ext4", "-b", "1024", "-N", "256", "-O", "64bit"], false),
    (
        "ext4-plain",
        4,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-N",
            "256",
            "-O",
            "^64bit,^metadata_csum,^metadata_csum_seed,uninit_bg,inline_data",
        ],
        false,
    ),
    (
        "ext4-large",
        32,
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-N",
            "256",
            "-O",
            "bigalloc,metadata_csum_seed,orphan_file",
            "-C",
            "16384",
        ],
        false,
    ),
    ("ext2", 2, &["-t", "ext2", "-b", "1024", "-N", "256"], false),
    ("ext4-unclean", 4, &["-t", "ext4", "-b", "1024", "-N", "256", "-O", "64bit"], true),
    ("ext3-unclean", 4, &["-t", "ext3", "-b", "1024", "-N", "256"], true),
    ("ext4-fast", 4, &["-t", "ext4", "-b", "1024", "-N", "256", "-O", "fast_commit"], true),
];

/// A name, arguments of mkfs.f2fs, and whether the volume is cut off instead of unmounted.
const F2FS: [(&str, &[&str], bool); 3] = [
    ("f2fs", &[], false),
    ("f2fs-cut", &[], true),
    (
        "f2fs-extra",
        &["-O", "extra_attr,inode_checksum,sb_checksum,inode_crtime,flexible_inline_xattr"],
        true,
    ),
];

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let is_asked = |name: &str| asked.iter().any(|known| known == name);
    for (name, size, arguments, live) in EXT4.into_iter().filter(|(name, ..)| is_asked(name)) {
        keep(name, &ext4(size * MIB, arguments, live));
    }
    for (name, arguments, cut) in F2FS.into_iter().filter(|(name, ..)| is_asked(name)) {
        keep(name, &f2fs(arguments, cut));
    }
}

fn keep(name: &str, device: &MemoryDevice) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/bases");
    let packed = image::pack(device).unwrap();
    println!("{name}: {} bytes", packed.len());
    fs::write(folder.join(format!("{name}.img.gz")), packed).unwrap();
}

/// A volume with what the kernel writes of each kind.
fn ext4(size: u64, arguments: &[&str], live: bool) -> MemoryDevice {
    let file = tempfile::NamedTempFile::new().unwrap();
    mke2fs(file.path(), size, arguments);
    let mount = KernelMount::new(file.path(), "");
    plant(mount.path());
    if !live {
        mount.unmount();
        return read_image(file.path()).unwrap();
    }
    // What is in the log and nowhere else: the kernel writes it home later.
    run("sync", std::iter::empty::<&Path>());
    fs::remove_file(mount.path().join("tree/a name of some length 7")).unwrap();
    fs::remove_dir_all(mount.path().join("gone")).unwrap();
    fs::create_dir(mount.path().join("late")).unwrap();
    run("sync", std::iter::empty::<&Path>());
    for number in 0..4 {
        let mut late = File::create(mount.path().join(format!("late/{number}"))).unwrap();
        late.write_all(&[number; 3000]).unwrap();
        late.sync_all().unwrap();
    }
    fs::rename(mount.path().join("late/1"), mount.path().join("late/moved")).unwrap();
    File::open(mount.path().join("late/moved")).unwrap().sync_all().unwrap();
    let device = read_image(file.path()).unwrap();
    mount.unmount();
    device
}

fn plant(root: &Path) {
    let path = |name: &str| root.join(name);
    for name in ["tree", "tree/below", "gone", "gone/inner"] {
        fs::create_dir(path(name)).unwrap();
    }
    for number in 0..30 {
        fs::write(path(&format!("tree/a name of some length {number}")), b"x").unwrap();
    }
    for number in 0..3 {
        fs::write(path(&format!("gone/inner/{number}")), [number; 2000]).unwrap();
    }
    fs::write(path("file"), vec![7; 20_000]).unwrap();
    fs::hard_link(path("file"), path("tree/second")).unwrap();
    // Pieces with holes between them, whose map has a block of its own.
    let sparse = File::create(path("sparse")).unwrap();
    for piece in 0..20_u64 {
        use std::os::unix::fs::FileExt;
        sparse.write_all_at(b"piece", piece * 8192).unwrap();
        sparse.sync_all().unwrap();
    }
    symlink("file", path("fast")).unwrap();
    symlink("x".repeat(100), path("slow")).unwrap();
    run("mkfifo", [path("fifo").as_path()]);
    let attribute = |name: &str, key: &str, value: &[u8]| {
        xattr::set(path(name), key, value).unwrap();
    };
    attribute("file", "user.small", b"value");
    attribute("file", "user.large", &[9; 600]);
    attribute("tree", "user.small", b"value");
}

/// A volume that Cairn has written, with fsynced files after the checkpoint.
fn f2fs(arguments: &[&str], cut: bool) -> MemoryDevice {
    let device = Arc::new(f2fs_in_memory(56 * MIB, arguments));
    let options = MountOptions::parse("").unwrap();
    let fs = F2fs::open(device.clone(), Simulated::new(7), &options).unwrap();
    let make = |parent, name: &str, new| {
        fs.create(parent, name.as_bytes(), new, 0o755, &Caller::ROOT).unwrap().ino
    };
    let dir = make(fs.root(), "dir", NewInode::Directory);
    for number in 0..70 {
        make(dir, &format!("a rather long name {number}"), NewInode::Regular);
    }
    let small = make(fs.root(), "small", NewInode::Regular);
    fs.write(small, 0, &[5; 900], IoFlags::empty()).unwrap();
    let large = make(fs.root(), "large", NewInode::Regular);
    for piece in 0..6_u64 {
        fs.write(large, piece * 1_700_000, &[6; 9000], IoFlags::empty()).unwrap();
    }
    // Its second indirect node.
    fs.write(large, 9_000_000_000, &[6; 100], IoFlags::empty()).unwrap();
    fs.setxattr(large, b"user.small", b"value", XattrMode::Set).unwrap();
    fs.setxattr(small, b"user.large", &[9; 3000], XattrMode::Set).unwrap();
    make(fs.root(), "link", NewInode::Symlink(b"dir/target"));
    make(fs.root(), "fifo", NewInode::Fifo);
    fs.sync().unwrap();
    if cut {
        for number in 0..6_u8 {
            let late = make(fs.root(), &format!("late {number}"), NewInode::Regular);
            fs.write(late, u64::from(number) << 22, &[number; 6000], IoFlags::empty()).unwrap();
            fs.setxattr(late, b"user.late", &[number; 500], XattrMode::Set).unwrap();
            fs.fsync(late, 0, false).unwrap();
        }
        fs.rename(fs.root(), b"late 2", dir, b"moved", cairn_vfs::RenameMode::Replace).unwrap();
        fs.write(small, 100, &[1; 5000], IoFlags::empty()).unwrap();
        fs.fsync(small, 0, false).unwrap();
        fs.shutdown(false).unwrap();
    } else {
        fs.unmount().unwrap();
    }
    drop(fs);
    device.fork()
}
