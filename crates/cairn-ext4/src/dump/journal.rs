//! The journal: its superblock, every block of the log, fast commits, and what a replay would do.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_check::{Detail, Fields};
use cairn_jbd2::fast_commit::Operation;
use cairn_jbd2::survey::{LogBlock, LogContents, LogState, log_state, survey};
use cairn_jbd2::{FastCommit, JournalArea, fast_commits, replay_in_memory, salvage_in_memory};

use crate::error::{Error, Result};
use crate::raw::{RawVolume, SuperblockChoice, journal};

/// Most blocks of the log, and copies in it, that are shown.
const MOST: usize = 1 << 18;

/// Shows the journal of a volume.
///
/// # Errors
/// There is no superblock as asked for, no journal, or it cannot be read.
pub fn show_journal(device: Arc<dyn BlockDevice>, choice: SuperblockChoice) -> Result<Fields> {
    let volume = RawVolume::open(device, choice)?;
    let area = journal::area(&volume)?.ok_or_else(|| {
        Error::Option("the volume has no journal: only ext3 and ext4 have one".into())
    })?;
    let state = log_state(&area)?;
    let mut fields = superblock(&state, &area);
    let mut log = Log { state: &state, list: Vec::new(), shown: 0 };
    survey(&area, |block| log.add(&block))?;
    if log.shown > MOST {
        fields.put("log_cut_off", true);
    }
    fields.put("log", log.list);
    if state.superblock.start != 0 {
        fields.put("fast_commits", fast(&area));
    }
    fields.put("replay", replay(&state, &area));
    if !volume.notes.is_empty() {
        fields.put("warnings", volume.notes.clone());
    }
    Ok(fields)
}

fn superblock(state: &LogState, area: &JournalArea) -> Fields {
    let found = &state.superblock;
    let names = found.incompat.iter_names().map(|(name, _)| name.to_ascii_lowercase());
    let mut fields = Fields::new()
        .with("inode_blocks", area.blocks())
        .with("s_blocksize", area.block_size)
        .with("s_maxlen", found.blocks)
        .with("s_first", found.first)
        .with("s_sequence", found.sequence.0)
        .with("s_start", found.start)
        .with("s_errno", found.errno)
        .with("s_feature_incompat", names.collect::<Vec<_>>())
        .with("s_num_fc_blks", found.blocks.saturating_sub(found.end_of_log()));
    if let Some((_, pba, _)) = area.extents.first() {
        fields.put("block", pba.get());
    }
    fields
}

struct Log<'a> {
    state: &'a LogState,
    list: Vec<Fields>,
    shown: usize,
}

impl Log<'_> {
    /// Would a replay read the transaction?
    fn is_replayed(&self, tid: cairn_base::Tid) -> bool {
        let first = self.state.superblock.sequence;
        let (end, start) = (self.state.end, self.state.superblock.start);
        start != 0 && !first.is_after(tid) && end.is_after(tid)
    }

    fn add(&mut self, block: &LogBlock) -> bool {
        let mut fields = Fields::new().with("log_block", block.number);
        if let Some(pba) = block.pba {
            fields.put("block", pba.get());
        }
        fields.put("sequence", block.tid.0);
        fields.put("replayed", self.is_replayed(block.tid));
        match &block.contents {
            LogContents::Descriptor(copies) => {
                fields.put("type", "descriptor");
                let tags = copies.iter().map(|copy| {
                    let one = Fields::new()
                        .with("log_block", copy.number)
                        .with("fs_block", copy.home.get());
                    match copy.checksum {
                        Some((stored, computed)) => {
                            let mut one = one;
                            one.checksum(stored, computed);
                            one
                        }
                        None => one,
                    }
                });
                let tags: Vec<Fields> = tags.collect();
                self.shown = self.shown.saturating_add(tags.len());
                fields.put("tags", tags);
            }
            LogContents::Commit(seconds, nanoseconds) => {
                fields.put("type", "commit");
                fields.put("time", Detail::Time(i64::try_from(*seconds).unwrap_or(i64::MAX)));
                fields.put("nanoseconds", *nanoseconds);
            }
            LogContents::Revoke(blocks) => {
                fields.put("type", "revoke");
                fields.put("fs_blocks", blocks.iter().map(|pba| pba.get()).collect::<Vec<_>>());
            }
        }
        if let Some((stored, computed)) = block.checksum {
            fields.checksum(stored, computed);
        }
        self.list.push(fields);
        self.shown = self.shown.saturating_add(1);
        self.shown <= MOST
    }
}

fn fast(area: &JournalArea) -> Detail {
    match fast_commits(area) {
        Ok(commits) => commits.iter().map(fast_commit).collect::<Vec<_>>().into(),
        Err(error) => error.to_string().into(),
    }
}

fn fast_commit(commit: &FastCommit) -> Fields {
    let named = |tag: &'static str, name: &cairn_jbd2::fast_commit::Name| {
        Fields::new()
            .with("tag", tag)
            .with("parent", name.parent.get())
            .with("inode", name.ino.get())
            .with("name", Detail::Name(name.name.clone()))
    };
    let shown = commit.operations.iter().map(|operation| match operation {
        Operation::AddRange { ino, start, pba, len, unwritten } => Fields::new()
            .with("tag", "add_range")
            .with("inode", ino.get())
            .with("start", start.get())
            .with("block", pba.get())
            .with("len", *len)
            .with("unwritten", *unwritten),
        Operation::DeleteRange { ino, start, len } => Fields::new()
            .with("tag", "del_range")
            .with("inode", ino.get())
            .with("start", start.get())
            .with("len", *len),
        Operation::Create(name) => named("creat", name),
        Operation::Link(name) => named("link", name),
        Operation::Unlink(name) => named("unlink", name),
        Operation::Inode { ino, raw } => Fields::new()
            .with("tag", "inode")
            .with("inode", ino.get())
            .with("bytes", Detail::Bytes(raw.clone())),
    });
    Fields::new().with("tags", shown.collect::<Vec<_>>())
}

/// What a mount would do.
fn replay(state: &LogState, area: &JournalArea) -> Fields {
    if state.superblock.start == 0 {
        return Fields::new().with("needed", false);
    }
    let first = state.superblock.sequence;
    let count = state.end.0.wrapping_sub(first.0);
    let mut fields = Fields::new()
        .with("needed", true)
        .with("first_sequence", first.0)
        .with("end_sequence", state.end.0)
        .with("transactions", count);
    let images = match &state.damage {
        None => replay_in_memory(area),
        Some(why) => {
            fields.put("error", format!("a committed transaction is damaged: {why}"));
            salvage_in_memory(area)
        }
    };
    match images {
        Ok(images) => {
            let mut blocks: Vec<u64> = images.keys().map(|pba| pba.get()).collect();
            blocks.sort_unstable();
            fields.put("fs_blocks", blocks);
        }
        Err(error) => fields.put("error", error.to_string()),
    }
    fields
}
