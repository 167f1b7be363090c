//! Pools in directories: what is removed together, pools that are not there, and what other users
//! have put in a pool that all may write.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use cairn::{ImageSpec, OpenOptions};
use cairn_testkit::judge;
use cairn_testkit::place::Place;
use serde_json::Value;

use crate::support::{cairn, cairn_as_user, fails, in_dir, works};

/// Who runs the program.
const USER: u32 = 65534;
/// Whose files are in the way.
const OTHER: u32 = 1000;

fn pool() -> (Place, String) {
    let (dir, path) = in_dir("pool");
    let pool = format!("file-store://{path}");
    works(&["mkfs", "--size", "16M", &pool]);
    (dir, pool)
}

fn names(pool: &str) -> Vec<String> {
    let listed: Value =
        serde_json::from_str(&cairn(&["info", "--json", "--pool", pool]).1).unwrap();
    let volumes = listed["volumes"].as_array().unwrap().iter();
    volumes.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn of_volumes_that_are_removed_together_all_go_or_none() {
    let (_dir, pool) = pool();
    for name in ["a", "b"] {
        works(&["snapshot", &pool, name]);
    }
    let all = ["a", "b", "main"];
    let gc = |names: &[&str], status: i32| {
        let mut words = vec!["gc"];
        words.extend(names.iter().flat_map(|name| ["--remove", name]));
        words.push(&pool);
        fails(&words, status)
    };
    let said = gc(&["a", "absent", "b"], 3);
    assert!(said.contains("there is no volume absent: the pool has a, b, main"), "{said}");
    assert_eq!(names(&pool), all);
    let said = gc(&["a", "../volumes/b"], 3);
    assert!(said.contains("no name of a volume"), "{said}");
    assert_eq!(names(&pool), all);
    let spec = ImageSpec::parse(pool.as_ref()).unwrap();
    let held = cairn::open(&spec, &OpenOptions::default()).unwrap();
    let said = gc(&["a", "main"], 6);
    assert!(said.contains("may be lost, cairn gc --force --remove main"), "{said}");
    assert_eq!(names(&pool), all);
    drop(held);
    let said = fails(&["gc", "--force", "--remove", "a", "--remove", "absent", &pool], 3);
    assert!(said.contains("there is no volume absent"), "{said}");
    assert_eq!(names(&pool), all);
    works(&["gc", "--remove", "a", "--remove", "b", &pool]);
    assert_eq!(names(&pool), ["main"]);
}

#[test]
fn a_damaged_volume_is_removed_by_force_alone() {
    let (dir, pool) = pool();
    fs::write(dir.path().join("pool/volumes/bad"), "x").unwrap();
    let said = fails(&["gc", "--remove", "bad", &pool], 3);
    assert!(said.contains("to give up what is lost, cairn gc --force --remove bad"), "{said}");
    works(&["gc", "--force", "--remove", "bad", &pool]);
    assert_eq!(names(&pool), ["main"]);
    let said = fails(&["gc", "--remove", "bad", &pool], 3);
    assert!(said.contains("there is no volume bad: the pool has main"), "{said}");
}

/// Its objects may be needed, as those of a damaged one.
#[test]
fn a_lost_volume_is_removed_by_force_alone() {
    let (dir, pool) = pool();
    works(&["clone", &pool, "other"]);
    fs::remove_file(dir.path().join("pool/volumes/main")).unwrap();
    for words in [&["gc", &pool][..], &["gc", "--remove", "main", &pool]] {
        let said = fails(words, 3);
        assert!(said.contains("the manifest of the volume main is lost"), "{said}");
        assert!(said.contains("cairn gc --force --remove main"), "{said}");
    }
    let (status, listed, said) = cairn(&["info", "--pool", &pool]);
    assert!(status == 4 && listed.contains("unreadable"), "{status}: {listed}");
    assert!(said.contains("the manifest of the volume main is lost"), "{said}");
    works(&["gc", "--force", "--remove", "main", &pool]);
    works(&["ls", &format!("{pool}@other")]);
    works(&["gc", "--verify", &pool]);
}

/// One line, whatever the volume did about it, and what it means for the files.
#[test]
fn a_store_that_takes_no_more_is_told_in_one_line() {
    let (dir, pool) = pool();
    let file = dir.path().join("file");
    fs::write(&file, vec![7; 4 << 20]).unwrap();
    let program = env!("CARGO_BIN_EXE_cairn");
    let script = format!("ulimit -f 1024; exec {program} put '{pool}' {} /", file.display());
    let done = Command::new("sh").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!((done.status.code(), said.lines().count()), (Some(7), 1), "{said}");
    assert!(said.contains("what this run wrote may be missing"), "{said}");
}

#[test]
fn a_snapshot_is_replaced_by_nothing() {
    let (dir, pool) = pool();
    works(&["touch", &pool, "/kept"]);
    works(&["snapshot", &pool, "monday"]);
    let monday = format!("{pool}@monday");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    // It is told before the sources are read.
    let said = fails(&["build", "-F", &monday, "/nowhere/"], 3);
    assert!(said.contains("monday is a snapshot") && said.contains("another name"), "{said}");
    let sources = format!("{}/", tree.display());
    fails(&["build", "-F", "--partition", "gpt", &monday, &sources], 3);
    fails(&["mkfs", "-F", &monday], 3);
    fails(&["resize", &monday, "32M"], 3);
    assert!(works(&["ls", &monday]).contains("kept"));
    works(&["build", "-F", &pool, &sources]);
    assert!(works(&["ls", &monday]).contains("kept"));
    works(&["gc", "--verify", "--remove", "monday", &pool]);
    works(&["build", &monday, &sources]);
}

#[test]
fn a_pool_that_is_not_there_is_a_missing_image() {
    let (dir, pool) = pool();
    let absent = format!("file-store://{}", dir.path().join("absent").display());
    // A directory without volumes, and what only looks like a pool's.
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join(".new-1-0"), "somebody's").unwrap();
    let other_pool = format!("file-store://{}", other.display());
    for name in [&absent, &other_pool] {
        for words in [&["gc", name][..], &["info", "--pool", name], &["gc", "--verify", name]] {
            let said = fails(words, 3);
            assert!(said.contains("there is no pool: look at the address"), "{said}");
        }
    }
    assert!(!dir.path().join("absent").exists() && other.join(".new-1-0").exists());
    // One without volumes is still one.
    works(&["gc", "--remove", "main", &pool]);
    works(&["gc", &pool]);
    assert_eq!(names(&pool), [""; 0]);
}

#[test]
fn a_link_of_another_user_is_no_way_to_a_pool() {
    assert!(judge::is_root(), "root makes links of others");
    let (dir, pool) = pool();
    let shared = dir.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    let link = shared.join("pool");
    symlink(dir.path().join("pool"), &link).unwrap();
    let address = format!("file-store://{}", link.display());
    works(&["ls", &address]);
    assert_eq!(names(&address), ["main"]);
    lchown(&link, Some(OTHER), None).unwrap();
    for words in [
        &["ls", &address][..],
        &["touch", &address, "/x"],
        &["mkfs", "-F", &address],
        &["info", "--pool", &address],
        &["gc", &address],
        &["snapshot", &address, "new"],
    ] {
        let said = fails(words, 3);
        assert!(said.contains("a symbolic link of another user"), "{words:?}: {said}");
    }
    assert_eq!(names(&pool), ["main"]);
}

/// A pool that all may write, of which a user has the volumes.
fn shared_pool() -> (Place, String) {
    assert!(judge::is_root(), "root makes files of others");
    let (dir, pool) = pool();
    let root = dir.path().join("pool");
    fs::create_dir_all(root.join("log/00000000000000ff")).unwrap();
    give(&root);
    (dir, pool)
}

fn give(folder: &Path) {
    fs::set_permissions(folder, Permissions::from_mode(0o1777)).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => give(&path),
            false => chown(&path, Some(USER), Some(USER)).unwrap(),
        }
    }
}

#[test]
fn what_others_have_put_in_a_pool_is_named_and_left_alone() {
    let (dir, pool) = shared_pool();
    let at = |name: &str| dir.path().join("pool").join(name);
    let aim = dir.path().join("aim");
    fs::write(&aim, "no object").unwrap();
    // Objects that no volume needs.
    let (own, others) = (
        "log/00000000000000ff/00000001-0000000000000000",
        "log/00000000000000ff/00000001-0000000000000001",
    );
    for (name, owner) in
        [(own, USER), (others, OTHER), ("log/.new-1-0", OTHER), ("log/.new-1-1", USER)]
    {
        fs::write(at(name), [7; 100]).unwrap();
        fs::set_permissions(at(name), Permissions::from_mode(0o600)).unwrap();
        chown(at(name), Some(owner), None).unwrap();
    }
    for name in ["volumes/trap", "log/trap", "map/trap", "log/.new-1-2"] {
        symlink(&aim, at(name)).unwrap();
        lchown(at(name), Some(OTHER), None).unwrap();
    }
    judge::run("mkfifo", [at("volumes/pipe")]);
    fs::create_dir(at("map/closed")).unwrap();
    fs::set_permissions(at("map/closed"), Permissions::from_mode(0o700)).unwrap();
    chown(at("map/closed"), Some(OTHER), None).unwrap();

    let (status, listed, said) = cairn(&["info", "--pool", &pool]);
    assert!(status == 0 && listed.contains("main") && !listed.contains("trap"), "{said}");
    assert!(said.contains("volumes/trap is left alone: a symbolic link of another user"), "{said}");
    let image = aim.to_str().unwrap();
    let (status, said) = cairn_as_user(dir.path(), image, &["info", "--pool", &pool]);
    assert!(status == 0 && said.contains("map/closed is left alone"), "{status}: {said}");

    let (status, said) = cairn_as_user(dir.path(), image, &["gc", &pool]);
    assert_eq!(status, 0, "{said}");
    for name in [
        others,
        "volumes/trap",
        "log/trap",
        "map/trap",
        "log/.new-1-0",
        "log/.new-1-2",
        "volumes/pipe",
        "map/closed",
    ] {
        let line = format!("{name} is left alone: ");
        assert_eq!(said.matches(&line).count(), 1, "{name}: {said}");
        assert!(fs::symlink_metadata(at(name)).is_ok(), "{name} is gone");
    }
    assert!(!at(own).exists() && !at("log/.new-1-1").exists(), "{said}");
    assert_eq!(fs::read(&aim).unwrap(), b"no object");
    works(&["ls", &pool]);
}

/// It may need any object.
#[test]
fn a_volume_that_may_not_be_read_is_no_reason_to_hide_the_others() {
    let (dir, pool) = shared_pool();
    works(&["snapshot", &pool, "closed"]);
    let at = |name: &str| dir.path().join("pool").join(name);
    fs::set_permissions(at("volumes/closed"), Permissions::from_mode(0o600)).unwrap();
    chown(at("volumes/closed"), Some(OTHER), None).unwrap();
    let garbage = at("log/00000000000000ff/00000001-0000000000000000");
    fs::write(&garbage, [7; 100]).unwrap();
    chown(&garbage, Some(USER), None).unwrap();
    let image = dir.path().join("aim");
    fs::write(&image, "").unwrap();
    let as_user = |words: &[&str]| cairn_as_user(dir.path(), image.to_str().unwrap(), words);
    let (status, said) = as_user(&["info", "--pool", &pool]);
    assert!(
        status == 3 && said.contains("@closed") && said.lines().count() == 1,
        "{status}: {said}"
    );
    let (status, said) = as_user(&["gc", &pool]);
    assert!(status == 3 && said.contains("volumes/closed"), "{status}: {said}");
    assert!(said.contains("nothing is removed") && garbage.exists(), "{said}");
    works(&["gc", &pool]);
    assert!(!garbage.exists());
}
