//! Copies over what is there, judged by cp(1) on the kernel's ext4: each case runs twice, and what
//! is left is the same: the same inode or another, its kind, mode, owner, names, size and
//! attributes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cairn_testkit::judge::{self, KernelMount};

use crate::support::{cairn, in_dir, works};

/// A source of each kind and what it is copied over, with sizes that tell old from new.
const POPULATE: &str = "
set -e
mkdir case0 && cd case0
printf newer > src; chmod 640 src; setfattr -n user.src -v s src; setfacl -m u:9:rw src
ln src srchard; ln -s src srcsym; ln -s nothing slink; mkfifo sfifo
printf old > file; chmod 604 file; chown 5:6 file; setfattr -n user.old -v o file; setfacl -m \
u:7:rwx file
chmod u+s file; printf old > linked; ln linked linked2; printf old > target; ln -s target sym; ln \
-s linked symlinked
ln -s none dangling; ln -s loop loop; mkdir dir; ln -s dir symdir; mkfifo fifo; mknod device c 1 3
printf old > readonly; chmod 444 readonly; printf old > immutable; printf old > append";

const OPTIONS: [&str; 4] = ["", "-a", "-f", "--remove-destination"];

/// Targets that need a process at the other end, or a device, are left out.
const TARGETS: [&str; 14] = [
    "file",
    "linked",
    "sym",
    "symlinked",
    "dangling",
    "loop",
    "dir",
    "symdir",
    "readonly",
    "immutable",
    "append",
    "srchard",
    "srcsym",
    "src",
];

/// Options, source and target.
fn cases() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut cases: Vec<_> = OPTIONS
        .into_iter()
        .flat_map(|options| TARGETS.into_iter().map(move |to| (options, "src", to)))
        .collect();
    for options in ["-p", "-P", "-r"] {
        let targets = ["file", "linked", "sym", "dangling", "srchard"];
        cases.extend(targets.map(|to| (options, "src", to)));
    }
    for (options, targets) in [
        ("-a", &["file", "linked", "sym", "dangling", "fifo", "immutable", "dir"][..]),
        ("-P", &["file", "sym"]),
        ("-r", &["dangling"]),
    ] {
        cases.extend(targets.iter().map(|to| (options, "slink", *to)));
    }
    for to in ["file", "sym", "fifo", "device"] {
        cases.extend([("-a", "sfifo", to), ("--remove-destination", "src", to), ("-n", "src", to)]);
    }
    cases.extend([
        ("-P", "srcsym", "src"),
        ("-a", "srcsym", "src"),
        ("-P --remove-destination", "srcsym", "src"),
    ]);
    cases
}

fn script(at: &Path, text: &str) {
    let output = judge::command("bash").args(["-c", text]).current_dir(at).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Of each path, which inode it is, and what is known of it otherwise.
fn listing(image: &str) -> Listing {
    let told = works(&["find", "--json", image, "/", "-not", "-name", "lost+found"]);
    let all: Vec<serde_json::Value> = serde_json::from_str(&told).unwrap();
    let line = |one: &serde_json::Value| {
        let get = |key: &str| one[key].to_string();
        let what = ["kind", "mode", "uid", "gid", "links", "size", "target", "device"].map(get);
        let is_directory = one["kind"] == "directory";
        // The sizes of directories are the format's affair.
        let what = if is_directory { what[0].clone() } else { what.join(" ") };
        let inode = format!("{} {}", get("inode"), get("generation"));
        (one["path"].as_str().unwrap().to_owned(), (inode, what))
    };
    all.iter().map(line).collect()
}

type Listing = BTreeMap<String, (String, String)>;

/// What became of each name: whether it is the inode that it was, and what stat says.
fn changes(before: &Listing, after: &Listing) -> Vec<String> {
    let line = |(path, (ino, rest)): (&String, &(String, String))| {
        let was = before.get(path).map(|(before, _)| if before == ino { "kept" } else { "new" });
        format!("{path} {} {rest}", was.unwrap_or("made"))
    };
    after.iter().map(line).collect()
}

struct Twins {
    dir: cairn_testkit::place::Place,
    ours: String,
    theirs: PathBuf,
}

impl Twins {
    /// Each case has a tree of its own, `/case0` and so on.
    fn new(kind: &str, cases: usize) -> Self {
        let (dir, ours) = in_dir("disk.img");
        works(&["mkfs", "-t", kind, "--size", "64M", &ours]);
        let theirs = dir.path().join("theirs.img");
        judge::mke2fs(&theirs, 64 << 20, &["-t", "ext4", "-I", "256", "-N", "8192"]);
        let mount = KernelMount::new(&theirs, "rw");
        script(
            mount.path(),
            &format!(
                "{POPULATE}\nfor n in $(seq 1 {}); do cp -a ../case0 ../case$n; done",
                cases - 1
            ),
        );
        works(&["put", &ours, &format!("{}/.", mount.path().display()), "/"]);
        script(mount.path(), "chattr +i */immutable; chattr +a */append");
        mount.unmount();
        if kind == "ext4" {
            let requests = (0..cases).flat_map(|case| {
                [("immutable", "0x80010"), ("append", "0x80020")].map(|(name, flags)| {
                    format!("set_inode_field /case{case}/{name} flags {flags}\n")
                })
            });
            let file = dir.path().join("requests");
            std::fs::write(&file, requests.collect::<String>()).unwrap();
            judge::run("debugfs", ["-w", "-f", file.to_str().unwrap(), &ours]);
        }
        Self { dir, ours, theirs }
    }

    /// Has `run` do each case both ways: with ours, and with what is mounted. What is left is the
    /// same.
    fn compare<C: std::fmt::Debug>(
        kind: &str,
        cases: &[C],
        run: impl Fn(&Self, &Path, &str, &C),
    ) -> Self {
        let twins = Self::new(kind, cases.len());
        let images = [&twins.ours[..], twins.theirs.to_str().unwrap()];
        let before = images.map(listing);
        let mount = KernelMount::new(&twins.theirs, "rw");
        for (number, case) in cases.iter().enumerate() {
            run(&twins, mount.path(), &format!("case{number}"), case);
        }
        mount.unmount();
        judged(kind, &twins.ours);
        let after = images.map(listing);
        let [ours, theirs] = [0, 1].map(|at| changes(&before[at], &after[at]));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let number = ours.strip_prefix("/case").and_then(|rest| rest.split(['/', ' ']).next());
            let case = number.and_then(|number| cases.get(number.parse::<usize>().unwrap()));
            assert_eq!(ours, theirs, "{kind}: {case:?}");
        }
        assert_eq!(ours.len(), theirs.len());
        // Attributes and access lists.
        let files = || (0..cases.len()).map(|case| format!("/case{case}/file")).collect::<Vec<_>>();
        let attributes = |image: &str| {
            let files = files();
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            works(&[&["getfattr", "-hd", "-m", "-", image], &files[..]].concat())
        };
        assert_eq!(attributes(images[0]), attributes(images[1]), "{kind}");
        twins
    }
}

fn judged(kind: &str, image: &str) {
    match kind {
        "ext4" => judge::assert_clean(Path::new(image)),
        _ => judge::assert_f2fs_clean(Path::new(image)),
    }
}

/// What nothing here can set on F2FS.
fn is_possible(kind: &str, to: &str) -> bool {
    kind == "ext4" || to != "immutable" && to != "append"
}

#[test]
fn cp_leaves_of_what_is_there_what_coreutils_leaves() {
    for kind in ["ext4", "f2fs"] {
        let few = |options: &str| kind == "ext4" || matches!(options, "" | "-a");
        let cases: Vec<_> =
            cases().into_iter().filter(|case| few(case.0) && is_possible(kind, case.2)).collect();
        Twins::compare(kind, &cases, |twins, mount, tree, (options, from, to)| {
            let options: Vec<&str> = options.split_whitespace().collect();
            let mut cp = judge::command("cp");
            let output = cp.args(&options).args([from, to]).current_dir(mount.join(tree)).output();
            let output = output.unwrap();
            let (from, to) = (format!("/{tree}/{from}"), format!("/{tree}/{to}"));
            let line = [&["cp"], &options[..], &[&twins.ours, &from, &to]].concat();
            let (status, _, said) = cairn(&line);
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(Some(status), output.status.code(), "{kind} {line:?}: {said}{told}");
            assert_eq!(said.lines().count(), told.lines().count(), "{line:?}: {said}{told}");
        });
    }
}

#[test]
fn put_leaves_of_what_is_there_what_cp_a_leaves() {
    let ways = [("-a", ""), ("-af", "-f"), ("-a --remove-destination", "--remove-destination")];
    for kind in ["ext4", "f2fs"] {
        let ways = if kind == "ext4" { &ways[..] } else { &ways[..1] };
        let targets: Vec<&str> = TARGETS.into_iter().filter(|to| is_possible(kind, to)).collect();
        let cases: Vec<_> =
            ways.iter().flat_map(|way| targets.iter().map(move |to| (*way, *to))).collect();
        Twins::compare(kind, &cases, |twins, mount, tree, ((theirs, ours), to)| {
            let source = twins.dir.path().join("source");
            std::fs::write(&source, "from the host").unwrap();
            let source = source.to_str().unwrap();
            let mut cp = judge::command("cp");
            let output =
                cp.args(theirs.split(' ')).args([source, to]).current_dir(mount.join(tree));
            let output = output.output().unwrap();
            let to = format!("/{tree}/{to}");
            let words = ["put", ours, &twins.ours, source, &to];
            let line: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
            let (status, _, said) = cairn(&line);
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(Some(status), output.status.code(), "{kind} {line:?}: {said}{told}");
        });
    }
}

/// What only a process or a device can take is left alone; cp(1) would wait, or write to a device
/// of the host.
#[test]
fn nothing_is_copied_into_a_fifo_or_a_device() {
    let twins = Twins::new("ext4", 1);
    let (_, _, before) = cairn(&["find", &twins.ours, "/case0", "-ls"]);
    for to in ["/case0/fifo", "/case0/device"] {
        for line in [["cp", &twins.ours, "/case0/src", to], ["put", &twins.ours, "/etc/passwd", to]]
        {
            let said = crate::support::fails(&line, 1);
            assert!(
                said.contains(to)
                    && said.contains("exists there")
                    && said.contains("remove it first"),
                "{said}"
            );
        }
    }
    assert_eq!(cairn(&["find", &twins.ours, "/case0", "-ls"]).2, before);
}

/// One command does not overwrite what it has just made, and writes through no link that it made.
#[test]
fn sources_of_one_name_do_not_overwrite_each_other() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    let host = dir.path().join("host");
    for part in ["one", "two"] {
        std::fs::create_dir_all(host.join(part)).unwrap();
    }
    std::os::unix::fs::symlink("/secret", host.join("one/name")).unwrap();
    std::fs::write(host.join("two/name"), "overwritten").unwrap();
    works(&["put", &image, host.to_str().unwrap(), "/"]);
    works(&["shell", "-c", "mkdir /d /e", "-c", "truncate -s 3 /secret", &image]);
    let (one, two) = (host.join("one"), host.join("two"));
    let names = [one.join("name"), two.join("name")];
    let [first, second] = [0, 1].map(|at: usize| names[at].to_str().unwrap());
    let (one, two) = (format!("{}/.", one.display()), format!("{}/.", two.display()));
    for (line, why) in [
        (&["cp", "-a", &image, "/host/one/name", "/host/two/name", "/d"][..], "another source"),
        (&["put", &image, first, second, "/d"], "another source"),
        (&["put", &image, &one, &two, "/d"], "just copied"),
    ] {
        works(&["rm", "-rf", &image, "/d/name"]);
        let (status, _, said) = cairn(line);
        assert!(status == 1 && said.lines().count() == 1 && said.contains(why), "{status}: {said}");
        assert_eq!(
            works(&["stat", "-c", "%n %F %s", &image, "/d/name", "/secret"]),
            "/d/name symbolic link 7\n/secret regular file 3\n"
        );
    }
    let (status, _, said) = cairn(&["cp", &image, "/secret", "/secret", "/e"]);
    assert!(status == 0 && said.contains("named more than once"), "{status}: {said}");
    judged("ext4", &image);
}

/// Standard input changes the contents and nothing else, as `cat > file` does.
#[test]
fn standard_input_goes_into_the_file_that_is_there() {
    for kind in ["ext4", "f2fs"] {
        let twins = Twins::new(kind, 1);
        let before = listing(&twins.ours);
        for to in ["file", "linked", "sym"] {
            let line = format!(
                "echo something | {0} put {1} - /case0/{to}",
                env!("CARGO_BIN_EXE_cairn"),
                twins.ours
            );
            script(twins.dir.path(), &line);
        }
        let after = listing(&twins.ours);
        for (to, is) in [
            ("file", r#""regular file" "4674" 5 6 1 10"#),
            ("linked2", r#""regular file" "0644" 0 0 2 10"#),
            ("target", r#""regular file" "0644" 0 0 1 10"#),
        ] {
            let (old, new) = (&before[&format!("/case0/{to}")], &after[&format!("/case0/{to}")]);
            assert!(old.0 == new.0 && new.1.starts_with(is), "{kind}: {to}: {old:?} {new:?}");
        }
        judged(kind, &twins.ours);
    }
}

/// Where there is no room for one file there may be for the next: as with coreutils, the rest is
/// copied. What was not is named once for each directory, and counted.
#[test]
fn a_tree_is_copied_beside_what_has_no_room() {
    for kind in ["ext4", "f2fs"] {
        let (dir, image) = in_dir("disk.img");
        works(&["mkfs", "-t", kind, "--size", "64M", &image]);
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        for name in ["a", "z"] {
            std::fs::write(tree.join(name), name).unwrap();
        }
        std::fs::write(tree.join("large"), vec![1; 62 << 20]).unwrap();
        for n in 0..12 {
            std::fs::hard_link(tree.join("large"), tree.join(format!("large{n}"))).unwrap();
        }
        let told = |status: i32, said: &str| {
            assert_eq!((status, said.lines().count()), (1, 2), "{kind}: {said}");
            assert_eq!(said.matches("/large").count(), 1, "{kind}: {said}");
            assert!(
                said.trim_end().ends_with("no room for 12 more files: make room, and copy again"),
                "{said}"
            );
        };
        let (status, _, said) = cairn(&["put", &image, tree.to_str().unwrap(), "/"]);
        told(status, &said);
        assert_eq!(works(&["ls", "-A", &image, "/tree"]), "a\nz\n", "{kind}");
        // Inside the image.
        let large = tree.join("large");
        std::fs::write(&large, vec![2; 5 << 20]).unwrap();
        works(&["put", &image, large.to_str().unwrap(), "/tree/large"]);
        let script = (0..12).flat_map(|n| ["-c".into(), format!("ln /tree/large /tree/large{n}")]);
        let script: Vec<String> = script.collect();
        works(
            &[&["shell"], &script.iter().map(String::as_str).collect::<Vec<_>>()[..], &[&image]]
                .concat(),
        );
        std::fs::write(&large, vec![2; 4 << 20]).unwrap();
        let mut fill = 0..;
        while cairn(&[
            "put",
            &image,
            large.to_str().unwrap(),
            &format!("/fill{}", fill.next().unwrap()),
        ])
        .0 == 0
        {}
        let (status, _, said) = cairn(&["cp", "-r", &image, "/tree", "/copy"]);
        told(status, &said);
        assert_eq!(works(&["ls", "-A", &image, "/copy"]), "a\nz\n", "{kind}");
        // And out of it.
        let host = dir.path().join("host.img");
        judge::mke2fs(&host, 4 << 20, &["-t", "ext4"]);
        let mount = KernelMount::new(&host, "rw");
        let (status, _, said) = cairn(&["get", &image, "/tree", mount.path().to_str().unwrap()]);
        told(status, &said);
        let mut names: Vec<_> = std::fs::read_dir(mount.path().join("tree"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["a", "z"], "{kind}");
        mount.unmount();
        judged(kind, &image);
    }
}

/// A name that the user gives whole is written through; links that stand where a name of the image
/// goes are replaced, since an earlier image may have made them.
#[test]
fn get_follows_the_links_of_the_user_alone() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    works(&["shell", "-c", "mkdir /tree", "-c", "truncate -s 9 /tree/name /file", &image]);
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let text = "printf old > target; printf old > outside; mkdir to to/tree into
                ln -s target link; ln -s none dangling; ln -s loop loop
                ln -s ../../outside to/tree/name; ln -s ../outside into/file
                printf old > linked; ln linked linked2; mknod null c 1 3; mkfifo fifo";
    script(dir.path(), text);
    works(&["get", &image, "/file", &at("link")]);
    for (name, why) in [("dangling", "dangling symbolic link"), ("loop", "too many levels")] {
        let said = crate::support::fails(&["get", &image, "/file", &at(name)], 1);
        assert!(said.contains(why), "{said}");
    }
    works(&["get", &image, "/tree", &at("to")]);
    works(&["get", &image, "/file", &at("into")]);
    works(&["get", &image, "/file", &at("linked")]);
    works(&["get", &image, "/file", &at("null")]);
    let read = format!(
        "timeout 10 wc -c < fifo > count & {} get {image} /file fifo; wait",
        env!("CARGO_BIN_EXE_cairn")
    );
    script(dir.path(), &read);
    let told = judge::command("stat")
        .args(["-c", "%n %F %s"])
        .args([
            "link",
            "target",
            "dangling",
            "loop",
            "outside",
            "to/tree/name",
            "into/file",
            "linked",
            "linked2",
            "null",
            "fifo",
        ])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(told.stdout).unwrap(),
        "link symbolic link 6\ntarget regular file 9\ndangling symbolic link 4\nloop symbolic link \
         4\n\
         outside regular file 3\nto/tree/name regular file 9\ninto/file regular file 9\n\
         linked regular file 9\nlinked2 regular file 3\nnull character special file 0\nfifo fifo \
         0\n"
    );
    assert_eq!(std::fs::read_to_string(at("count")).unwrap().trim(), "9");
}
