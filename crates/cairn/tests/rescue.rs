//! Rescues of damaged images: whatever one byte does to a volume, every file that does not lie
//! there comes out byte for byte, and nothing panics.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cairn::runtime::Threads;
use cairn::{Copies, ImageSpec, OpenOptions, Structure};
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Stats;
use cairn_check::Fields;
use cairn_check::salvage::{Contents, Found, Loss, Receiver};
use cairn_testkit::judge;

/// What came out: a hash of each regular file, by inode number.
#[derive(Default)]
struct Files {
    hashes: HashMap<u64, u64>,
    paths: HashMap<u64, Vec<u8>>,
    losses: Vec<Loss>,
}

impl Receiver for Files {
    fn found(&mut self, found: &Found, contents: &mut dyn Contents) -> bool {
        if found.mode & 0o170_000 == 0o100_000 {
            let mut bytes = vec![0; usize::try_from(found.size).unwrap_or(0).min(1 << 24)];
            let faults = contents.copy(&mut |offset, part| {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                if let Some(place) = bytes.get_mut(offset..offset.saturating_add(part.len())) {
                    place.copy_from_slice(part);
                }
                true
            });
            let mut hasher = DefaultHasher::new();
            (found.size, bytes).hash(&mut hasher);
            if faults.is_empty() {
                self.hashes.insert(found.ino, hasher.finish());
            }
        }
        self.paths.insert(found.ino, found.path.clone());
        true
    }

    fn linked(&mut self, _: &[u8], _: u64, _: &[u8]) -> bool {
        true
    }

    fn lost(&mut self, loss: Loss) -> bool {
        self.losses.push(loss);
        true
    }

    fn progress(&mut self, _: &'static str, _: u64, _: u64) -> bool {
        true
    }
}

fn rescued(image: &Path) -> Files {
    let mut files = Files::default();
    let (_, mut volume) = cairn::rescue(&ImageSpec::whole(image), &[], Copies::default()).unwrap();
    volume.tree(&mut files);
    files
}

/// Small files, large ones, directories, a hashed directory, links.
fn source(at: &Path, seed: u64) {
    let mut state = seed;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for directory in ["a", "a/b", "many"] {
        std::fs::create_dir_all(at.join(directory)).unwrap();
    }
    for number in 0..60 {
        let directory = ["", "a", "a/b"][number % 3];
        let len = [10, 3000, 40_000][number % 3] + random() as usize % 500;
        let bytes: Vec<u8> = (0..len).map(|_| random() as u8).collect();
        std::fs::write(at.join(directory).join(format!("file{number}")), bytes).unwrap();
    }
    for number in 0..120 {
        let name = format!("many/a name that takes a lot of room in a block {number}");
        std::fs::write(at.join(name), format!("contents of {number}")).unwrap();
    }
}

fn ext4(dir: &Path) -> std::path::PathBuf {
    let (image, tree) = (dir.join("ext4.img"), dir.join("tree"));
    source(&tree, 1);
    let tree = tree.to_str().unwrap();
    judge::mke2fs(&image, 12 << 20, &["-t", "ext4", "-b", "1024", "-d", tree]);
    image
}

fn f2fs(dir: &Path) -> std::path::PathBuf {
    let (image, tree) = (dir.join("f2fs.img"), dir.join("tree"));
    source(&tree, 1);
    judge::mkfs_f2fs(&image, 64 << 20, &["-O", "extra_attr,inode_checksum"]);
    judge::sload_f2fs(&image, &tree);
    image
}

/// The structure of a block, of the undamaged image.
fn block(image: &Path, number: u64) -> Fields {
    let structure = Structure::Block(number);
    cairn::dump(&ImageSpec::whole(image), &[], Copies::default(), &structure).unwrap().1
}

/// Flips a byte, rescues, and puts the byte back.
fn with_flipped(image: &Path, at: u64, mask: u8) -> Files {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ mask], at).unwrap();
    let files = rescued(image);
    file.write_all_at(&byte, at).unwrap();
    files
}

fn random_bytes(image: &Path, block_size: u64, blocks: &[u64], count: u64) {
    let whole = rescued(image);
    assert!(whole.losses.is_empty(), "{:?}", whole.losses);
    assert!(whole.hashes.len() >= 180, "{} files", whole.hashes.len());
    let mut state = 7_u64;
    for round in 0..count {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = blocks[(state >> 33) as usize % blocks.len()];
        let at = number * block_size + (state >> 20) % block_size;
        let mask = ((state >> 13) as u8).max(1);
        let fields = block(image, number);
        let files = with_flipped(image, at, mask);
        // The inode whose record, map or contents it is.
        let mut hit = fields.number("inode");
        if let (Some(first), Some(last)) =
            (fields.number("first_inode"), fields.number("last_inode"))
        {
            let within = at % block_size / (block_size / (last - first + 1));
            hit = Some(first + within);
        }
        if let Some(cairn_check::Detail::Fields(footer)) = fields.get("footer") {
            hit = footer.number("ino");
        } else if let Some(cairn_check::Detail::Fields(owner)) = fields.get("summary") {
            // The holder of a data pointer; these files have no nodes but their inodes.
            hit = owner.number("nid");
        }
        for (ino, hash) in &whole.hashes {
            if Some(*ino) != hit {
                let place = format!("round {round}: byte {at} ^ {mask:#x}, block {number}");
                let path = String::from_utf8_lossy(&whole.paths[ino]).into_owned();
                let found = files.hashes.get(ino);
                assert!(found == Some(hash), "{place}: inode {ino}, {path}: {:?}", files.losses);
            }
        }
    }
}

#[test]
fn one_byte_of_ext4_costs_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let image = ext4(dir.path());
    // What is not free, without the journal.
    let in_use = |number: &u64| {
        let fields = block(&image, *number);
        fields.get("in_use") == Some(&true.into()) && fields.number("inode") != Some(8)
    };
    let blocks: Vec<u64> = (1..9000).filter(in_use).collect();
    random_bytes(&image, 1024, &blocks, 150);
}

#[test]
fn one_byte_of_f2fs_costs_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let image = f2fs(dir.path());
    let fields = |structure| {
        cairn::dump(&ImageSpec::whole(&image), &[], Copies::default(), &structure).unwrap().1
    };
    let main = fields(Structure::Superblock).number("main_blkaddr").unwrap();
    let in_use = |number: &u64| {
        let fields = block(&image, *number);
        let is_zero = matches!(fields.get("bytes"),
            Some(cairn_check::Detail::Bytes(bytes)) if bytes.iter().all(|byte| *byte == 0));
        !is_zero && (*number < main || fields.get("valid") == Some(&true.into()))
    };
    let blocks: Vec<u64> = (0..main + 6 * 512).filter(in_use).collect();
    random_bytes(&image, 4096, &blocks, 60);
}

/// Zeros in place of a whole structure.
fn wiped(image: &Path, at: u64, len: usize) -> Files {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut kept = vec![0; len];
    file.read_exact_at(&mut kept, at).unwrap();
    file.write_all_at(&vec![0; len], at).unwrap();
    let files = rescued(image);
    file.write_all_at(&kept, at).unwrap();
    files
}

#[test]
fn ext4_without_its_superblock_or_root() {
    let dir = tempfile::tempdir().unwrap();
    let image = ext4(dir.path());
    let whole = rescued(&image);
    let files = wiped(&image, 1024, 1024);
    assert_eq!(files.hashes, whole.hashes);
    let root = Structure::Extents(b"/".to_vec());
    let root = cairn::dump(&ImageSpec::whole(&image), &[], Copies::default(), &root).unwrap().1;
    let first = root.list("extents").next().and_then(|one| one.number("block")).unwrap();
    let files = wiped(&image, first * 1024, 1024);
    assert_eq!(files.hashes, whole.hashes);
    assert!(files.losses.iter().any(|loss| loss.path.starts_with(b"lost/")));
    // A block of the inode table: its eight inodes are lost, by name.
    let place = Structure::Inode(b"/a/b/file2".to_vec());
    let place = cairn::dump(&ImageSpec::whole(&image), &[], Copies::default(), &place).unwrap().1;
    let files = wiped(&image, place.number("block").unwrap() * 1024, 1024);
    let missing = whole.hashes.keys().filter(|ino| !files.hashes.contains_key(ino)).count();
    assert!((1..=4).contains(&missing), "{missing}");
    assert!(files.losses.iter().any(|loss| loss.path == b"a/b/file2"), "{:?}", files.losses);
}

#[test]
fn f2fs_without_its_root_nat_or_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let image = f2fs(dir.path());
    let whole = rescued(&image);
    let fields = |structure| {
        cairn::dump(&ImageSpec::whole(&image), &[], Copies::default(), &structure).unwrap().1
    };
    let root = fields(Structure::Inode(b"3".to_vec())).number("block").unwrap();
    let nat = fields(Structure::Nat(3));
    let checkpoint = fields(Structure::Checkpoint);
    let packs: Vec<u64> =
        checkpoint.list("packs").map(|pack| pack.number("block").unwrap()).collect();
    let mut places = vec![(0, 4096), (root * 4096, 4096)];
    places.extend(nat.list("copies").map(|copy| (copy.number("block").unwrap() * 4096, 4096)));
    places.extend(packs.iter().map(|pack| (pack * 4096, 4096)));
    for (at, len) in places {
        let files = wiped(&image, at, len);
        assert_eq!(files.hashes, whole.hashes, "byte {at}: {:?}", files.losses);
        if at == root * 4096 {
            // The names come from the inodes.
            assert_eq!(files.paths[&4], whole.paths[&4]);
        }
    }
}

/// Both superblocks have wrong checksums, and nothing else: a check, a repair with losses and a
/// rescue use them. Each of them sent the user to the others.
#[test]
fn f2fs_without_a_checksum_of_its_superblock() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    judge::mkfs_f2fs(&image, 64 << 20, &["-O", "extra_attr,sb_checksum"]);
    let file = File::options().write(true).open(&image).unwrap();
    for copy in [0, 4096] {
        file.write_all_at(&[1, 2, 3, 4], copy + 1024 + 3068).unwrap();
    }
    drop(file);
    let spec = ImageSpec::whole(&image);
    rescued(&image);
    let checked = cairn::check(&spec, &[], Arc::new(())).unwrap();
    let codes: Vec<_> = checked.report.findings.iter().map(|found| found.kind.code).collect();
    assert_eq!(codes, ["f2fs.superblock.both"]);
    let scope = cairn_check::repair::Scope::All;
    let repair = cairn::plan_repair(&spec, &[], scope, true, Arc::new(())).unwrap();
    repair.apply(None).unwrap();
    drop(repair);
    assert_eq!(judge::fsck_f2fs(&image).status, 0);
    assert_eq!(cairn::check(&spec, &[], Arc::new(())).unwrap().report.count(), 0);
}

/// A backup of the superblock does not say whether the log has anything.
#[test]
fn a_rescue_with_a_backup_replays_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (image, killed) = (dir.path().join("image"), dir.path().join("killed"));
    // Four groups: two of them have backups.
    judge::mke2fs(&image, 32 << 20, &["-t", "ext4", "-b", "1024", "-g", "8192"]);
    let volume = cairn::Volume::open_writable(&image).unwrap();
    let mut kept = cairn::fs::File::create(&volume, "/kept").unwrap();
    kept.write_all(&vec![7; 50_000]).unwrap();
    kept.sync_all().unwrap();
    std::fs::copy(&image, &killed).unwrap();
    drop(kept);
    volume.close().unwrap();
    let damaged = File::options().write(true).open(&killed).unwrap();
    damaged.write_all_at(&[0; 1024], 1024).unwrap();
    let files = rescued(&killed);
    assert!(files.paths.values().any(|path| path.ends_with(b"kept")), "{:?}", files.paths.values());
    assert_eq!(files.losses.len(), 0, "{:?}", files.losses);
}

/// Of a damaged superblock without a backup, all places are read once for each opening.
#[test]
fn a_damaged_superblock_is_searched_for_backups_once() {
    let mut bytes = vec![0; 16 << 20];
    bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
    let stats = Arc::new(Stats::new(Arc::new(MemoryDevice::from_image(&bytes))));
    let opened = cairn::open_on(stats.clone(), Threads::new(), &OpenOptions::default());
    let said = opened.map(drop).unwrap_err().to_string();
    assert!(said.contains("superblock"), "{said}");
    let read = stats.snapshot().read_bytes;
    assert!((16 << 20..24 << 20).contains(&read), "{read} bytes");
}
