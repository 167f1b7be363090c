//! The commands on the oracle model: their changes and their errors.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use cairn_cli::commands::{cat, chmod, chown, get, ln, ls, mkdir, mv, put, rm, stat};
use cairn_cli::failure::Status;
use cairn_cli::output::Output;
use cairn_testkit::judge::is_root;
use cairn_testkit::model::Model;
use cairn_testkit::tree::{
    PathTarget, SnapshotOptions, TreeSpec, VolumeTarget, build, digest_path, digest_volume, plan,
};
use cairn_vfs::{Attributes, Caller, FileSystem, IoFlags, NewInode, walk};
use clap::Parser;

/// Parses one command's arguments as the program does.
#[derive(Debug, Parser)]
struct Line<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

fn args<A: clap::Args>(line: &str) -> A {
    let words = std::iter::once("command").chain(line.split(' ').filter(|word| !word.is_empty()));
    Line::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).args
}

fn nowhere() -> Output<'static> {
    Output::to(std::io::sink())
}

fn mkdir(fs: &dyn FileSystem, line: &str) {
    mkdir::make(fs, &args(line), &mut nowhere()).unwrap();
}

fn file(fs: &dyn FileSystem, path: &str, contents: &[u8]) {
    let (parent, name) = walk::resolve_parent(fs, path.as_bytes()).unwrap();
    let made = fs.create(parent.ino, name, NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    assert_eq!(fs.write(made.ino, 0, contents, IoFlags::empty()).unwrap(), contents.len());
    fs.forget(made.ino, 1);
}

fn at(fs: &dyn FileSystem, path: &str) -> cairn_vfs::Result<Attributes> {
    walk::resolve(fs, path.as_bytes(), false)
}

fn read(fs: &dyn FileSystem, path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    cat::print(fs, vec![path.into()], &mut Output::to(&mut bytes)).unwrap();
    bytes
}

fn list(fs: &dyn FileSystem, line: &str) -> String {
    let mut bytes = Vec::new();
    ls::list(fs, &args(line), &mut Output::to(&mut bytes)).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn mkdir_makes_parents_only_when_asked() {
    let fs = Model::new();
    let failure = mkdir::make(&fs, &args("img /a/b/c"), &mut nowhere()).unwrap_err();
    assert_eq!(failure.status, Status::Failed);
    mkdir(&fs, "-p img /a/b/c");
    mkdir(&fs, "-p img /a/b/c");
    mkdir(&fs, "-m 700 img a/private");
    assert_eq!(at(&fs, "/a/private").unwrap().permissions, 0o700);
    assert_eq!(at(&fs, "/a/b").unwrap().permissions, 0o755);
    assert!(mkdir::make(&fs, &args("img /a"), &mut nowhere()).is_err());
}

#[test]
fn rm_takes_directories_only_with_r() {
    let fs = Model::new();
    mkdir(&fs, "-p img /tree/deep/deeper");
    file(&fs, "/tree/deep/file", b"x");
    file(&fs, "/other", b"x");
    let failure = rm::remove(&fs, &args("img /tree"), &mut nowhere()).unwrap_err();
    assert!(failure.to_string().contains("-r"), "{failure}");
    rm::remove(&fs, &args("-r img /tree /other"), &mut nowhere()).unwrap();
    assert!(at(&fs, "/tree").is_err() && at(&fs, "/other").is_err());
    assert!(rm::remove(&fs, &args("img /tree"), &mut nowhere()).is_err());
    rm::remove(&fs, &args("-f img /tree"), &mut nowhere()).unwrap();
    // Only the root is left.
    assert_eq!(fs.inode_count(), 1);
}

#[test]
fn ln_makes_both_kinds() {
    let fs = Model::new();
    mkdir(&fs, "img /d");
    file(&fs, "/f", b"text");
    ln::link(&fs, &args("img /f /hard"), &mut nowhere()).unwrap();
    ln::link(&fs, &args("-s img ../f /d"), &mut nowhere()).unwrap();
    assert_eq!(at(&fs, "/hard").unwrap().links, 2);
    assert_eq!(fs.readlink(at(&fs, "/d/f").unwrap().ino).unwrap(), b"../f");
    assert_eq!(read(&fs, "/d/f"), b"text");
    assert!(ln::link(&fs, &args("-s img x /hard"), &mut nowhere()).is_err());
    ln::link(&fs, &args("-sf img x /hard"), &mut nowhere()).unwrap();
    assert_eq!(at(&fs, "/f").unwrap().links, 1);
    assert!(
        ln::link(&fs, &args("img /d /dd"), &mut nowhere()).is_err(),
        "a hard link to a directory"
    );
}

#[test]
fn mv_renames_moves_and_exchanges() {
    let fs = Model::new();
    mkdir(&fs, "img /d");
    file(&fs, "/a", b"a");
    file(&fs, "/b", b"b");
    mv::rename(&fs, &args("--exchange img /a /b"), &mut nowhere()).unwrap();
    assert_eq!(read(&fs, "/a"), b"b");
    // As in coreutils: an existing file stays, without a failure.
    mv::rename(&fs, &args("-n img /a /b"), &mut nowhere()).unwrap();
    assert_eq!((read(&fs, "/a"), read(&fs, "/b")), (b"b".to_vec(), b"a".to_vec()));
    mv::rename(&fs, &args("img /a /b"), &mut nowhere()).unwrap();
    mv::rename(&fs, &args("img /b /d"), &mut nowhere()).unwrap();
    assert_eq!(read(&fs, "/d/b"), b"b");
    let failure = mv::rename(&fs, &args("img /none /x"), &mut nowhere()).unwrap_err();
    assert!(failure.to_string().starts_with("/none: no such file"), "{failure}");
}

#[test]
fn chmod_and_chown_go_into_trees_but_not_through_links() {
    let fs = Model::new();
    mkdir(&fs, "-p img /t/d");
    file(&fs, "/t/d/f", b"");
    file(&fs, "/outside", b"");
    ln::link(&fs, &args("-s img /outside /t/link"), &mut nowhere()).unwrap();
    let change = chmod::Change::parse("u=rwX,go=").unwrap();
    chmod::apply(&fs, &change, &["/t".into()], true).unwrap();
    assert_eq!(
        (at(&fs, "/t/d").unwrap().permissions, at(&fs, "/t/d/f").unwrap().permissions),
        (0o700, 0o600)
    );
    assert_eq!(at(&fs, "/outside").unwrap().permissions, 0o644);
    chown::apply(&fs, &args("-R img 10:20 /t")).unwrap();
    let owner = |path| at(&fs, path).map(|of| (of.uid, of.gid)).unwrap();
    assert_eq!(
        (owner("/t/d/f"), owner("/t/link"), owner("/outside")),
        ((10, 20), (10, 20), (0, 0))
    );
    chown::apply(&fs, &args("img :7 /t/link")).unwrap();
    assert_eq!(owner("/outside"), (0, 7));
}

#[test]
fn ls_lists_long_hidden_and_deep() {
    let fs = Model::new();
    mkdir(&fs, "-p img /etc/conf.d");
    file(&fs, "/etc/fstab", b"12345");
    file(&fs, "/etc/.hidden", b"");
    ln::link(&fs, &args("-s img fstab /etc/tab"), &mut nowhere()).unwrap();
    assert_eq!(list(&fs, "img /etc"), "conf.d\nfstab\ntab\n");
    assert_eq!(list(&fs, "-a img /etc"), ".\n..\n.hidden\nconf.d\nfstab\ntab\n");
    let long = list(&fs, "-l img /etc");
    assert!(long.contains("-rw-r--r--   1     0     0          5 "), "{long}");
    assert!(long.contains(" tab -> fstab\n"), "{long}");
    assert_eq!(list(&fs, "-R img /"), "/:\netc\n\n/etc:\nconf.d\nfstab\ntab\n\n/etc/conf.d:\n");
    assert_eq!(list(&fs, "img etc/fstab"), "etc/fstab\n");
    assert!(ls::list(&fs, &args("img /nope"), &mut nowhere()).is_err());
}

#[test]
fn stat_prints_text_and_json() {
    let fs = Model::new();
    file(&fs, "/f", b"hello");
    let describe = |line: &str| {
        let mut bytes = Vec::new();
        stat::describe(&fs, &args(line), &mut Output::to(&mut bytes)).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let text = describe("img /f");
    assert!(text.contains("Size: 5 bytes") && text.contains("0644 -rw-r--r--"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&describe("--json img /f /")).unwrap();
    assert_eq!((json[0]["size"].as_u64(), json[0]["mode"].as_str()), (Some(5), Some("0644")));
    assert_eq!(json[1]["kind"], "directory");
}

#[test]
fn cat_refuses_what_is_not_a_file() {
    let fs = Model::new();
    mkdir(&fs, "img /d");
    for path in ["/d", "/none"] {
        assert!(cat::print(&fs, vec![path.into()], &mut nowhere()).is_err(), "{path}");
    }
}

#[test]
fn put_and_get_keep_whole_trees() {
    let spec = TreeSpec { privileged: is_root(), xattrs: is_root(), ..TreeSpec::small(5) };
    let steps = plan(&spec);
    let host = tempfile::tempdir().unwrap();
    let source = host.path().join("source");
    std::fs::create_dir(&source).unwrap();
    build(&PathTarget::new(&source), &steps);
    let options = SnapshotOptions::default();
    let before = digest_path(&source, options).unwrap();

    let fs = Model::new();
    put::copy_in(&fs, std::slice::from_ref(&source), b"/put", None, &[]).unwrap();
    let on_volume = digest_volume(&fs, options).unwrap();
    assert_eq!(on_volume.len(), before.len() + 1, "the tree and the volume's root");

    let destination = host.path().join("copy");
    get::copy_out(&fs, &["/put".as_ref()], &destination).unwrap();
    before.assert_same(&digest_path(&destination, options).unwrap());
    // Into an existing directory; the second copy overwrites the first.
    let into = host.path().join("into");
    std::fs::create_dir(&into).unwrap();
    for _ in 0..2 {
        get::copy_out(&fs, &["/put".as_ref()], &into).unwrap();
        before.assert_same(&digest_path(&into.join("put"), options).unwrap());
    }
}

#[test]
fn get_keeps_holes() {
    let fs = Model::new();
    file(&fs, "/sparse", b"start");
    let ino = at(&fs, "/sparse").unwrap().ino;
    fs.write(ino, 64 << 20, b"end", IoFlags::empty()).unwrap();
    let host = tempfile::tempdir().unwrap();
    get::copy_out(&fs, &["/sparse".as_ref()], host.path()).unwrap();
    let metadata = std::fs::metadata(host.path().join("sparse")).unwrap();
    assert_eq!(metadata.len(), (64 << 20) + 3);
    assert!(metadata.blocks() * 512 < 1 << 20, "{} sectors", metadata.blocks());
}

#[test]
fn get_never_follows_what_is_in_the_way() {
    let fs = Model::new();
    mkdir(&fs, "-p img /t/sub");
    file(&fs, "/t/sub/f", b"image");
    let host = tempfile::tempdir().unwrap();
    let elsewhere = host.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("f"), b"precious").unwrap();
    std::fs::create_dir(host.path().join("t")).unwrap();
    symlink(&elsewhere, host.path().join("t/sub")).unwrap();
    assert!(get::copy_out(&fs, &["/t".as_ref()], host.path()).is_err());
    assert_eq!(std::fs::read(elsewhere.join("f")).unwrap(), b"precious");
    // A link in place of a file is replaced, not written through.
    file(&fs, "/f", b"image");
    symlink(elsewhere.join("f"), host.path().join("f")).unwrap();
    get::copy_out(&fs, &["/f".as_ref()], host.path()).unwrap();
    assert_eq!(std::fs::read(elsewhere.join("f")).unwrap(), b"precious");
    assert_eq!(std::fs::read(host.path().join("f")).unwrap(), b"image");
}

#[test]
fn put_overwrites_files_merges_directories_and_sets_owners() {
    let host = tempfile::tempdir().unwrap();
    let source = host.path().join("etc");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("new"), b"new").unwrap();
    std::fs::write(source.join("old"), b"newer").unwrap();
    std::fs::set_permissions(source.join("new"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    let fs = Model::new();
    mkdir(&fs, "img /etc");
    file(&fs, "/etc/old", b"older text");
    file(&fs, "/etc/kept", b"kept");
    let owner: chown::Args = args("img 1000:100 /");
    put::copy_in(&fs, &[source], b"/", Some(owner.owner), &[]).unwrap();
    assert_eq!(
        (read(&fs, "/etc/old"), read(&fs, "/etc/kept")),
        (b"newer".to_vec(), b"kept".to_vec())
    );
    let new = at(&fs, "/etc/new").unwrap();
    assert_eq!((new.uid, new.gid, new.permissions), (1000, 100, 0o4755));
}

#[test]
fn several_sources_need_a_directory() {
    let fs = Model::new();
    file(&fs, "/a", b"");
    file(&fs, "/b", b"");
    let host = tempfile::tempdir().unwrap();
    let missing = host.path().join("missing");
    assert!(get::copy_out(&fs, &["/a".as_ref(), "/b".as_ref()], &missing).is_err());
    get::copy_out(&fs, &["/a".as_ref(), "/b".as_ref()], host.path()).unwrap();
    let sources: Vec<PathBuf> = ["a", "b"].map(|name| host.path().join(name)).into();
    assert!(put::copy_in(&fs, &sources, b"/none", None, &[]).is_err());
}

#[test]
fn a_full_volume_is_one_clear_line() {
    let host = tempfile::tempdir().unwrap();
    let source = host.path().join("big");
    std::fs::write(&source, vec![1; 1 << 20]).unwrap();
    let fs = Model::with_blocks(16);
    let failure = put::copy_in(&fs, &[source], b"/", None, &[]).unwrap_err();
    let text = failure.to_string();
    assert!(
        text.contains("no space left") && text.contains("larger image") && !text.contains('\n'),
        "{text}"
    );
}

#[test]
fn names_need_not_be_text() {
    let fs = Model::new();
    let name = b"\xff\xfe name\n".to_vec();
    VolumeTarget::new(&fs).resolve(b"/").unwrap();
    let made = fs.create(fs.root(), &name, NewInode::Regular, 0o600, &Caller::ROOT).unwrap();
    fs.forget(made.ino, 1);
    let host = tempfile::tempdir().unwrap();
    let path = OsString::from_vec([b"/".as_slice(), &name].concat());
    get::copy_out(&fs, &[&path], host.path()).unwrap();
    assert!(host.path().join(OsString::from_vec(name)).exists());
}
