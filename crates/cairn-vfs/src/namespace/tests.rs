//! A namespace of maps in memory: what is refused in which order, and renames of threads that
//! contend.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank, RwLock};

use super::*;
use crate::types::{NewInode, RenameMode};

type Names = BTreeMap<Vec<u8>, Ino>;

struct Node {
    ino: Ino,
    kind: FileKind,
    names: RwLock<()>,
    links: Mutex<u32>,
    flags: InodeFlags,
    entries: Mutex<Names>,
}

impl NamedInode for Node {
    fn ino(&self) -> Ino {
        self.ino
    }

    fn kind(&self) -> FileKind {
        self.kind
    }

    fn names(&self) -> &RwLock<()> {
        &self.names
    }

    fn links(&self) -> u32 {
        *self.links.lock()
    }

    fn flags(&self) -> InodeFlags {
        self.flags
    }
}

struct Volume {
    nodes: Mutex<BTreeMap<Ino, Arc<Node>>>,
    rename_mutex: Mutex<()>,
}

impl Volume {
    fn new() -> Self {
        let rename_mutex = Mutex::new_ordered(Rank::Namespace, 0, ());
        let volume = Self { nodes: Mutex::new(Rank::Leaf, BTreeMap::new()), rename_mutex };
        volume.add(FileKind::Directory, InodeFlags::empty(), None);
        volume
    }

    fn root(&self) -> Arc<Node> {
        self.nodes.lock()[&Ino(1)].clone()
    }

    /// A new inode, with `..` if it is a directory.
    fn add(&self, kind: FileKind, flags: InodeFlags, parent: Option<Ino>) -> Arc<Node> {
        let mut nodes = self.nodes.lock();
        let ino = Ino(nodes.len() as u64 + 1);
        let entries = match kind {
            FileKind::Directory => BTreeMap::from([(b"..".to_vec(), parent.unwrap_or(ino))]),
            _ => BTreeMap::new(),
        };
        let node = Arc::new(Node {
            ino,
            kind,
            names: RwLock::new_ordered(Rank::Namespace, ino.get(), ()),
            links: Mutex::new(Rank::Leaf, 1),
            flags,
            entries: Mutex::new(Rank::Leaf, entries),
        });
        nodes.insert(ino, node.clone());
        node
    }

    fn make(
        &self,
        parent: &Arc<Node>,
        name: &[u8],
        kind: FileKind,
        flags: InodeFlags,
    ) -> Result<Arc<Node>> {
        let new = if kind == FileKind::Directory { NewInode::Directory } else { NewInode::Regular };
        create(self, parent, name, &new, |name| {
            let node = self.add(kind, flags, Some(parent.ino));
            parent.entries.lock().insert(name.to_vec(), node.ino);
            Ok(node)
        })
    }

    fn directory(&self, parent: &Arc<Node>, name: &[u8]) -> Arc<Node> {
        self.make(parent, name, FileKind::Directory, InodeFlags::empty()).unwrap()
    }

    fn file(&self, parent: &Arc<Node>, name: &[u8], flags: InodeFlags) -> Arc<Node> {
        self.make(parent, name, FileKind::Regular, flags).unwrap()
    }

    fn remove(parent: &Node, name: &[u8], inode: &Node) -> Result<()> {
        parent.entries.lock().remove(name);
        *inode.links.lock() -= 1;
        Ok(())
    }

    fn rename(
        &self,
        from: (&Arc<Node>, &[u8]),
        to: (&Arc<Node>, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<Ino>> {
        Ok(rename(self, from, to, mode)?.map(|inode| inode.ino))
    }

    /// Every inode that can be reached from the root, however often.
    fn reachable(&self) -> Vec<Ino> {
        let (mut found, mut next) = (vec![Ino(1)], 0);
        while let Some(ino) = found.get(next).copied() {
            next += 1;
            let node = self.nodes.lock()[&ino].clone();
            let entries = node.entries.lock();
            found.extend(entries.iter().filter(|(name, _)| *name != b"..").map(|(_, ino)| *ino));
            assert!(found.len() <= 1000, "a loop");
        }
        found.sort();
        found
    }
}

impl Namespace for Volume {
    type Inode = Node;
    type Entry = Ino;
    type Error = Error;
    const LINK_MAX: u32 = 2;

    fn locate(&self, parent: &Arc<Node>, name: &[u8]) -> Result<Option<Ino>> {
        Ok(parent.entries.lock().get(name).copied())
    }

    fn inode(&self, ino: Ino) -> Result<Arc<Node>> {
        self.nodes.lock().get(&ino).cloned().ok_or(Error::Stale)
    }

    fn is_empty(&self, directory: &Arc<Node>) -> Result<bool> {
        Ok(directory.entries.lock().len() == 1)
    }

    fn root(&self) -> Ino {
        Ino(1)
    }

    fn most_inodes(&self) -> u64 {
        self.nodes.lock().len() as u64
    }

    fn rename_mutex(&self) -> &Mutex<()> {
        &self.rename_mutex
    }

    fn replace(
        &self,
        from: &Side<'_, Self>,
        inode: &Arc<Node>,
        to: &Side<'_, Self>,
        target: Option<&Arc<Node>>,
        whiteout: Option<&Caller>,
    ) -> Result<()> {
        assert_eq!((from.entry, to.entry), (Some(inode.ino), target.map(|target| target.ino)));
        from.parent.entries.lock().remove(&*from.name);
        if whiteout.is_some() {
            let left =
                self.add(NewInode::WHITEOUT.kind(), InodeFlags::empty(), Some(from.parent.ino));
            from.parent.entries.lock().insert(from.name.to_vec(), left.ino);
        }
        to.parent.entries.lock().insert(to.name.to_vec(), inode.ino);
        if inode.kind == FileKind::Directory {
            inode.entries.lock().insert(b"..".to_vec(), to.parent.ino);
        }
        if let Some(target) = target {
            *target.links.lock() -= 1;
        }
        Ok(())
    }

    fn exchange(
        &self,
        from: &Side<'_, Self>,
        inode: &Arc<Node>,
        to: &Side<'_, Self>,
        other: &Arc<Node>,
    ) -> Result<()> {
        for (side, moved) in [(from, other), (to, inode)] {
            side.parent.entries.lock().insert(side.name.to_vec(), moved.ino);
            if moved.kind == FileKind::Directory {
                moved.entries.lock().insert(b"..".to_vec(), side.parent.ino);
            }
        }
        Ok(())
    }
}

#[test]
fn names_are_refused_as_linux_refuses_them() {
    assert!(matches!(check_name(b"", Error::Busy), Err(Error::NotFound)));
    assert!(matches!(check_name(b"..", Error::Busy), Err(Error::Busy)));
    assert!(matches!(check_name(&[b'a'; 256], Error::Busy), Err(Error::NameTooLong)));
    assert!(matches!(check_name(b"a/b", Error::Busy), Err(Error::Invalid(_))));
    assert!(
        check_name(&[b'a'; 255], Error::Busy).is_ok() && check_name(b"...", Error::Busy).is_ok()
    );
}

#[test]
fn links_come_and_go_within_the_limit() {
    let volume = Volume::new();
    let root = volume.root();
    let file = volume.file(&root, b"file", InodeFlags::empty());
    let add = |_: Name<'_>| {
        *file.links.lock() += 1;
        Ok(())
    };
    assert!(matches!(link(&volume, &file, &root, b"file", add), Err(Error::Exists)));
    assert!(matches!(link(&volume, &root, &root, b"loop", add), Err(Error::NotPermitted)));
    assert!(matches!(link(&volume, &file, &file, b"a", add), Err(Error::NotDirectory)));
    link(&volume, &file, &root, b"second", add).unwrap();
    assert!(matches!(link(&volume, &file, &root, b"third", add), Err(Error::TooManyLinks)));
    let removed = unlink(&volume, &root, b"file", |entry, inode| {
        assert_eq!(*entry, file.ino);
        Volume::remove(&root, b"file", inode)
    });
    assert_eq!(removed.unwrap().links(), 1);
}

#[test]
fn what_flags_protect_stays() {
    let volume = Volume::new();
    let root = volume.root();
    let refused = |_: &Ino, _: &Arc<Node>| -> Result<()> { panic!("not refused") };
    volume.file(&root, b"kept", InodeFlags::APPEND);
    assert!(matches!(unlink(&volume, &root, b"kept", refused), Err(Error::NotPermitted)));
    let log = volume.make(&root, b"log", FileKind::Directory, InodeFlags::APPEND).unwrap();
    volume.file(&log, b"entry", InodeFlags::empty());
    assert!(matches!(unlink(&volume, &log, b"entry", refused), Err(Error::NotPermitted)));
    let out = volume.rename((&log, b"entry"), (&root, b"entry"), RenameMode::Replace);
    assert!(matches!(out, Err(Error::NotPermitted)));
    volume.file(&root, b"free", InodeFlags::empty());
    assert_eq!(
        volume.rename((&root, b"free"), (&log, b"free"), RenameMode::Replace).unwrap(),
        None
    );
    let over = volume.rename((&root, b"kept"), (&log, b"free"), RenameMode::Exchange);
    assert!(matches!(over, Err(Error::NotPermitted)));
}

#[test]
fn only_empty_directories_go_and_nothing_is_made_in_them() {
    let volume = Volume::new();
    let root = volume.root();
    let outer = volume.directory(&root, b"outer");
    let inner = volume.directory(&outer, b"inner");
    volume.file(&root, b"file", InodeFlags::empty());
    let rmdir = |parent: &Arc<Node>, name: &[u8]| {
        rmdir(&volume, parent, name, |entry, inode| {
            assert_eq!(*entry, inode.ino);
            Volume::remove(parent, name, inode)
        })
    };
    assert!(matches!(rmdir(&root, b"outer"), Err(Error::NotEmpty)));
    assert!(matches!(rmdir(&root, b"file"), Err(Error::NotDirectory)));
    assert!(matches!(rmdir(&outer, b".."), Err(Error::NotEmpty)));
    assert!(matches!(rmdir(&outer, b"."), Err(Error::Invalid(_))));
    assert!(matches!(rmdir(&outer, b"none"), Err(Error::NotFound)));
    rmdir(&outer, b"inner").unwrap();
    let late = volume.make(&inner, b"late", FileKind::Regular, InodeFlags::empty());
    assert!(matches!(late, Err(Error::NotFound)));
}

#[test]
fn a_rename_has_an_answer_to_every_pair() {
    let volume = Volume::new();
    let root = volume.root();
    let outer = volume.directory(&root, b"outer");
    let inner = volume.directory(&outer, b"inner");
    let file = volume.file(&root, b"file", InodeFlags::empty());
    let second = volume.file(&root, b"second", InodeFlags::empty());
    let rename = |from, to, mode| volume.rename(from, to, mode);
    let replace = RenameMode::Replace;
    assert!(matches!(rename((&root, b"outer"), (&inner, b"a"), replace), Err(Error::Invalid(_))));
    assert!(matches!(
        rename((&root, b"outer"), (&root, b"outer"), RenameMode::NoReplace),
        Err(Error::Exists)
    ));
    assert!(matches!(
        rename((&root, b"file"), (&root, b"a"), RenameMode::Exchange),
        Err(Error::NotFound)
    ));
    assert!(matches!(rename((&root, b"none"), (&root, b"a"), replace), Err(Error::NotFound)));
    assert!(matches!(rename((&root, b"."), (&root, b"a"), replace), Err(Error::Busy)));
    assert!(matches!(
        rename((&root, b"file"), (&root, b"outer"), replace),
        Err(Error::IsDirectory)
    ));
    assert!(matches!(
        rename((&root, b"outer"), (&root, b"file"), replace),
        Err(Error::NotDirectory)
    ));
    let third = volume.directory(&root, b"third");
    assert!(matches!(rename((&root, b"third"), (&root, b"outer"), replace), Err(Error::NotEmpty)));
    let into_itself = rename((&outer, b"inner"), (&root, b"outer"), RenameMode::Exchange);
    assert!(matches!(into_itself, Err(Error::Invalid(_))));
    assert_eq!(rename((&root, b"file"), (&root, b"file"), replace).unwrap(), None);
    assert_eq!(rename((&root, b"file"), (&root, b"second"), replace).unwrap(), Some(second.ino));
    rename((&root, b"second"), (&outer, b"inner"), RenameMode::Exchange).unwrap();
    assert_eq!(volume.locate(&inner, b"..").unwrap(), Some(root.ino));
    assert_eq!(volume.reachable(), [root.ino, outer.ino, inner.ino, file.ino, third.ino]);
}

#[test]
fn threads_that_move_directories_into_each_other_neither_wait_for_ever_nor_make_loops() {
    let volume = Volume::new();
    let root = volume.root();
    let places: Vec<_> = (0..4_u8).map(|at| volume.directory(&root, &[b'a' + at])).collect();
    let all = volume.reachable();
    let places: Vec<_> = std::iter::once(root).chain(places).collect();
    thread::scope(|scope| {
        for seed in 1..=4_usize {
            let (volume, places) = (&volume, &places);
            scope.spawn(move || {
                let mut number = seed;
                for _ in 0..2000 {
                    let mut pick = |below: usize| {
                        number = number
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        (number >> 33) % below
                    };
                    let names: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
                    let (from, to) =
                        ((&places[pick(5)], names[pick(4)]), (&places[pick(5)], names[pick(4)]));
                    let mode =
                        if pick(3) == 0 { RenameMode::Exchange } else { RenameMode::NoReplace };
                    // Most are refused: the name is elsewhere by now, or a directory would be moved
                    // into itself.
                    let _outcome = volume.rename(from, to, mode);
                }
            });
        }
    });
    assert_eq!(volume.reachable(), all, "every directory is below the root, once");
}
