//! Repairs of every field with every possible value: a repair without losses takes nothing, a
//! repair with losses lists what it takes, and fsck.f2fs finds nothing then.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::Severity;
use cairn_check::repair::{Plan, Scope};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::inject::Injection;
use crate::lines;
use crate::readers::{Read, View};
use crate::repair::{apply, fsck, plan};
use crate::sweep::cases;
use crate::types::{Judge, planted};
use crate::volume::open;

/// What is read of each inode, wherever its names are.
fn by_number(view: &View) -> BTreeMap<u64, (&[u8], &Read)> {
    view.found.iter().map(|(path, read)| (read.ino, (&path[..], read))).collect()
}

/// Why an inode is not as it was; none if it is.
fn differs(now: Option<&Read>, right: &Read) -> Option<&'static str> {
    match now {
        None => Some("missing"),
        Some(now) if now.kind != right.kind => Some("another type"),
        Some(now) if now.bytes != right.bytes => Some("other contents"),
        Some(now) if now.attributes != right.attributes => Some("other attributes"),
        Some(_) => None,
    }
}

/// Is the inode, its path, or the entry that leads to it listed as lost?
fn is_listed(plans: &[&Plan], path: &[u8], ino: u64) -> bool {
    let steps = plans.iter().flat_map(|plan| plan.steps.losing());
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    steps.into_iter().any(|step| {
        let loss = step.loss.as_ref();
        let is_path = loss.is_some_and(|loss| {
            !loss.path.is_empty() && (path.starts_with(&loss.path) || loss.path.starts_with(path))
        });
        let place = &step.place;
        let is_entry = place.name.as_deref().is_some_and(|lost| lost == name);
        let is_it = place.inode == Some(ino) || place.node == Some(ino);
        is_path || is_entry || is_it
    })
}

struct Sweep {
    judge: Judge,
    sound: View,
}

impl Sweep {
    fn new(judge: Judge) -> Self {
        let device: Arc<dyn BlockDevice> = Arc::new(judge.target.device.fork());
        let sound = View::of(&device);
        Self { judge, sound }
    }

    /// What is wrong with the repairs of a change.
    fn check(&self, injection: &Injection) -> Result<(), String> {
        let base: Arc<dyn BlockDevice> = Arc::new(self.judge.target.device.fork());
        let overlay = Arc::new(Overlay::new(base).unwrap());
        let device: Arc<dyn BlockDevice> = overlay.clone();
        for (at, bytes) in &injection.blocks {
            device.write_at(*at, bytes.clone()).unwrap();
        }
        let before = View::of(&device);
        let safe = plan(&device, Scope::Accounting).map_err(|error| error.to_string())?;
        if safe.before.worst() == Some(Severity::Fatal) || safe.is_refused {
            return Ok(());
        }
        apply(&safe, &device);
        let after = View::of(&device);
        let is_whole = safe.after.count() == 0 && safe.before.count() > 0;
        self.compare(&before, &after, is_whole)
            .map_err(|why| format!("by --repair: {why}\n{}", steps(&safe)))?;
        let all = plan(&device, Scope::All).map_err(|error| error.to_string())?;
        if all.is_refused || all.after.count() > 0 {
            return Err(format!("not repaired:\n{}", lines(&all.after)));
        }
        if safe.before.count() == 0 {
            return Ok(());
        }
        apply(&all, &device);
        fsck(&self.judge.target, &overlay).map_err(|why| format!("{why}{}", steps(&all)))?;
        let now = View::of(&device);
        if let Some(failed) = now.failed.first() {
            return Err(format!("{} cannot be read\n{}", text(failed), steps(&all)));
        }
        let (sound, now) = (by_number(&self.sound), by_number(&now));
        for (ino, (path, right)) in sound {
            let why = differs(now.get(&ino).map(|(_, read)| *read), right);
            if let Some(why) = why.filter(|_| !is_listed(&[&safe, &all], path, ino)) {
                return Err(format!("{}: {why}, and not listed\n{}", text(path), steps(&all)));
            }
        }
        Ok(())
    }

    /// What was right stays so. If nothing is found any more, everything is right.
    fn compare(&self, before: &View, after: &View, is_whole: bool) -> Result<(), String> {
        let (sound, then, now) = (by_number(&self.sound), by_number(before), by_number(after));
        for (ino, (path, right)) in sound {
            let was = differs(then.get(&ino).map(|(_, read)| *read), right);
            let is = differs(now.get(&ino).map(|(_, read)| *read), right);
            match is {
                Some(why) if was.is_none() || is_whole => {
                    return Err(format!("{}: {why}", text(path)));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn steps(plan: &Plan) -> String {
    plan.steps.kept().iter().take(6).map(|step| format!("  {step}\n")).collect()
}

/// One of so many changes is tried in the short run.
const EVERY: usize = 200;
/// Changes of the NAT, the SIT and summaries in the short run.
const TABLES: u64 = 3;

fn search(judge: Judge, seed: u64) {
    let sweep = Sweep::new(judge);
    let every = std::env::var("CAIRN_SWEEP").ok().and_then(|n| n.parse().ok());
    let every = every.unwrap_or(if cairn_testkit::deep() { 1 } else { EVERY });
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut wrong, mut count) = (String::new(), 0);
    for case in cases(&sweep.judge).into_iter().filter(|_| random.usize(..every) == 0) {
        count += 1;
        if let Err(why) = sweep.check(&case.injection) {
            wrong += &format!("{}:\n  {why}", case.injection.what);
        }
    }
    for number in 0..TABLES * EVERY as u64 / every as u64 {
        let injection = sweep.judge.target.inject_table(seed << 32 | number);
        count += 1;
        if let Err(why) = sweep.check(&injection) {
            wrong += &format!("{}:\n  {why}", injection.what);
        }
    }
    println!("{count} changes");
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn repairs_of_any_field_take_nothing_that_is_not_listed() {
    search(Judge::new(&[]), 21);
}

#[test]
fn repairs_of_any_field_take_nothing_with_extra_attributes() {
    search(Judge::new(&["-O", "extra_attr,inode_checksum,inode_crtime"]), 22);
}

#[test]
fn repairs_of_any_field_take_nothing_with_flexible_attributes() {
    search(Judge::new(&["-O", "extra_attr,flexible_inline_xattr,inode_crtime,compression"]), 23);
}

/// A volume after a power cut: files that were fsynced lie behind the checkpoint.
fn cut(arguments: &[&str]) -> Judge {
    let device = planted(arguments);
    let fs = open(device.clone(), "");
    for name in [&b"pointers"[..], b"inline", b"nodes"] {
        let ino = fs.lookup(fs.root(), name).unwrap().ino;
        fs.write(ino, 900, &[5; 9000], IoFlags::empty()).unwrap();
        fs.fsync(ino, 0, false).unwrap();
    }
    for index in 0..4_u8 {
        let name = format!("synced {index}");
        let new = fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o600, &Caller::ROOT);
        let ino = new.unwrap().ino;
        fs.write(ino, 0, &vec![index; 3000 * usize::from(index)], IoFlags::empty()).unwrap();
        fs.fsync(ino, 0, false).unwrap();
    }
    fs.shutdown(false).unwrap();
    Judge::of(&Arc::new(device.fork()))
}

#[test]
fn repairs_of_any_field_keep_what_was_fsynced() {
    search(cut(&[]), 24);
}

#[test]
fn repairs_of_any_field_keep_what_was_fsynced_with_checksums() {
    search(cut(&["-O", "extra_attr,inode_checksum"]), 25);
}
