//! `sync`: entries become entries of any other kind, also names of other files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use cairn_testkit::judge;
use cairn_testkit::place::Place;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::support::works;

const FORMATS: [&str; 2] = ["ext4", "f2fs"];

/// What an entry can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Nothing,
    Empty,
    /// With a file and a directory in it.
    Directory,
    File,
    Symlink,
    Device,
    Fifo,
    Socket,
    /// Another name of this entry of [`FIRST`].
    Name(usize),
    /// Another name of a file that only such names have.
    Together(usize),
}

/// Entries that every tree has, of each kind that can have several names.
const FIRST: [&str; 4] = ["m.file", "m.link", "m.device", "m.fifo"];

const ALL: [What; 14] = [
    What::Nothing,
    What::Empty,
    What::Directory,
    What::File,
    What::Symlink,
    What::Device,
    What::Fifo,
    What::Socket,
    What::Name(0),
    What::Name(1),
    What::Name(2),
    What::Name(3),
    What::Together(0),
    What::Together(1),
];

/// A directory to which entries are added.
struct Source {
    root: std::path::PathBuf,
    /// Where the first names of [`What::Together`] are.
    together: [Option<String>; 2],
}

impl Source {
    fn new(root: &str) -> Self {
        fs::create_dir(root).unwrap();
        let source = Self { root: root.into(), together: [None, None] };
        fs::write(source.at(FIRST[0]), "first").unwrap();
        symlink("to", source.at(FIRST[1])).unwrap();
        source.node(FIRST[2], FileType::CharacterDevice);
        source.node(FIRST[3], FileType::Fifo);
        source
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.root.join(name)
    }

    fn node(&self, name: &str, kind: FileType) {
        mknodat(CWD, self.at(name), kind, Mode::from(0o640), makedev(1, 3)).unwrap();
    }

    fn add(&mut self, name: &str, what: What) {
        let at = self.at(name);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        match what {
            What::Nothing => {}
            What::Empty => fs::create_dir(at).unwrap(),
            What::Directory => {
                fs::create_dir_all(at.join("inner")).unwrap();
                fs::write(at.join("below"), "below").unwrap();
                fs::hard_link(self.at(FIRST[0]), at.join("inner/name")).unwrap();
            }
            What::File => fs::write(at, name).unwrap(),
            What::Symlink => symlink(name, at).unwrap(),
            What::Device => self.node(name, FileType::BlockDevice),
            What::Fifo => self.node(name, FileType::Fifo),
            What::Socket => self.node(name, FileType::Socket),
            What::Name(number) => fs::hard_link(self.at(FIRST[number]), at).unwrap(),
            What::Together(number) => match &self.together[number] {
                Some(first) => fs::hard_link(self.at(first), at).unwrap(),
                None => {
                    fs::write(at, format!("together {number}")).unwrap();
                    self.together[number] = Some(name.to_owned());
                }
            },
        }
    }
}

/// An image of `a` becomes one of `b`, equal to one that was made of `b`.
fn becomes(place: &Place, format: &str) {
    let at = |name: &str| format!("{}/{name}", place.path().display());
    works(&["build", "-F", "-t", format, "--free", "16M", &at("image"), &at("a/")]);
    works(&["build", "-F", "-t", format, &at("fresh"), &at("b/")]);
    works(&["sync", &at("b/"), &at("image")]);
    assert_eq!(works(&["diff", &at("image"), &at("fresh")]), "");
    let again = works(&["sync", &at("b/"), &at("image")]);
    assert!(again.starts_with("0 made, 0 changed, 0 removed, "), "{again}");
    let image = at("image");
    match format {
        "ext4" => judge::assert_clean(Path::new(&image)),
        _ => judge::assert_f2fs_clean(Path::new(&image)),
    }
}

#[test]
fn any_kind_becomes_any_other() {
    let place = Place::new();
    let at = |name: &str| format!("{}/{name}", place.path().display());
    let (mut a, mut b) = (Source::new(&at("a")), Source::new(&at("b")));
    for (n, was) in ALL.into_iter().enumerate() {
        for (m, is) in ALL.into_iter().enumerate() {
            // Before and behind the names that all trees have.
            for name in [format!("d/{n}.{m}"), format!("z.{n}.{m}")] {
                a.add(&name, was);
                b.add(&name, is);
            }
        }
    }
    for format in FORMATS {
        becomes(&place, format);
    }
}

#[test]
fn any_names_become_any_others() {
    let few = if std::env::var_os("CAIRN_DEEP").is_some() { 200 } else { 8 };
    for seed in 0..few {
        println!("seed {seed}");
        let place = Place::new();
        let mut random = fastrand::Rng::with_seed(seed);
        for side in ["a", "b"] {
            let mut source = Source::new(&format!("{}/{side}", place.path().display()));
            // In a directory or beside it; the directory itself may be another kind of entry.
            for name in ["a", "b", "n", "o", "y", "z"] {
                if random.bool() {
                    for inner in ["a", "m", "z"] {
                        source.add(&format!("{name}/{inner}"), ALL[random.usize(..ALL.len())]);
                    }
                } else {
                    source.add(name, ALL[random.usize(..ALL.len())]);
                }
            }
        }
        becomes(&place, FORMATS[usize::try_from(seed % 2).unwrap()]);
    }
}

/// mkfs makes this directory on ext4, and fsck keeps it.
#[test]
fn an_empty_lost_and_found_is_no_change() {
    let place = Place::new();
    let at = |name: &str| format!("{}/{name}", place.path().display());
    Source::new(&at("a"));
    for format in FORMATS {
        works(&["build", "-F", "-t", format, "--free", "16M", &at("image"), &at("a/")]);
        fs::create_dir_all(at("a/lost+found")).unwrap();
        works(&["sync", &at("a/"), &at("image")]);
        let again = works(&["sync", &at("a/"), &at("image")]);
        assert!(again.starts_with("0 made, 0 changed, 0 removed, "), "{format}: {again}");
        assert_eq!(works(&["diff", &at("image"), &at("a/")]), "", "{format}");
        fs::write(at("a/lost+found/#12"), "found").unwrap();
        works(&["sync", &at("a/"), &at("image")]);
        assert_eq!(works(&["cat", &at("image"), "/lost+found/#12"]), "found");
        fs::remove_file(at("a/lost+found/#12")).unwrap();
        works(&["sync", &at("a/"), &at("image")]);
        assert_eq!(works(&["diff", &at("image"), &at("a/")]), "", "{format}");
        fs::remove_dir(at("a/lost+found")).unwrap();
    }
}
