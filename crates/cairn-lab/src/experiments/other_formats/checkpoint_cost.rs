//! The instructions of a checkpoint of F2FS by the number of files in memory, counted in another
//! process ([`crate::stepping`]). ext4's journal looked at a list that grows; a checkpoint of F2FS
//! that looked at files which have not changed would grow as well.

use std::process::Command;

use cairn::FileSystem;
use cairn_vfs::types::{Caller, NewInode};

use crate::error::{Error, Result};
use crate::experiment::Context;
use crate::section::{Builder, Metric, Section};
use crate::statistics::Spread;
use crate::stepping;
use crate::volume::{self, OpenFile};

pub(super) const ID: &str = "checkpoint-cost";
pub(super) const F2FS: &str = "f2fs";
pub(super) const INSTRUCTIONS: &str = "instructions";
pub(super) const NOTE: &str = "Checkpoint cost: a volume of F2FS in memory with so many files of a \
    block, all of them in memory and unchanged; then one more file is overwritten and the volume \
    is synced, over and over. The instructions are those of the sync, stepped through by another \
    process; the median of three.";
/// Counted checkpoints.
const CHECKPOINTS: usize = 3;
const DEVICE: u64 = 512 << 20;

fn lengths(context: &Context) -> &'static [u32] {
    context.scale.pick(&[10], &[100, 1000, 10_000], &[100, 1000, 10_000, 30_000])
}

fn row(files: u32) -> String {
    format!("{files} files")
}

/// Measures the table. Why it is missing is a note.
pub(super) fn measure(context: &Context, notes: &mut Vec<String>) -> Result<Option<Section>> {
    let metrics = vec![Metric::lower(INSTRUCTIONS, "instructions")];
    let title = "A checkpoint of F2FS, by files in memory that have not changed";
    let mut builder = Builder::new(ID, title, &[F2FS], metrics);
    let missing = || Error::Program("this program was not found, so nothing was counted".into());
    let program = context.itself.as_deref().ok_or_else(missing)?;
    context.progress.expect(lengths(context).len());
    for files in lengths(context) {
        context.progress.show(&format!("instructions: {}", row(*files)));
        let mut command = Command::new(program);
        command.args(["lab", "--counted-checkpoints", &files.to_string()]);
        let counted = match stepping::count(&mut command) {
            Ok(counted) => counted,
            Err(error) => {
                notes.push(format!("Instructions were not counted: {error}."));
                return Ok(None);
            }
        };
        // The first piece is what counting itself costs.
        let own = counted.first().copied().unwrap_or(0);
        let pieces: Vec<f64> =
            counted.iter().skip(1).map(|steps| steps.saturating_sub(own) as f64).collect();
        if let Some(pieces) = Spread::of(&pieces) {
            builder.add(&row(*files), F2FS, &[(INSTRUCTIONS, pieces.median)]);
        }
        context.progress.step();
    }
    Ok(Some(builder.finish()))
}

/// The work of the process whose instructions are counted.
pub(super) fn work(files: u32) -> Result<()> {
    let device = volume::ramdisk(DEVICE)?;
    volume::make_f2fs(&device)?;
    // A daemon's checkpoint would not be counted: it runs in a thread of its own.
    let volume = volume::open(&device, "nocheckpoint_merge,background_gc=off,cache=1G")?;
    for number in 0..files {
        let name = number.to_string();
        OpenFile::create(&*volume, &name)?.write(0, &[1; 4096])?;
    }
    let file = OpenFile::create(&*volume, "changed")?;
    file.write(0, &[1; 4096])?;
    volume.sync()?;
    // All inodes are in memory.
    for number in 0..files {
        volume.lookup(volume.root(), number.to_string().as_bytes())?;
    }
    overwrite(&*volume, &file)?;
    stepping::ready()?;
    stepping::mark()?;
    stepping::mark()?;
    for _ in 0..CHECKPOINTS {
        file.write(0, &[2; 4096])?;
        stepping::mark()?;
        volume.sync()?;
        stepping::mark()?;
    }
    Ok(())
}

/// One more sync of the same kind, which touches its memory.
fn overwrite(volume: &dyn FileSystem, file: &OpenFile<'_>) -> Result<()> {
    let made = volume.create(volume.root(), b"last", NewInode::Regular, 0o644, &Caller::ROOT)?;
    volume.forget(made.ino, 1);
    for _ in 0..2 {
        file.write(0, &[3; 4096])?;
        volume.sync()?;
    }
    Ok(())
}
