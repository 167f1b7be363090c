//! Single wrong bits of flags and types of inodes: no reader delivers other contents without a
//! word, no repair costs contents, and a rescue delivers what is proved, and tells it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_check::salvage::{Contents, Found, Loss, Receiver};
use cairn_ext4::{Ext4, MountOptions, SuperblockChoice};
use cairn_testkit::crash::read_image;
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_volume};

use crate::file_types::{BITS, PATHS, PLAIN, sound};
use crate::repaired::{complaint, injected, place_of, repaired, snapshot};
use crate::support::{check, flags};

/// What a mount shows, unless it refuses something.
fn mounted(device: &MemoryDevice) -> Option<Snapshot> {
    let options = MountOptions::parse("ro").unwrap();
    let volume = Ext4::open(Arc::new(device.fork()), Threads::new(), &options).ok()?;
    digest_volume(&*volume, SnapshotOptions::default()).ok()
}

/// What a rescue finds: types and contents; and what it tells of each path.
#[derive(Default)]
pub struct Rescued {
    pub files: BTreeMap<Vec<u8>, (u32, Vec<u8>)>,
    pub told: Vec<Vec<u8>>,
}

impl Receiver for Rescued {
    fn found(&mut self, file: &Found, contents: &mut dyn Contents) -> bool {
        let mut bytes = Vec::new();
        let faults = contents.copy(&mut |at, part| {
            bytes.resize(at as usize, 0);
            bytes.extend_from_slice(part);
            true
        });
        if !faults.is_empty() {
            self.told.push(file.path.clone());
        }
        self.files.insert(file.path.clone(), (file.mode >> 12, bytes));
        true
    }

    fn linked(&mut self, _: &[u8], _: u64, _: &[u8]) -> bool {
        true
    }

    fn lost(&mut self, loss: Loss) -> bool {
        self.told.push(loss.path);
        true
    }

    fn progress(&mut self, _: &'static str, _: u64, _: u64) -> bool {
        true
    }
}

pub fn rescued(device: &MemoryDevice) -> Rescued {
    let runtime: Arc<dyn Runtime> = Threads::new();
    let choice = SuperblockChoice::Best;
    let mut found = Rescued::default();
    let opened = cairn_ext4::rescue::open(Arc::new(device.fork()), choice, &runtime);
    opened.unwrap().tree(&mut found);
    found
}

/// A sound volume, as all readers see it.
struct Sound {
    device: MemoryDevice,
    tree: Snapshot,
    files: BTreeMap<Vec<u8>, (u32, Vec<u8>)>,
}

impl Sound {
    fn of(device: MemoryDevice) -> Self {
        let files = rescued(&device).files;
        Self { tree: snapshot(device.fork()), files, device }
    }

    /// What is wrong with what readers make of a damaged copy.
    fn judge_readers(&self, hurt: &MemoryDevice, path: &str) -> Result<(), String> {
        let report = check(Arc::new(hurt.fork()));
        match mounted(hurt) {
            Some(tree) if tree != self.tree => {
                return Err(format!("a reader shows {}", self.tree.diff(&tree)));
            }
            None if !flags(&report) => return Err("refused, and the check finds nothing".into()),
            _ => {}
        }
        let Rescued { files, told } = rescued(hurt);
        let is_told = told.iter().any(|told| path.as_bytes().ends_with(told));
        if files == self.files || (is_told && files.len() == self.files.len()) {
            return Ok(());
        }
        let is_other = |path: &&Vec<u8>| self.files.get(*path) != files.get(*path);
        let other: Vec<_> = self
            .files
            .keys()
            .filter(is_other)
            .map(|path| path.escape_ascii().to_string())
            .collect();
        Err(format!("a rescue delivers other {other:?}, of {} told", told.len()))
    }

    /// What is wrong with the repairs of a damaged copy.
    fn judge_repairs(&self, hurt: &MemoryDevice, at: &Path) -> Result<(), String> {
        if !flags(&check(Arc::new(hurt.fork()))) {
            return Ok(());
        }
        let mut last = None;
        for scope in [Scope::Accounting, Scope::All] {
            let Some((plan, after)) = repaired(hurt, scope) else {
                if scope == Scope::All {
                    return Err("refused".into());
                }
                continue;
            };
            if plan.steps.losing().count() > 0 {
                return Err(format!("{scope:?} loses: {:?}", plan.steps.kept()));
            }
            let tree = snapshot(after.fork());
            if plan.after.count() == 0 && tree != self.tree {
                return Err(format!("{scope:?}: {}", self.tree.diff(&tree)));
            }
            last = Some(after);
        }
        let said = last.and_then(|after| complaint(&after, at));
        said.map_or(Ok(()), |said| Err(format!("e2fsck -fn: {said}")))
    }
}

/// Paths of a sweep over all flags: contents of each form, names, targets.
const FLAGGED: &[&str] = &["/dir", "/dir/file", "/dir/small", "/dir/fast"];

fn sweep_flags(args: &[&str], is_sealed: bool) {
    let dir = tempfile::tempdir().unwrap();
    let image = sound(dir.path(), args);
    let copy = dir.path().join("copy");
    let sound = Sound::of(read_image(&image).unwrap());
    let mut wrong = Vec::new();
    for path in FLAGGED {
        let place = place_of(&image, path) + 32;
        let stored = sound.device.read_at(place, 4).unwrap();
        let stored = u32::from_le_bytes(stored[..].try_into().unwrap());
        for bit in 0..32 {
            let other = stored ^ 1 << bit;
            let hurt = if is_sealed {
                injected(&image, &copy, &format!("sif {path} flags {other:#x}"))
            } else {
                let hurt = sound.device.fork();
                hurt.write_at(place, other.to_le_bytes().to_vec()).unwrap();
                hurt
            };
            let judged = sound.judge_readers(&hurt, path);
            if let Err(why) = judged.and_then(|()| sound.judge_repairs(&hurt, &copy)) {
                wrong.push(format!("{path} {stored:#x} with {:#x} changed: {why}", 1_u32 << bit));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_wrong_flag_costs_no_contents_with_block_maps() {
    sweep_flags(&["-t", "ext2", "-b", "1024"], false);
}

#[test]
fn a_wrong_flag_costs_no_contents_with_extents() {
    sweep_flags(&["-t", "ext4", "-b", "1024", "-O", PLAIN], false);
}

#[test]
fn a_wrong_flag_with_a_right_checksum_costs_no_contents() {
    sweep_flags(&["-t", "ext4", "-b", "1024", "-O", "^has_journal,^resize_inode"], true);
}

#[test]
fn a_wrong_flag_costs_no_contents_beside_those_in_inodes() {
    let features = format!("inline_data,ea_inode,{PLAIN}");
    sweep_flags(&["-t", "ext4", "-b", "1024", "-I", "256", "-O", &features], false);
}

fn sweep_types(args: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let image = sound(dir.path(), args);
    let sound = Sound::of(read_image(&image).unwrap());
    let mut wrong = Vec::new();
    for path in PATHS {
        let place = place_of(&image, path);
        for (at, bit) in BITS {
            let hurt = sound.device.fork();
            let byte = hurt.read_at(place + at, 1).unwrap()[0];
            hurt.write_at(place + at, vec![byte ^ bit]).unwrap();
            if let Err(why) = sound.judge_readers(&hurt, path) {
                wrong.push(format!("{path} {at} {bit:#x}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn readers_refuse_a_type_or_form_that_contents_or_names_contradict() {
    sweep_types(&["-t", "ext2", "-b", "1024"]);
    sweep_types(&["-t", "ext4", "-b", "1024", "-O", PLAIN]);
    let inline = format!("inline_data,{PLAIN}");
    sweep_types(&["-t", "ext4", "-b", "1024", "-I", "256", "-O", &inline]);
}

/// A rescue copies names from a block with a wrong checksum, and says that they may be wrong. A
/// reader shows none of them.
#[test]
fn a_damaged_name_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["-t", "ext4", "-b", "1024", "-O", "^has_journal,^resize_inode"];
    let image = sound(dir.path(), &args);
    let hurt = read_image(&image).unwrap();
    let blocks = cairn_testkit::judge::debugfs(&image, "blocks /dir");
    let block: u64 = blocks.split_whitespace().next().unwrap().parse().unwrap();
    let bytes = hurt.read_at(block * 1024, 1024).unwrap();
    let name = bytes.windows(5).position(|bytes| bytes == b"small").unwrap() as u64;
    hurt.write_at(block * 1024 + name, b"smell".to_vec()).unwrap();
    assert!(mounted(&hurt).is_none());
    let found = rescued(&hurt);
    assert!(found.files.contains_key(b"dir/smell".as_slice()));
    assert!(found.told.iter().any(|path| path == b"dir"), "{:?}", found.told);
}

/// Some kernels left words behind the number of a device. `i_blocks` says that they lead nowhere.
#[test]
fn words_behind_the_number_of_a_device_are_no_map() {
    let dir = tempfile::tempdir().unwrap();
    let (image, hurt) = (sound(dir.path(), &["-t", "ext4", "-b", "1024"]), dir.path().join("hurt"));
    for request in ["mknod chr c 1 3", "mknod pipe p"] {
        injected(&image, &hurt, request);
        std::fs::rename(&hurt, &image).unwrap();
    }
    let before = Sound::of(read_image(&image).unwrap());
    let wrong = [
        "sif /chr block[11] 0x40",
        "sif /chr block[2] 0x5dc",
        "sif /pipe block[5] 0x5dc",
        "sif /pipe block[5] 0xffffff0",
    ];
    for request in wrong {
        let device = injected(&image, &hurt, request);
        assert_eq!(complaint(&device, &hurt), None, "{request}");
        let report = check(Arc::new(device.fork())).unwrap();
        assert_eq!(report.count(), 0, "{request}");
        assert!(mounted(&device).unwrap() == before.tree, "{request}");
        assert!(rescued(&device).told.is_empty(), "{request}");
    }
}

/// A file whose size is beyond the contents in its inode ends with a hole: `mke2fs -d` makes it of
/// a file that begins with a hole, and kernels before 5.19 made it when they extended a file.
#[test]
fn a_size_beyond_what_an_inode_holds_is_a_hole() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["-t", "ext4", "-b", "1024", "-I", "256", "-O", "inline_data"];
    let (image, hurt) = (sound(dir.path(), &args), dir.path().join("hurt"));
    let small = b"dir/small".as_slice();
    let before = rescued(&read_image(&image).unwrap()).files;
    let device = injected(&image, &hurt, "sif /dir/small size 5000");
    assert_eq!(complaint(&device, &hurt), None);
    assert_eq!(check(Arc::new(device.fork())).unwrap().count(), 0);
    let rescued = rescued(&device);
    assert!(rescued.told.is_empty(), "{:?}", rescued.told);
    assert!(rescued.files[small] == before[small]);
    assert!(mounted(&device).is_some());

    // No map of the file could have such a size, and a symbolic link has no hole.
    for request in ["sif /dir/small size 20000000000000", "sif /dir/slow size 900"] {
        let device = injected(&image, &hurt, request);
        assert!(complaint(&device, &hurt).is_some(), "{request}");
        assert!(flags(&check(Arc::new(device.fork()))), "{request}");
    }
}

/// The first block of a file may look like that of a directory, also with two names.
#[test]
fn a_file_that_looks_like_a_directory_is_read() {
    let dir = tempfile::tempdir().unwrap();
    for kind in ["ext2", "ext4"] {
        let args = ["-t", kind, "-b", "1024", "-O", "^metadata_csum"];
        let (image, hurt) = (sound(dir.path(), &args), dir.path().join("hurt"));
        injected(&image, &hurt, "ln /dir/file /again");
        std::fs::rename(&hurt, &image).unwrap();
        injected(&image, &hurt, "sif /dir/file links_count 2");
        injected(&hurt, &image, "sif /dir/file size 20480");
        let stat = cairn_testkit::judge::debugfs(&image, "stat /dir/file");
        let ino: u32 = stat.split_whitespace().nth(1).unwrap().parse().unwrap();
        let blocks = cairn_testkit::judge::debugfs(&image, "blocks /dir/file");
        let block: u64 = blocks.split_whitespace().next().unwrap().parse().unwrap();
        let device = read_image(&image).unwrap();
        let mut bytes = ino.to_le_bytes().to_vec();
        bytes.extend(*b"\x0c\0\x01\x02.\0\0\0\x02\0\0\0\xf4\x03\x02\x02..\0\0");
        device.write_at(block * 1024, bytes).unwrap();
        assert_eq!(complaint(&device, &hurt), None);
        assert_eq!(check(Arc::new(device.fork())).unwrap().count(), 0);
        assert!(mounted(&device).is_some());
        assert!(rescued(&device).told.is_empty());
        std::fs::remove_dir_all(dir.path().join("tree")).unwrap();
    }
}
