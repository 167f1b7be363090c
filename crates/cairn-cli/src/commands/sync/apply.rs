//! Carries a plan out.

use std::collections::{BTreeSet, HashMap};

use cairn_base::Ino;
use cairn_build::{Kind, Node, NodeId, RegularFile, Tree, WriteError, Writer};
use cairn_vfs::{Error, FileKind, FileSystem, SetAttributes, walk};

use super::plan::{Plan, REMOVED, Step};
use crate::commands::build;
use crate::commands::destination::{Place, has_room, write_back};
use crate::commands::overwrite::{Contents, overwrite};
use crate::failure::{Failure, Outcome};
use crate::session::shown;
use crate::tree::{Passed, complain, join};

/// Is told of each step that is done.
type Say<'a> = dyn FnMut(&str, &[u8]) -> Outcome + 'a;

/// Removes, makes and changes. A failure of one file does not stop the others.
///
/// # Errors
/// The failures of single files together, or the first that concerns all.
pub(super) fn apply(fs: &dyn FileSystem, wanted: &Tree, plan: &Plan, say: &mut Say<'_>) -> Outcome {
    let mut apply = Apply {
        fs,
        wanted,
        writer: Writer::new(fs, wanted),
        inodes: known(fs, wanted, plan)?,
        touched: BTreeSet::new(),
        kept_for_maps: "",
        passed: Passed::by_writer(),
    };
    for path in &plan.removed {
        let done = apply.remove(path);
        if apply.pass(done)? {
            say(REMOVED, path)?;
        }
    }
    let mut unmade: BTreeSet<&[u8]> = BTreeSet::new();
    for (path, (id, step)) in &plan.changed {
        let Some(node) = wanted.node(*id) else { continue };
        if directories(path).any(|directory| unmade.contains(directory)) {
            apply.passed.skip();
            continue;
        }
        let done = apply.step(path, *id, node, *step);
        if apply.pass(done)? {
            say(step.word(), path)?;
        } else if *step == Step::Make {
            unmade.insert(path);
        }
    }
    apply.settle_directories()?;
    apply.passed.end()
}

/// The directories that a path lies in.
fn directories(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.filter_map(|(at, _)| path.get(..at))
}

/// The inodes of files with several names of which one stays on the image as it is.
fn known(fs: &dyn FileSystem, wanted: &Tree, plan: &Plan) -> Outcome<HashMap<NodeId, Ino>> {
    let mut stay: HashMap<NodeId, Vec<u8>> = HashMap::new();
    let walked = wanted.each_name(&mut |path, id, node| {
        let is_made = matches!(plan.changed.get(path), Some((_, Step::Make)));
        if node.links > 1 && !is_made {
            stay.entry(id).or_insert_with(|| path.to_vec());
        }
        Ok(())
    });
    walked.map_err(build::failure)?;
    let inode = |(id, path): (NodeId, Vec<u8>)| {
        let found = walk::resolve(fs, &path, false);
        found.map(|found| (id, found.ino)).map_err(|error| Failure::volume(shown(&path), &error))
    };
    stay.into_iter().map(inode).collect()
}

/// How many blocks ext4 keeps for maps of data in memory. No other writer has such data here, and
/// each file is written before the next one, so few suffice. A new file may have them all: if its
/// map then has no room, it is removed again, and nothing else is lost. F2FS keeps none.
const FEW_FOR_MAPS: &str = "reserved_clusters=16";
const NONE_FOR_MAPS: &str = "reserved_clusters=0";

struct Apply<'a> {
    fs: &'a dyn FileSystem,
    wanted: &'a Tree,
    writer: Writer<'a>,
    /// Inodes of nodes with several names, once there is one.
    inodes: HashMap<NodeId, Ino>,
    /// Directories whose times have changed.
    touched: BTreeSet<Vec<u8>>,
    kept_for_maps: &'static str,
    passed: Passed,
}

impl Apply<'_> {
    /// False if it failed for this file alone.
    fn pass(&mut self, done: Outcome) -> Outcome<bool> {
        match done {
            Ok(()) => Ok(true),
            Err(failure) => self.passed.pass(failure, complain).map(|()| false),
        }
    }

    /// The directory of a path and the name in it.
    fn place(&mut self, path: &[u8]) -> Outcome<Place> {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = match slash {
            Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..)),
            None => (&b""[..], Some(path)),
        };
        let failed = |error: Error| Failure::volume(shown(&join(b"/", path)), &error);
        let parent = walk::resolve(self.fs, above, false).map_err(failed)?;
        self.touched.insert(above.to_vec());
        let name = name.unwrap_or_default().to_vec();
        Ok(Place { parent: parent.ino, name, path: join(b"/", path) })
    }

    fn remove(&mut self, path: &[u8]) -> Outcome {
        let place = self.place(path)?;
        let failed = |error: Error| Failure::volume(shown(&place.path), &error);
        let found = walk::lookup(self.fs, place.parent, &place.name).map_err(failed)?;
        let removed = match found.kind {
            FileKind::Directory => self.fs.rmdir(place.parent, &place.name),
            _ => self.fs.unlink(place.parent, &place.name),
        };
        removed.map_err(failed)
    }

    /// F2FS does not know the option.
    fn keep_for_maps(&mut self, blocks: &'static str) {
        if self.kept_for_maps != blocks {
            self.kept_for_maps = blocks;
            let _ = self.fs.remount(blocks);
        }
    }

    fn step(&mut self, path: &[u8], id: NodeId, node: &Node, step: Step) -> Outcome {
        self.keep_for_maps(FEW_FOR_MAPS);
        let failed = |error: Error| Failure::volume(shown(&join(b"/", path)), &error);
        match (step, &node.kind) {
            (Step::Make, _) => self.make(path, id, node),
            (Step::Contents, Kind::Regular(file)) => self.contents(path, id, node, file),
            (Step::Contents | Step::Attributes, _) => {
                let found = walk::resolve(self.fs, path, false).map_err(failed)?;
                self.attributes(found.ino, node).map_err(failed)
            }
        }
    }

    fn make(&mut self, path: &[u8], id: NodeId, node: &Node) -> Outcome {
        let place = self.place(path)?;
        if place.existing(self.fs)?.is_none() {
            self.keep_for_maps(NONE_FOR_MAPS);
        }
        let failed = |error: Error| Failure::volume(shown(&place.path), &error);
        if let Kind::Directory(_) = node.kind {
            // A file that is in the way is not among what was removed.
            match walk::lookup(self.fs, place.parent, &place.name) {
                Ok(found) if found.kind != FileKind::Directory => {
                    self.fs.unlink(place.parent, &place.name).map_err(failed)?;
                }
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => return Err(failed(error)),
            }
            self.writer.create(place.parent, &place.name, node).map_err(failed)?;
            self.touched.insert(path.to_vec());
            return Ok(());
        }
        if let Some(first) = self.inodes.get(&id).copied() {
            return place.fill(self.fs, 0, |name| {
                let linked = self.fs.link(first, place.parent, name).map_err(failed)?;
                self.fs.forget(linked.ino, 1);
                // A new name is a change of the inode.
                let ctime = Some(node.metadata.ctime);
                let set = SetAttributes { ctime, ..Default::default() };
                self.fs.setattr(first, &set).map(drop).map_err(failed)
            });
        }
        let ino = self.fill(&place, node)?;
        if node.links > 1 {
            self.inodes.insert(id, ino);
        }
        Ok(())
    }

    /// Makes a file in the place of what has the name.
    fn fill(&mut self, place: &Place, node: &Node) -> Outcome<Ino> {
        let failed = |error: Error| Failure::volume(shown(&place.path), &error);
        let bytes = match &node.kind {
            Kind::Regular(file) => file.data_bytes(),
            _ => 0,
        };
        let (fs, writer) = (self.fs, &mut self.writer);
        place.fill(fs, bytes, |name| {
            let ino = writer.create(place.parent, name, node).map_err(failed)?;
            if let Kind::Regular(file) = &node.kind {
                writer.contents(ino, file).map_err(|error| unwritten(place, error))?;
                write_back(fs, ino).map_err(failed)?;
            }
            writer.attributes(ino, node).map(|()| ino).map_err(failed)
        })
    }

    /// Gives a file other contents: as a new file, unless it has several names or there is no room
    /// for both.
    fn contents(&mut self, path: &[u8], id: NodeId, node: &Node, file: &RegularFile) -> Outcome {
        let place = self.place(path)?;
        let failed = |error: Error| Failure::volume(shown(&place.path), &error);
        let old = walk::lookup(self.fs, place.parent, &place.name).map_err(failed)?;
        let bytes = file.data_bytes();
        let is_linked = self.inodes.contains_key(&id);
        if !is_linked && (old.links > 1 || has_room(self.fs, bytes).map_err(failed)?) {
            return self.fill(&place, node).map(drop);
        }
        let writer = &mut self.writer;
        let write = |ino| writer.contents(ino, file).map_err(|error| unwritten(&place, error));
        let contents = Contents { bytes, size: file.size, check: || Ok(()), write };
        overwrite(self.fs, &place, &old, contents)?;
        self.attributes(old.ino, node).map_err(failed)
    }

    fn attributes(&self, ino: Ino, node: &Node) -> cairn_vfs::Result<()> {
        self.writer.remove_attributes(ino, node)?;
        self.writer.attributes(ino, node)
    }

    /// Sets the times of directories in which something has changed, the deepest first.
    fn settle_directories(&mut self) -> Outcome {
        for path in std::mem::take(&mut self.touched).into_iter().rev() {
            let Some(node) = self.wanted.find(&path) else { continue };
            let found = walk::resolve(self.fs, &path, false);
            let done = found.and_then(|found| self.attributes(found.ino, node));
            let done = done.map_err(|error| Failure::volume(shown(&join(b"/", &path)), &error));
            self.pass(done)?;
        }
        Ok(())
    }
}

fn unwritten(place: &Place, error: WriteError) -> Failure {
    match error {
        WriteError::Volume(error) => Failure::volume(shown(&place.path), &error),
        WriteError::Source(error) => build::failure(error),
    }
}
