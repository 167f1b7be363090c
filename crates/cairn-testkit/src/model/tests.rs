//! The oracle against hand-written expectations.

use cairn_base::Ino;
use cairn_vfs::acl::{self, Entry, Tag};
use cairn_vfs::walk::{self, Next};
use cairn_vfs::{
    Acl, AllocateMode, Attributes, Caller, Error, FileKind, FileSystem, InodeFlags, IoFlags,
    NewInode, RenameMode, Seek, SetAttributes, XattrMode,
};

use super::Model;

const USER: Caller = Caller { uid: 1000, gid: 1000, umask: 0o022, inherits: true };

fn make(model: &Model, parent: Ino, name: &str, new: NewInode<'_>) -> Attributes {
    let made = model.create(parent, name.as_bytes(), new, 0o777, &USER).unwrap();
    model.forget(made.ino, 1);
    made
}

fn file(model: &Model, name: &str) -> Ino {
    make(model, model.root(), name, NewInode::Regular).ino
}

fn contents(model: &Model, ino: Ino) -> Vec<u8> {
    let size = model.getattr(ino).unwrap().size;
    let mut buf = vec![0xee; size as usize + 10];
    let count = model.read(ino, 0, &mut buf, IoFlags::empty()).unwrap();
    assert_eq!(count as u64, size);
    buf.truncate(count);
    buf
}

macro_rules! assert_error {
    ($call:expr, $error:pat) => {
        match $call {
            Err($error) => {}
            other => panic!("{other:?} is not {}", stringify!($error)),
        }
    };
}

#[test]
fn orphans_live_by_their_references() {
    let model = Model::new();
    let held = model.create(model.root(), b"f", NewInode::Regular, 0o666, &USER).unwrap();
    assert_eq!(held.permissions, 0o644);
    model.write(held.ino, 0, b"still here", IoFlags::empty()).unwrap();
    model.unlink(model.root(), b"f").unwrap();
    model.check();
    assert_eq!(contents(&model, held.ino), b"still here");
    assert_eq!(model.getattr(held.ino).unwrap().links, 0);
    model.forget(held.ino, 1);
    assert_error!(model.getattr(held.ino), Error::Stale);
    assert_eq!(model.statfs().unwrap().free_blocks, model.statfs().unwrap().blocks);
    model.check();
}

#[test]
fn a_temporary_file_gets_a_name() {
    let model = Model::new();
    let unnamed = model.tmpfile(model.root(), 0o600, &USER).unwrap();
    assert_eq!(unnamed.links, 0);
    model.link(unnamed.ino, model.root(), b"named").unwrap();
    model.forget(unnamed.ino, 2);
    assert_eq!(walk::resolve(&model, b"/named", false).unwrap().links, 1);
    model.check();
}

#[test]
fn renames_of_all_modes() {
    let model = Model::new();
    let root = model.root();
    let a = make(&model, root, "a", NewInode::Directory).ino;
    let b = make(&model, root, "b", NewInode::Directory).ino;
    let inner = make(&model, a, "inner", NewInode::Directory).ino;
    let f = file(&model, "f");
    assert_error!(model.rename(root, b"a", inner, b"x", RenameMode::Replace), Error::Invalid(_));
    assert_error!(model.rename(root, b"f", root, b"a", RenameMode::Replace), Error::IsDirectory);
    assert_error!(model.rename(root, b"a", root, b"f", RenameMode::Replace), Error::NotDirectory);
    assert_error!(model.rename(root, b"b", root, b"a", RenameMode::Replace), Error::NotEmpty);
    assert_error!(model.rename(root, b"a", root, b"b", RenameMode::NoReplace), Error::Exists);
    assert_error!(model.rename(root, b"a", root, b"none", RenameMode::Exchange), Error::NotFound);
    assert_error!(model.rename(a, b"inner", root, b"a", RenameMode::Exchange), Error::Invalid(_));
    model.rename(a, b"inner", root, b"f", RenameMode::Exchange).unwrap();
    model.check();
    assert_eq!(walk::resolve(&model, b"a/inner", false).unwrap().ino, f);
    assert_eq!(walk::resolve(&model, b"f/..", false).unwrap().ino, root);
    model.rename(root, b"f", root, b"b", RenameMode::Replace).unwrap();
    assert_error!(model.getattr(b), Error::Stale);
    assert_eq!(model.getattr(root).unwrap().links, 4);
    model.check();
}

#[test]
fn sparse_files_and_fallocate() {
    let model = Model::new();
    let f = file(&model, "f");
    let data: Vec<u8> = (0..5 * 4096_u32).map(|n| (n / 7) as u8 | 1).collect();
    model.write(f, 0, &data, IoFlags::empty()).unwrap();
    let mut expected = data.clone();

    model.allocate(f, AllocateMode::PunchHole, 4000, 8300).unwrap();
    expected[4000..12300].fill(0);
    assert_eq!(contents(&model, f), expected);
    assert_eq!(model.seek(f, 0, Seek::Hole).unwrap(), 4096);
    assert_eq!(model.seek(f, 4096, Seek::Data).unwrap(), 12288);

    model.allocate(f, AllocateMode::CollapseRange, 4096, 8192).unwrap();
    expected.drain(4096..12288);
    assert_eq!(contents(&model, f), expected);

    model.allocate(f, AllocateMode::InsertRange, 8192, 4096).unwrap();
    expected.splice(8192..8192, [0; 4096]);
    assert_eq!(contents(&model, f), expected);

    model.allocate(f, AllocateMode::ZeroRange { keep_size: true }, 16000, 9000).unwrap();
    expected[16000..].fill(0);
    assert_eq!(contents(&model, f), expected);

    model.setattr(f, &SetAttributes { size: Some(100), ..Default::default() }).unwrap();
    model.setattr(f, &SetAttributes { size: Some(300), ..Default::default() }).unwrap();
    expected.truncate(100);
    expected.resize(300, 0);
    assert_eq!(contents(&model, f), expected);
    assert_error!(model.seek(f, 300, Seek::Data), Error::NoData);
    assert_error!(model.allocate(f, AllocateMode::CollapseRange, 0, 4096), Error::Invalid(_));
    model.check();
}

#[test]
fn a_full_volume_says_so_and_frees_again() {
    let model = Model::with_blocks(4);
    let f = file(&model, "f");
    assert_eq!(model.write(f, 0, &[1; 4 * 4096], IoFlags::empty()).unwrap(), 4 * 4096);
    assert_error!(model.write(f, 4 * 4096, b"x", IoFlags::empty()), Error::NoSpace);
    assert_eq!(model.write(f, 0, b"over", IoFlags::empty()).unwrap(), 4);
    assert_error!(model.allocate(f, AllocateMode::KeepSize, 0, 5 * 4096), Error::NoSpace);
    model.allocate(f, AllocateMode::PunchHole, 0, 4096).unwrap();
    model.write(f, 5 * 4096, b"x", IoFlags::empty()).unwrap();
    model.unlink(model.root(), b"f").unwrap();
    assert_eq!(model.statfs().unwrap().free_blocks, 4);
    model.check();
}

#[test]
fn copies_and_appends() {
    let model = Model::new();
    let (f, g) = (file(&model, "f"), file(&model, "g"));
    model.write(f, 0, b"one", IoFlags::empty()).unwrap();
    model.write(f, 0, b"two", IoFlags::APPEND).unwrap();
    assert_eq!(contents(&model, f), b"onetwo");
    assert_eq!(model.copy_range(f, 2, g, 1, 100).unwrap(), 4);
    assert_eq!(contents(&model, g), b"\0etwo");
    assert_error!(model.copy_range(f, 0, f, 2, 4), Error::Invalid(_));
}

#[test]
fn default_lists_are_inherited_and_chmod_moves_the_mask() {
    let model = Model::new();
    let root = model.root();
    let entry = |tag, permissions| Entry { tag, permissions };
    let list = Acl::new(vec![
        entry(Tag::UserObj, 7),
        entry(Tag::User(5), 7),
        entry(Tag::GroupObj, 5),
        entry(Tag::Mask, 7),
        entry(Tag::Other, 0),
    ])
    .unwrap();
    model.setxattr(root, acl::DEFAULT, &list.to_xattr(), XattrMode::Set).unwrap();
    let dir = make(&model, root, "d", NewInode::Directory);
    assert_eq!(dir.permissions, 0o770);
    assert_eq!(model.getxattr(dir.ino, acl::DEFAULT).unwrap(), list.to_xattr());
    let made = model.create(root, b"f", NewInode::Regular, 0o664, &USER).unwrap();
    assert_eq!(made.permissions, 0o660);
    model
        .setattr(made.ino, &SetAttributes { permissions: Some(0o600), ..Default::default() })
        .unwrap();
    let stored = Acl::from_xattr(&model.getxattr(made.ino, acl::ACCESS).unwrap()).unwrap().unwrap();
    assert_eq!(stored.equivalent_mode(), (0o600, false));
    model
        .setxattr(made.ino, acl::ACCESS, &Acl::from_mode(0o751).to_xattr(), XattrMode::Set)
        .unwrap();
    assert_eq!(model.getattr(made.ino).unwrap().permissions, 0o751);
    assert_error!(model.getxattr(made.ino, acl::ACCESS), Error::NoAttribute);
    assert_error!(
        model.setxattr(made.ino, acl::DEFAULT, &list.to_xattr(), XattrMode::Set),
        Error::AccessDenied
    );
    assert_error!(
        model.setxattr(made.ino, acl::ACCESS, b"junk", XattrMode::Set),
        Error::Invalid(_)
    );
}

#[test]
fn attributes_of_all_namespaces_and_modes() {
    let model = Model::new();
    let f = file(&model, "f");
    assert_error!(model.setxattr(f, b"user.a", b"1", XattrMode::Replace), Error::NoAttribute);
    model.setxattr(f, b"user.a", b"1", XattrMode::Create).unwrap();
    assert_error!(model.setxattr(f, b"user.a", b"2", XattrMode::Create), Error::Exists);
    assert_error!(model.setxattr(f, b"user.", b"2", XattrMode::Set), Error::Invalid(_));
    assert_error!(model.setxattr(f, b"other.a", b"2", XattrMode::Set), Error::Unsupported(_));
    model.setxattr(f, b"trusted.b", b"", XattrMode::Set).unwrap();
    assert_eq!(model.listxattr(f).unwrap(), [b"trusted.b".to_vec(), b"user.a".to_vec()]);
    model.removexattr(f, b"user.a").unwrap();
    assert_error!(model.removexattr(f, b"user.a"), Error::NoAttribute);
}

#[test]
fn fixed_inodes_refuse_changes() {
    let model = Model::new();
    let root = model.root();
    let f = file(&model, "f");
    let set = |flags| {
        model.setattr(f, &SetAttributes { flags: Some(flags), ..Default::default() }).map(drop)
    };
    set(InodeFlags::IMMUTABLE).unwrap();
    assert_error!(model.write(f, 0, b"x", IoFlags::empty()), Error::NotPermitted);
    assert_error!(model.unlink(root, b"f"), Error::NotPermitted);
    assert_error!(model.rename(root, b"f", root, b"g", RenameMode::Replace), Error::NotPermitted);
    set(InodeFlags::APPEND).unwrap();
    model.write(f, 0, b"x", IoFlags::APPEND).unwrap();
    assert_error!(model.write(f, 0, b"y", IoFlags::empty()), Error::NotPermitted);
    set(InodeFlags::empty()).unwrap();
    model.unlink(root, b"f").unwrap();
}

#[test]
fn set_group_id_directories_and_privileges() {
    let model = Model::new();
    let dir = make(&model, model.root(), "d", NewInode::Directory).ino;
    model
        .setattr(
            dir,
            &SetAttributes { permissions: Some(0o2775), gid: Some(7), ..Default::default() },
        )
        .unwrap();
    let below = make(&model, dir, "sub", NewInode::Directory);
    assert_eq!((below.gid, below.permissions & 0o2000), (7, 0o2000));
    let f = make(&model, dir, "f", NewInode::Regular);
    assert_eq!((f.uid, f.gid), (1000, 7));
    model
        .setattr(f.ino, &SetAttributes { permissions: Some(0o6755), ..Default::default() })
        .unwrap();
    model.write(f.ino, 0, b"x", IoFlags::KILL_PRIVILEGES).unwrap();
    assert_eq!(model.getattr(f.ino).unwrap().permissions, 0o755);
}

#[test]
fn a_reader_sees_each_lasting_entry_once() {
    let model = Model::new();
    let root = model.root();
    for n in 0..100 {
        file(&model, &format!("f{n}"));
    }
    let (mut position, mut seen) = (0, Vec::new());
    // There are more rounds than entries: entries that were added meanwhile come last.
    for round in 0..150 {
        model
            .readdir(root, position, &mut |entry| {
                position = entry.next;
                seen.push(String::from_utf8(entry.name.into_bytes()).unwrap());
                false
            })
            .unwrap();
        if round < 100 && round % 10 == 5 {
            model.unlink(root, format!("f{round}").as_bytes()).unwrap();
        }
        file(&model, &format!("new{round}"));
    }
    for n in (0..100).filter(|n| n % 10 != 5) {
        let name = format!("f{n}");
        assert_eq!(seen.iter().filter(|other| **other == name).count(), 1, "{name}");
    }
    assert_eq!(&seen[..2], [".", ".."]);
}

#[test]
fn paths_follow_links_and_stop_at_loops() {
    let model = Model::new();
    let root = model.root();
    let dir = make(&model, root, "dir", NewInode::Directory).ino;
    let f = make(&model, dir, "f", NewInode::Regular).ino;
    make(&model, root, "abs", NewInode::Symlink(b"/dir"));
    make(&model, dir, "rel", NewInode::Symlink(b"../abs/./f"));
    make(&model, root, "loop", NewInode::Symlink(b"loop"));
    assert_eq!(walk::resolve(&model, b"//abs/rel", true).unwrap().ino, f);
    assert_eq!(walk::resolve(&model, b"/abs/rel", false).unwrap().kind, FileKind::Symlink);
    assert_eq!(walk::resolve(&model, b"/abs/", false).unwrap().ino, dir);
    assert_eq!(walk::resolve(&model, b"/", false).unwrap().ino, root);
    assert_error!(walk::resolve(&model, b"/loop", true), Error::Loop);
    assert_error!(walk::resolve(&model, b"/dir/f/", true), Error::NotDirectory);
    assert_error!(walk::resolve(&model, b"/dir/f/x", true), Error::NotDirectory);
    assert_error!(walk::resolve(&model, b"/dir/none", true), Error::NotFound);
    let (parent, name) = walk::resolve_parent(&model, b"/abs/new/").unwrap();
    assert_eq!((parent.ino, name), (dir, &b"new"[..]));
    assert_error!(walk::resolve_parent(&model, b"/dir/.."), Error::Invalid(_));
    assert_eq!(model.references(f), 0);
}

#[test]
fn walks_visit_everything_once_within_bounds() {
    let model = Model::new();
    let mut at = model.root();
    for depth in 0..50 {
        make(&model, at, "file", NewInode::Regular);
        at = make(&model, at, &format!("d{depth}"), NewInode::Directory).ino;
    }
    let mut paths = Vec::new();
    walk::walk(&model, model.root(), &mut |visit| {
        paths.push(visit.path.to_vec());
        Ok(Next::Continue)
    })
    .unwrap();
    assert_eq!(paths.len(), 101);
    assert!(paths.contains(&b"d0/d1/d2/file".to_vec()));
    assert_error!(
        walk::walk_to_depth(&model, model.root(), 10, &mut |_| Ok(Next::Continue)),
        Error::Corrupt(_)
    );
    let mut count = 0;
    walk::walk(&model, model.root(), &mut |visit| {
        count += 1;
        Ok(if visit.path.ends_with(b"d3") { Next::Skip } else { Next::Continue })
    })
    .unwrap();
    assert_eq!(count, 9);
}

#[test]
fn nothing_works_after_the_end() {
    let model = Model::new();
    let f = file(&model, "f");
    model.shutdown(false).unwrap();
    assert_error!(model.getattr(f), Error::Io(_));
    model.unmount().unwrap();
    assert_error!(model.sync(), Error::Io(_));
}
