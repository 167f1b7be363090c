//! Single fields of a sound image changed, with checksums put right: e2fsck and the check agree
//! whether there is a defect.

use std::path::Path;

use cairn_testkit::crash::write_image;
use cairn_testkit::deep;
use cairn_testkit::judge::{KernelMount, command, mke2fs};
use cairn_testkit::mutate::Target;

use crate::support::difference;

/// Requests of debugfs that change one field and the checksum over it.
pub const FIELDS: &[&str] = &[
    "ssv free_blocks_count 77",
    "ssv free_inodes_count 77",
    "ssv r_blocks_count 99999",
    "ssv lastcheck 5",
    "ssv mnt_count 3",
    "ssv volume_name changed",
    "ssv last_orphan 14",
    "set_bg 0 free_blocks_count 9",
    "set_bg 0 free_inodes_count 9",
    "set_bg 0 used_dirs_count 9",
    "set_bg 1 itable_unused 1",
    "set_bg 0 checksum 4",
    "set_bg 1 block_bitmap 3",
    "set_bg 1 inode_table 9999999",
    "freeb 100 4",
    "setb 3900",
    "freei <12>",
    "seti <200>",
    "sif <2> mode 0100755",
    "sif <2> links_count 9",
    "sif <9> size 416611827712",
    "sif <9> size 8589934592",
    "sif <7> size 1152921504674230272",
    "sif <7> mode 010644",
    "sif <6> file_acl 64",
    "sif <400> dtime 5",
    "sif \"/tree/a name of some length 7\" mode 0120644",
    "sif /file mode 010644",
    "sif /file mode 0",
    "sif /file links_count 5",
    "sif /file links_count 0",
    "sif /file size 100",
    "sif /file size 99999999",
    "sif /file blocks 3",
    "sif /file dtime 12345",
    "sif /file flags 0x10080000",
    "sif /file flags 0",
    "sif /file flags 0x81000",
    "sif /file flags 0x80010",
    "sif /file file_acl 5",
    "sif /file file_acl 99999999",
    "sif /file extra_isize 500",
    "sif /file atime_extra 3",
    "sif /file uid 1000",
    "sif /file block[2] 0xffff",
    "sif /file block[3] 5",
    "sif /file block[4] 9",
    "sif /file block[5] 2",
    "sif /file block[0] 0xf30b0001",
    "sif /tree size 1000",
    "sif /tree blocks 100",
    "sif /tree links_count 2",
    "sif /tree mode 0100755",
    "sif /tree flags 0x80000",
    "sif /fast size 9",
    "sif /fast blocks 8",
    "sif /fast flags 0x80000",
    "sif /fifo size 9",
    "sif /fifo flags 0x10",
    "sif /fifo flags 0x80000",
    "sif /fifo links_count 3",
    "sif <7> links_count 0",
    "sif <7> block[13] 5",
    "sif <7> blocks 3",
    "sif <8> size 1024",
    "sif <8> size 1049088",
    "sif <8> links_count 5",
    "sif <8> mode 040644",
    "sif <5> mode 040644",
    "sif <5> links_count 1",
    "sif <300> mode 0100644",
    "sif <300> links_count 1",
    "unlink /file",
    "unlink /tree",
    "link <12> /again",
    "link /tree /twin",
    "link <300> /nothing",
    "link <8> /journal",
    "clri /file",
    "clri /tree",
    "clri /fast",
    "clri <7>",
    "clri <8>",
];

/// Where the two differ for a reason, by what the request or damage is.
const EXCEPTIONS: &[(&str, &str)] =
    &[("ssv last_orphan 14", "with -n, e2fsck does not look at the list of orphans")];

fn is_exception(what: &str) -> bool {
    EXCEPTIONS.iter().any(|(request, _)| what == *request)
}

/// An image with a file of every kind.
pub fn image(at: &Path, args: &[&str]) {
    image_of(at, 8 << 20, args);
}

/// As [`image`], of this size.
pub fn image_of(at: &Path, size: u64, args: &[&str]) {
    mke2fs(at, size, args);
    let mount = KernelMount::new(at, "");
    let path = |name: &str| mount.path().join(name);
    std::fs::write(path("file"), vec![b'f'; 50_000]).unwrap();
    std::fs::create_dir(path("tree")).unwrap();
    std::fs::create_dir(path("tree/below")).unwrap();
    for number in 0..200 {
        std::fs::write(path(&format!("tree/a name of some length {number}")), b"x").unwrap();
    }
    std::os::unix::fs::symlink("target", path("fast")).unwrap();
    std::os::unix::fs::symlink("x".repeat(100), path("slow")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    mount.unmount();
}

#[test]
fn e2fsck_agrees_on_single_fields() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    let mut wrong = Vec::new();
    for args in [&["-t", "ext4", "-b", "1024", "-N", "512"][..], &["-t", "ext3", "-b", "1024"]] {
        image(&sound, args);
        for request in FIELDS {
            std::fs::copy(&sound, &hurt).unwrap();
            let done = command("debugfs").args(["-w", "-R", request]).arg(&hurt).output();
            done.expect("debugfs starts");
            if let Some((verdict, lines)) = difference(&hurt).filter(|_| !is_exception(request)) {
                wrong.push(format!(
                    "{args:?}, {request}: e2fsck exits {}, check says:\n{lines}{}",
                    verdict.status, verdict.output
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them differ:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// What e2fsck does not look for.
fn is_ours_alone(line: &str) -> bool {
    line.starts_with("ext4.xattr.mark:")
}

/// Random fields of metadata without checksums.
#[test]
fn e2fsck_agrees_on_random_fields() {
    const PLAIN: &[&[&str]] = &[
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal,^metadata_csum,^metadata_csum_seed"],
        &["-t", "ext2", "-b", "1024"],
    ];
    let each = if deep() { 10_000 } else { 100 };
    let dir = tempfile::tempdir().unwrap();
    let hurt = dir.path().join("hurt");
    let (mut missed, mut extra, mut compared) = (Vec::new(), Vec::new(), 0);
    for (layout, args) in PLAIN.iter().enumerate() {
        let target = Target::ext4(args, layout as u64);
        for seed in 0..each {
            let (device, damage) = target.mutate(seed);
            let [one] = &damage[..] else { continue };
            write_image(&device, &hurt).unwrap();
            compared += 1;
            if let Some((verdict, lines)) = difference(&hurt) {
                if verdict.is_clean() && lines.lines().all(is_ours_alone) {
                    continue;
                }
                let text = format!("{args:?}, seed {seed}: {one}\n{lines}{}", verdict.output);
                if verdict.is_clean() { extra.push(text) } else { missed.push(text) }
            }
        }
    }
    println!("{compared} compared, {} missed, {} more", missed.len(), extra.len());
    let text = format!("missed:\n{}\n\nmore:\n{}", missed.join("\n\n"), extra.join("\n\n"));
    println!("{text}");
    // Of many, one in 200 may be seen in another way.
    let most = if deep() { compared / 200 } else { 0 };
    assert!(missed.len() + extra.len() <= most, "{text}");
}
