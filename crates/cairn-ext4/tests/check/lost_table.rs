//! The inode table of a group is lost: what a repair loses is listed by its path, and a rescue
//! takes the copies that the journal still has.

use cairn_block::BlockDeviceExt;
use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge;

use crate::forms::rescued;
use crate::injected::image;
use crate::repaired::{complaint, repaired};

const BLOCK: u64 = 1024;

#[test]
fn what_is_lost_with_a_table_is_listed_and_rescued_from_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let sound = read_image(&path).unwrap();
    let files = rescued(&sound).files;
    let said = judge::run("debugfs", ["-R", "imap <1>", path.to_str().unwrap()]);
    let table = said.split("located at block ").nth(1).unwrap().split(',').next().unwrap();
    let table: u64 = table.parse().unwrap();
    // 32 inodes of 256 bytes, behind those that mke2fs wrote and those of the directories.
    let (start, len) = ((table + 4) * BLOCK, 8 * BLOCK);
    for noise in [0, 0x5a] {
        let device = sound.fork();
        device.write_at(start, vec![noise; len as usize]).unwrap();
        let found = rescued(&device);
        assert!(found.files == files, "{} of {} files", found.files.len(), files.len());
        let is_told = |path: &[u8]| found.told.iter().any(|told| told == path);
        assert!(is_told(b"tree/a name of some length 20"));
        let (plan, after) = repaired(&device, Scope::All).unwrap();
        let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
        let names = |step: &String| step.contains("Lost of /tree/a name of some length 20:");
        assert!(lost.iter().any(names), "{noise}: {lost:?}");
        let said = complaint(&after, &hurt);
        assert!(said.is_none(), "{}", said.unwrap_or_default());
    }
}
