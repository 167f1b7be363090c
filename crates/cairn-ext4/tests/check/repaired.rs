//! Repairs, judged by e2fsck, by the kernel, and by the tree that was there before.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Partition, Record};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::undo::{Error, file_size, take_back};
use cairn_check::repair::{Plan, Scope, Step};
use cairn_ext4::{Ext4, MountOptions};
use cairn_testkit::crash::{CrashLog, Cut, Volatile, read_image, write_image};
use cairn_testkit::deep;
use cairn_testkit::judge::{self, KernelMount, command, e2fsck_check};
use cairn_testkit::mutate::Target;
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_volume};

use crate::injected::{FIELDS, image, image_of};

/// Plans a repair.
pub fn plan(device: MemoryDevice, scope: Scope) -> cairn_ext4::Result<Plan> {
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    cairn_ext4::check::repair::plan(&device, Threads::new(), Arc::new(()), scope)
}

/// Repairs a copy. `None` if it is refused. A second repair has nothing to do.
pub fn repaired(device: &MemoryDevice, scope: Scope) -> Option<(Plan, MemoryDevice)> {
    let planned = plan(device.fork(), scope).ok()?;
    if planned.is_refused {
        let left = planned.after.findings.iter().map(ToString::to_string);
        println!("refused, left: {:?}", left.collect::<Vec<_>>());
        return None;
    }
    let after = device.fork();
    planned.apply(&after, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
    let second = plan(after.fork(), scope).unwrap();
    let steps: Vec<String> = second.steps.kept().iter().map(ToString::to_string).collect();
    assert!(second.changes.is_empty() && !second.is_refused, "a second repair: {steps:?}");
    Some((planned, after))
}

/// What e2fsck says of a device, if that is anything.
pub fn complaint(device: &MemoryDevice, at: &Path) -> Option<String> {
    write_image(device, at).unwrap();
    let verdict = e2fsck_check(at);
    (!verdict.is_clean()).then_some(verdict.output)
}

/// What a mount shows.
pub fn snapshot(device: MemoryDevice) -> Snapshot {
    let options = MountOptions::parse("ro").unwrap();
    let volume = Ext4::open(Arc::new(device), Threads::new(), &options).unwrap();
    digest_volume(&*volume, SnapshotOptions::default()).unwrap()
}

/// The byte at which an inode's record begins, in a volume with blocks of 1 KiB.
pub fn place_of(image: &Path, inode: &str) -> u64 {
    let request = format!("imap {inode}");
    let place = judge::run("debugfs", ["-R", &request, image.to_str().unwrap()]);
    let number = |before: &str| {
        let text = place.split(before).nth(1).unwrap();
        let text = text.split([',', '\n']).next().unwrap().trim();
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => text.parse().unwrap(),
        }
    };
    number("located at block ") * 1024 + number("offset ")
}

/// The image after a request of debugfs.
pub fn injected(sound: &Path, hurt: &Path, request: &str) -> MemoryDevice {
    std::fs::copy(sound, hurt).unwrap();
    let done = command("debugfs").args(["-w", "-R", request]).arg(hurt).output();
    done.expect("debugfs starts");
    read_image(hurt).unwrap()
}

/// Requests of debugfs whose repair needs no file to change.
const ACCOUNTING: &[&str] = &[
    "ssv free_blocks_count 77",
    "set_bg 0 free_blocks_count 9",
    "set_bg 0 free_inodes_count 9",
    "set_bg 0 used_dirs_count 9",
    "freeb 100 4",
    "setb 3900",
    "freei <12>",
    "seti <200>",
    "sif /file links_count 5",
    "sif /file blocks 3",
    "sif /file dtime 12345",
    "sif /tree blocks 100",
    "sif /tree links_count 2",
    "sif <7> blocks 3",
    "clri <7>",
    "clri <8>",
];

#[test]
fn accounting_is_repaired_and_no_file_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    image(&sound, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let before = snapshot(read_image(&sound).unwrap());
    for request in ACCOUNTING {
        let device = injected(&sound, &hurt, request);
        let (plan, after) = repaired(&device, Scope::Accounting).expect(request);
        assert!(plan.steps.losing().count() == 0 && plan.after.count() == 0, "{request}");
        let said = complaint(&after, &hurt);
        assert!(said.is_none(), "{request}: {}", said.unwrap_or_default());
        before.assert_same(&snapshot(after));
    }
}

/// A block of pointers that is garbage costs one file many parts; that is no reason to refuse the
/// repair of the volume.
#[test]
fn garbage_in_a_map_costs_one_file_only() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    image(&sound, &["-t", "ext2", "-b", "1024"]);
    let stat = judge::debugfs(&sound, "stat /file");
    let number = stat.split("(IND):").nth(1).and_then(|text| text.split(',').next());
    let block: u64 = number.expect(&stat).trim().parse().unwrap();
    let device = read_image(&sound).unwrap();
    let before = snapshot(device.fork());
    device.write_at(block * 1024, vec![0xff; 1024]).unwrap();
    let (plan, after) = repaired(&device, Scope::All).expect("it is not refused");
    let lost: Vec<&[u8]> =
        plan.steps.losing().filter_map(|step| step.loss.as_ref()).map(|loss| &*loss.path).collect();
    assert!(lost.len() > 200 && lost.iter().all(|path| *path == b"/file"), "{}", lost.len());
    assert_eq!(complaint(&after, &hurt), None);
    before.without(b"file").assert_same(&snapshot(after).without(b"file"));
}

/// A directory that is cut seems to have a wrong size only; what lies behind its end is damaged,
/// too.
#[test]
fn what_uncovers_losses_is_not_repaired_without_them() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    image(&sound, &["-t", "ext3", "-b", "1024"]);
    let device = injected(&sound, &hurt, "sif /tree size 1024");
    let uncut = plan(device.fork(), Scope::Accounting).unwrap();
    assert!(!uncut.changes.is_empty() && uncut.after.count() == 0, "{:?}", uncut.steps.kept());
    let third = judge::run("debugfs", ["-R", "bmap /tree 3", sound.to_str().unwrap()]);
    let third: u64 = third.lines().find_map(|line| line.parse().ok()).unwrap();
    // The length of the first entry.
    device.write_at(third * 1024 + 4, vec![3, 0]).unwrap();
    let safe = plan(device.fork(), Scope::Accounting).unwrap();
    assert!(safe.changes.is_empty() && safe.after.count() > 0, "{:?}", safe.steps.kept());
}

/// An inode whose checksum alone is wrong: the blocks that it does not name are not freed.
#[test]
fn a_wrong_checksum_of_an_inode_frees_nothing_without_losses() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image(&path, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let device = read_image(&path).unwrap();
    // The low byte of the first extent's place.
    let at = place_of(&path, "/file") + 40 + 12 + 8;
    let byte = device.read_at(at, 1).unwrap()[0];
    device.write_at(at, vec![byte ^ 3]).unwrap();
    let safe = plan(device.fork(), Scope::Accounting).unwrap();
    let marks = |step: &Step| step.kind.code == "ext4.block_bitmap.free";
    assert!(safe.steps.kept().iter().all(marks) && !safe.is_refused, "{:?}", safe.steps.kept());
    let all = plan(device.fork(), Scope::All).unwrap();
    let lost = all.steps.losing().any(|step| {
        step.loss
            .as_ref()
            .is_some_and(|loss| step.kind.code == "ext4.inode.checksum" && *loss.path == *b"/file")
    });
    assert!(lost && all.after.count() == 0, "{:?}", all.steps.kept());
}

/// What makes a journal unreadable may be its inode's checksum, or the descriptor of the group that
/// its inode is in: the journal is kept.
#[test]
fn a_journal_that_is_sound_itself_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image(&path, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let sound = read_image(&path).unwrap();
    // The low half of the checksum.
    let checksum = sound.fork();
    let at = place_of(&path, "<8>") + 124;
    let byte = checksum.read_at(at, 1).unwrap()[0];
    checksum.write_at(at, vec![byte ^ 1]).unwrap();
    let count = injected(&path, &dir.path().join("hurt"), "set_bg 0 used_dirs_count 24941");
    for (device, code) in [(checksum, "ext4.journal.inode"), (count, "ext4.group.directories")] {
        let (plan, after) = repaired(&device, Scope::All).expect(code);
        let codes: Vec<_> = plan.steps.kept().iter().map(|step| step.kind.code).collect();
        let is_new = |code: &&str| *code == "ext4.journal.invalid";
        assert!(codes.contains(&code) && !codes.iter().any(is_new), "{codes:?}");
        let said = complaint(&after, &path);
        assert!(said.is_none(), "{}", said.unwrap_or_default());
        snapshot(sound.fork()).assert_same(&snapshot(after));
    }
}

/// A broken index is made anew: names are found by it, as the kernel and e2fsck see.
#[test]
fn a_broken_index_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    for args in [&["-t", "ext4", "-b", "1024", "-N", "512"][..], &["-t", "ext3", "-b", "1024"]] {
        image(&sound, args);
        let device = read_image(&sound).unwrap();
        let root = judge::run("debugfs", ["-R", "bmap /tree 0", sound.to_str().unwrap()]);
        let root: u64 = root.lines().find_map(|line| line.parse().ok()).unwrap();
        // The second child in the root of the index, and the limit of its entries.
        for (at, value) in [(44, [0xee, 0xee]), (32, [0, 0])] {
            let hurt_device = device.fork();
            hurt_device.write_at(root * 1024 + at, value.to_vec()).unwrap();
            let (plan, after) = repaired(&hurt_device, Scope::All).unwrap();
            assert!(
                plan.before.counts.iter().any(|(kind, _)| kind.code.starts_with("ext4.htree."))
            );
            let said = complaint(&after, &hurt);
            assert!(said.is_none(), "{at}: {}", said.unwrap_or_default());
            snapshot(device.fork()).assert_same(&snapshot(after));
            let index = judge::run("debugfs", ["-R", "htree_dump /tree", hurt.to_str().unwrap()]);
            assert!(index.contains("Number of entries (count)"), "{index}");
            let mount = KernelMount::new(&hurt, "");
            assert!(mount.path().join("tree/a name of some length 77").exists());
            std::fs::write(mount.path().join("tree/one more"), "x").unwrap();
            mount.unmount();
            cairn_testkit::judge::assert_clean(&hurt);
        }
    }
}

/// A directory's extent that claims to be long and never written lies over the blocks of others:
/// these keep theirs, and the directory keeps what its other extents have.
#[test]
fn what_was_never_written_takes_no_blocks_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    image(&sound, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let device = injected(&sound, &hurt, "sif /tree block[4] 0xff03");
    let (plan, after) = repaired(&device, Scope::All).unwrap();
    let losses: Vec<_> = plan.steps.losing().filter_map(|step| step.loss.as_ref()).collect();
    assert!(!losses.is_empty() && losses.iter().all(|loss| loss.path.starts_with(b"/tree")));
    let said = complaint(&after, &hurt);
    assert!(said.is_none(), "{}", said.unwrap_or_default());
}

/// A backup of the superblock is as old as the volume: it knows nothing of the files that were made
/// since, nor of what the journal holds.
#[test]
fn a_backup_of_the_superblock_loses_nothing() {
    const ARGS: &[&str] = &["-t", "ext4", "-b", "1024", "-N", "512"];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image_of(&path, 20 << 20, ARGS);
    let sound = read_image(&path).unwrap();
    let zeros = |device: &MemoryDevice, bytes: usize| {
        let hurt = device.fork();
        hurt.write_at(1024, vec![0; bytes]).unwrap();
        hurt
    };
    let before = snapshot(sound.fork());
    // The superblock alone, and with the descriptors behind it.
    for bytes in [1024, 2048] {
        let (plan, after) = repaired(&zeros(&sound, bytes), Scope::Accounting).unwrap();
        assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "{bytes}");
        let said = complaint(&after, &path);
        assert!(said.is_none(), "{bytes}: {}", said.unwrap_or_default());
        before.assert_same(&snapshot(after));
    }
    let used = in_use(&sound);
    let seen = crate::support::check(Arc::new(used.fork())).unwrap();
    assert_eq!(seen.recovered, ["journal"]);
    let expected = snapshot(used.fork());
    let (plan, after) = repaired(&zeros(&used, 1024), Scope::Accounting).unwrap();
    assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0));
    expected.assert_same(&snapshot(after.fork()));
    let said = complaint(&after, &path);
    assert!(said.is_none(), "{}", said.unwrap_or_default());
}

/// The fields of the check's test: after the repair e2fsck is content, and the kernel mounts.
#[test]
fn e2fsck_accepts_what_is_repaired() {
    let step = if deep() { 1 } else { 3 };
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    let mut wrong = Vec::new();
    for args in [&["-t", "ext4", "-b", "1024", "-N", "512"][..], &["-t", "ext3", "-b", "1024"]] {
        image(&sound, args);
        for (number, request) in FIELDS.iter().enumerate().filter(|(number, _)| number % step == 0)
        {
            let device = injected(&sound, &hurt, request);
            let Some((_, after)) = repaired(&device, Scope::All) else {
                wrong.push(format!("{args:?}, {request}: refused"));
                continue;
            };
            if let Some(said) = complaint(&after, &hurt) {
                wrong.push(format!("{args:?}, {request}: {said}"));
            } else if number % (step * 8) == 0 {
                KernelMount::new(&hurt, "").unmount();
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// Layouts and seeds of the next test of which e2fsck was not satisfied once: an attribute block of
/// the resize inode, and an indirect block of a symbolic link.
const WRONG_ONCE: [(usize, u64); 2] = [(1, 880), (2, 107)];

/// Random damage: whatever is repaired satisfies e2fsck, and nothing else is touched.
/// `CAIRN_INJECTIONS` is another number of seeds, and `CAIRN_SEED` is added to each.
#[test]
fn e2fsck_accepts_what_is_repaired_of_random_damage() {
    const LAYOUTS: &[&[&str]] = &[
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal,^metadata_csum,^metadata_csum_seed"],
        &["-t", "ext2", "-b", "1024"],
    ];
    let asked = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let each = asked("CAIRN_INJECTIONS").unwrap_or(if deep() { 3000 } else { 30 });
    let first = asked("CAIRN_SEED").unwrap_or(0);
    let dir = tempfile::tempdir().unwrap();
    let hurt = dir.path().join("hurt");
    let (mut wrong, mut refused, mut changed) = (Vec::new(), 0, 0);
    for (layout, args) in LAYOUTS.iter().enumerate() {
        let target = Target::ext4(args, layout as u64);
        let known = WRONG_ONCE.into_iter().filter(|(of, _)| *of == layout);
        for seed in (first..first + each).chain(known.map(|(_, seed)| seed)) {
            let (device, damage) = target.mutate(seed);
            let Some((plan, after)) = repaired(&device, Scope::All) else {
                refused += 1;
                println!("{args:?}, seed {seed}: {damage:?}: refused");
                continue;
            };
            changed += u64::from(!plan.changes.is_empty());
            if let Some(said) = complaint(&after, &hurt) {
                let damage: String = damage.iter().map(|damage| format!("{damage}; ")).collect();
                wrong.push(format!("{args:?}, seed {seed}: {damage}\n{said}"));
            }
        }
    }
    println!("{changed} repaired, {refused} refused, {} wrong", wrong.len());
    println!("{}", wrong.join("\n\n"));
    let all = 3 * each as usize;
    assert!(refused * 20 <= all && changed > each / 2, "{refused} of {all} refused");
    // Of many, one in 100 may be seen in another way.
    assert!(wrong.len() <= if deep() { all / 100 } else { 0 }, "{} wrong", wrong.len());
}

/// A power cut at any write of a repair: the volume is as before, or the undo file makes it so.
#[test]
fn a_repair_that_is_cut_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    image(&sound, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let device = injected(&sound, &hurt, "clri /tree");
    let len = device.geometry().size;
    let plan = plan(device.fork(), Scope::All).unwrap();
    assert!(plan.steps.count() > 5 && !plan.is_refused);
    let undo_len = file_size(&plan.changes).next_multiple_of(4096);
    let original = device.read_at(0, usize::try_from(len).unwrap()).unwrap();
    let before = MemoryDevice::new(len + undo_len);
    before.load(0, &original);
    let recorder = Arc::new(Record::new(Arc::new(before.fork())));
    let part = |device: Arc<dyn BlockDevice>, at, len| Partition::new(device, at, len).unwrap();
    let undo = part(recorder.clone(), len, undo_len);
    plan.apply(&part(recorder.clone(), 0, len), &undo).unwrap();
    let log = CrashLog::new(before, recorder.log());
    for moment in (0..=recorder.moment()).step_by(if deep() { 1 } else { 3 }) {
        for volatile in [Volatile::Torn(moment), Volatile::Lost, Volatile::Kept] {
            let after: Arc<dyn BlockDevice> = Arc::new(log.device(Cut { moment, volatile }));
            let volume = part(after.clone(), 0, len);
            match take_back(&volume, &part(after, len, undo_len)) {
                Ok(_) | Err(Error::NoFile { .. }) => {}
                Err(error) => panic!("moment {moment}: {error}"),
            }
            let now = volume.read_at(0, original.len()).unwrap();
            assert!(*now == *original, "moment {moment}");
        }
    }
}

/// The volume after a power cut, with a log to replay.
fn in_use(volume: &MemoryDevice) -> MemoryDevice {
    let recorder = Arc::new(Record::new(Arc::new(volume.fork())));
    let open = Ext4::open(recorder.clone(), Threads::new(), &MountOptions::default()).unwrap();
    let target = cairn_testkit::tree::VolumeTarget::new(&*open);
    let spec =
        cairn_testkit::tree::TreeSpec { xattrs: false, ..cairn_testkit::tree::TreeSpec::small(7) };
    cairn_testkit::tree::build(&target, &cairn_testkit::tree::plan(&spec));
    cairn_vfs::FileSystem::sync(&*open).unwrap();
    let log = CrashLog::new(volume.fork(), recorder.log());
    log.device(Cut { moment: recorder.moment(), volatile: Volatile::Lost })
}

/// A volume with a log to replay: it is recovered, and nothing that it holds is a loss.
#[test]
fn a_volume_that_was_in_use_is_recovered_first() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, copy) = (dir.path().join("sound"), dir.path().join("copy"));
    image(&sound, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let used = in_use(&read_image(&sound).unwrap());
    let (plan, after) = repaired(&used, Scope::Accounting).unwrap();
    assert!(plan.steps.losing().count() == 0 && plan.after.count() == 0);
    let said = complaint(&after, &copy);
    assert!(said.is_none(), "{}", said.unwrap_or_default());
}
