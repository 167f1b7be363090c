//! The list of deleted inodes.

use cairn_check::salvage::{Contents, Found};
use cairn_check::salvage::{Deleted, Loss, Receiver, Salvage};
use cairn_vfs::Timestamp;
use serde_json::{Value, json};

use crate::failure::Outcome;
use crate::output::{Output, with_stdout};
use crate::progress::Steps;
use crate::{json, print};

/// Shows progress, and takes nothing.
pub(super) struct Watch {
    steps: Steps,
    what: &'static str,
}

impl Watch {
    pub(super) fn start() -> Self {
        Self { steps: Steps::start("searching"), what: "" }
    }

    pub(super) fn step(&mut self, what: &'static str, done: u64, total: u64) {
        if self.what != what {
            self.what = what;
            self.steps.begin(what, total);
        }
        self.steps.set(done);
    }

    pub(super) fn end(&self) {
        self.steps.end();
    }
}

impl Receiver for Watch {
    fn found(&mut self, _: &Found, _: &mut dyn Contents) -> bool {
        true
    }

    fn linked(&mut self, _: &[u8], _: u64, _: &[u8]) -> bool {
        true
    }

    fn lost(&mut self, _: Loss) -> bool {
        true
    }

    fn progress(&mut self, what: &'static str, done: u64, total: u64) -> bool {
        self.step(what, done, total);
        true
    }
}

/// Prints the deleted inodes.
///
/// # Errors
/// They cannot be printed.
pub(super) fn print(is_json: bool, mut head: json::Object, volume: &mut dyn Salvage) -> Outcome {
    let mut watch = Watch::start();
    let list = volume.deleted(&mut watch);
    watch.end();
    let limits = volume.limits();
    with_stdout(|output| {
        if is_json {
            let list: Vec<Value> = list.iter().map(|one| Value::Object(object(one))).collect();
            head.insert("deleted".into(), list.into());
            head.insert("limits".into(), limits.into());
            return writeln!(output, "{:#}", Value::Object(head));
        }
        notes(output, &volume.notes())?;
        lines(output, &list)?;
        match list.is_empty() {
            true => writeln!(output, "note: {limits}"),
            false => Ok(()),
        }
    })
}

/// Prints what was wrong with the volume as a whole.
///
/// # Errors
/// They cannot be printed.
pub(super) fn notes(output: &mut Output<'_>, notes: &[String]) -> Outcome {
    notes.iter().try_for_each(|note| writeln!(output, "note: {}", print::escaped(note.as_bytes())))
}

fn lines(output: &mut Output<'_>, list: &[Deleted]) -> Outcome {
    for one in list {
        let file = &one.file;
        let when = match one.deleted {
            Some(seconds) => print::time(Timestamp { seconds, nanoseconds: 0 }),
            None => "-".to_owned(),
        };
        let path = match &one.path {
            Some(path) => format!("/{}", print::escaped(path)),
            None => "-".to_owned(),
        };
        writeln!(
            output,
            "{:>8}  {:<11}  {:06o} {:>5}:{:<5}  {:>12}  {when:<19}  {path}",
            file.ino,
            one.remains.to_string(),
            file.mode,
            file.uid,
            file.gid,
            file.size
        )?;
    }
    match list.len() {
        1 => writeln!(output, "1 deleted inode"),
        count => writeln!(output, "{count} deleted inodes"),
    }
}

fn object(one: &Deleted) -> json::Object {
    let mut object = json::Object::new();
    object.insert("inode".into(), one.file.ino.into());
    if let Some(path) = &one.path {
        json::insert_name(&mut object, "path", path);
    }
    let (seconds, nanoseconds) = one.file.mtime;
    let rest = json!({
        "mode": format!("{:06o}", one.file.mode),
        "uid": one.file.uid,
        "gid": one.file.gid,
        "size": one.file.size,
        "mtime": json::time(Timestamp { seconds, nanoseconds }),
        "deleted": one.deleted,
        "remains": one.remains.to_string(),
        "blocks": one.blocks,
        "free_blocks": one.free,
        "source": one.source,
    });
    if let Value::Object(rest) = rest {
        object.extend(rest);
    }
    object
}
