//! Frequent flags, compared with coreutils and findutils. Each line runs twice: as `cairn` on an
//! image, and as the host's program on the kernel's mount of a copy. The outputs, the statuses and
//! the resulting trees are the same.

use std::path::{Path, PathBuf};

use cairn_testkit::judge::{self, KernelMount};

use crate::support::{cairn, fails, in_dir, works};

/// Two images with the same contents.
struct Twins {
    _dir: cairn_testkit::place::Place,
    ours: String,
    theirs: PathBuf,
}

impl Twins {
    fn new() -> Self {
        let (dir, ours) = in_dir("disk.img");
        works(&["mkfs", "--size", "16M", &ours]);
        let script = [
            "mkdir -p d/sub/deep e/f g tree/a/b",
            "truncate -s 3000 d/file",
            "truncate -s 20 d/small d/.hidden",
            "truncate -s 700K d/large",
            "touch -d 2020-01-02 d/file d/sub",
            "touch -d 2021-01-02 d/small",
            "touch -d 2019-01-02 d/large e",
            "touch a b c tree/one tree/a/two tree/a/b/three.tmp tree/four.tmp",
            "ln a hard",
            "ln -s d/file soft",
            "mknod null c 1 3",
        ];
        let script: Vec<&str> = script.iter().flat_map(|line| ["-c", line]).collect();
        works(&[&["shell"][..], &script, &[&ours]].concat());
        let theirs = dir.path().join("theirs.img");
        std::fs::copy(&ours, &theirs).unwrap();
        Self { _dir: dir, ours, theirs }
    }

    /// Runs lines in which `@` stands for the image; gives the two outputs of each.
    #[track_caller]
    fn run(&self, lines: &[&str]) {
        let mount = KernelMount::new(&self.theirs, "rw,noatime");
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let own: Vec<&str> =
                words.iter().map(|word| if *word == "@" { &self.ours[..] } else { word }).collect();
            let (status, printed, said) = cairn(&own);
            let mut program = judge::command(words[0]);
            program.args(words[1..].iter().filter(|word| **word != "@")).current_dir(mount.path());
            let output = program.env("TZ", "UTC").env("LC_ALL", "C").output().unwrap();
            let theirs = String::from_utf8(output.stdout).unwrap();
            let theirs_said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(status == 0, output.status.success(), "{line}: {said}{theirs_said}");
            assert_eq!(
                said.lines().count(),
                theirs_said.lines().count(),
                "{line}: {said}{theirs_said}"
            );
            let prefix = format!("{}: ", program.get_program().to_str().unwrap());
            let mut theirs: Vec<&str> =
                theirs.lines().map(|line| line.strip_prefix(&prefix).unwrap_or(line)).collect();
            let mut ours: Vec<&str> = printed.lines().collect();
            if matches!(words[0], "rm" | "cp" | "du" | "find") {
                // The lines may be in any order: each program lists in the order of the directory.
                theirs.sort_unstable();
                ours.sort_unstable();
            }
            assert_eq!(ours, theirs, "{line}");
        }
        mount.unmount();
    }

    /// The same names are left, of the same kinds and links.
    fn compare(&self) {
        let tree = |image: &Path| {
            let mount = KernelMount::new(image, "ro");
            let mut find = judge::command("find");
            find.args([".", "-printf", "%p %y %n %l\n"]).current_dir(mount.path());
            let mut lines: Vec<String> = String::from_utf8(find.output().unwrap().stdout)
                .unwrap()
                .lines()
                .map(String::from)
                .collect();
            lines.sort();
            mount.unmount();
            lines
        };
        assert_eq!(tree(Path::new(&self.ours)), tree(&self.theirs));
        judge::assert_clean(Path::new(&self.ours));
    }
}

#[test]
fn commands_that_change_say_what_they_do() {
    let twins = Twins::new();
    twins.run(&[
        "mkdir -pv @ new/one/two new",
        "cp -v @ a copied",
        "cp -rv @ tree new",
        "cp -av @ d a new",
        "mv -v @ copied new/one",
        "mv -v @ b c new",
        "ln -v @ a linked",
        "ln -sv @ a symbolic",
        "ln -sfv @ elsewhere symbolic",
        "rmdir -v @ g",
        "rmdir -pv @ e/f",
        "rmdir @ d",
        "rmdir --ignore-fail-on-non-empty @ d",
        "rmdir @ none a",
        "rm -v @ linked hard",
        "rm -dv @ new/one/two",
        "rm -rv @ tree",
        "rm -rv @ none new",
    ]);
    twins.compare();
}

/// An existing name stays, without a failure.
#[test]
fn no_clobber_leaves_what_exists() {
    let twins = Twins::new();
    twins.run(&[
        "cp -nv @ d/small a",
        "mv -nv @ d/small a",
        "cp -rn @ tree e",
        "cp -rn @ tree/. e/tree",
        "mv -n @ a b d",
        "mv -n @ b a",
    ]);
    twins.compare();
    for image in [Path::new(&twins.ours), &twins.theirs] {
        assert_eq!(
            works(&["stat", "-c", "%n %s", image.to_str().unwrap(), "d/a", "d/small"]),
            "d/a 0\nd/small 20\n"
        );
    }
}

/// If a symbolic link replaced its own target, only a link to itself would be left.
#[test]
fn files_do_not_replace_themselves() {
    let twins = Twins::new();
    twins.run(&[
        "mv @ soft d/file",
        "mv @ a a",
        "mv @ a hard",
        "cp @ a hard",
        "ln -s @ soft chain",
        "mv @ chain d/file",
        "mv @ d/file soft",
    ]);
    twins.compare();
}

/// The new file has the name in the last symbolic link.
#[test]
fn files_are_made_where_links_lead() {
    let twins = Twins::new();
    twins.run(&[
        "ln -s @ d/made dangling",
        "ln -s @ dangling chain",
        "touch @ chain",
        "ls @ d",
        "ln -s @ none/made beyond",
        "touch @ beyond",
        "truncate -s 5 @ beyond",
        "ln -s @ self self",
        "touch @ self",
        "touch -c @ beyond none",
        "touch -h @ beyond self",
        "touch @ none/ a/",
        "ln -s @ sized d/link",
        "truncate -s 5 @ d/link",
        "stat -c %n|%s @ d/sized",
    ]);
    twins.compare();
}

#[test]
fn links_and_names_are_replaced_as_by_the_tools() {
    let twins = Twins::new();
    twins.run(&[
        "ln @ a hard",
        "ln -f @ a hard",
        "ln -f @ a a",
        "ln -f @ a ./a",
        "ln -s @ loop loop",
        "ln -f @ a loop",
        "ln -s @ loop2 loop2",
        "mv @ b loop2",
        "mv -T @ c g",
        "mv -T @ tree g",
        "mv -T @ d e",
        "mv -vT @ c loop2",
        "mkdir @ none/deep",
    ]);
    twins.compare();
    assert!(fails(&["mv", "-T", &twins.ours, "a", "hard", "g"], 2).contains("-T takes one source"));
    assert!(fails(&["mkdir", &twins.ours, "none/deep"], 1).contains("add -p to create"));
}

#[test]
fn sizes_change_as_by_truncate() {
    let twins = Twins::new();
    for (size, made) in [
        ("%4K", 4096),
        (">10", 4096),
        (">5000", 5000),
        ("<6000", 5000),
        ("<4999", 4999),
        ("/1000", 4000),
        ("+1", 4001),
        ("-2", 3999),
        ("-5000", 0),
        ("%7", 0),
        (">0", 0),
    ] {
        let lines = [format!("truncate -s {size} @ d/file"), "stat -c %s|%o @ d/file".into()];
        twins.run(&[&lines[0], &lines[1]]);
        let stat = works(&["stat", "-c", "%s", &twins.ours, "d/file"]);
        assert_eq!(stat, format!("{made}\n"), "{size}");
    }
    twins.run(&["truncate -s %0 @ a", "truncate -s /0 @ a", "truncate -s >=3 @ a"]);
    twins.compare();
}

/// A program that reads a listing may open the image before the listing has ended.
#[test]
fn a_listing_can_be_piped_into_a_change() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for n in 0..1000 {
        std::fs::write(tree.join(format!("{n:0200}")), "").unwrap();
    }
    works(&["put", &image, tree.to_str().unwrap(), "/"]);
    let pipe = format!(
        "set -o pipefail; {0} find {1} /tree -type f -print0 | xargs -0 -n 200 {0} chmod {1} 600",
        env!("CARGO_BIN_EXE_cairn"),
        image
    );
    let output = judge::command("bash").args(["-c", &pipe]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(works(&["find", &image, "/tree", "-perm", "600"]).lines().count(), 1000);
}

/// A slash at the end requires a directory. A symbolic link to a directory is none.
#[test]
fn a_slash_at_the_end_names_directories_alone() {
    let twins = Twins::new();
    twins.run(&[
        "ln -s @ d link",
        "rm @ a/",
        "rm @ link/",
        "mv @ a/ moved",
        "mv @ link/ moved",
        "mv @ g/ moved",
        "rm -r @ tree/",
    ]);
    twins.compare();
}

/// An escaped character outside of quotes is no pattern, as in sh: `rm /\*` removes one file.
#[test]
fn the_shell_expands_no_escaped_pattern() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    works(&["touch", &image, r"/\*", "/keep", "/keep.gz"]);
    works(&["shell", "-c", r"rm /\*", &image]);
    let found = works(&["shell", "-r", "-c", r"find / -name \*.gz", "-c", "ls /keep*", &image]);
    assert_eq!(found, "/keep.gz\n/keep\n/keep.gz\n");
}

#[test]
fn listings_are_those_of_the_tools() {
    let twins = Twins::new();
    twins.run(&[
        "ls -1 @ d",
        "ls -a @ d",
        "ls -A -r @ d",
        "ls -t @ d",
        "ls -tr @ d",
        "ls -S @ d",
        "ls -rS @ d",
        "ls -1R @ d e",
        "ls @ e a d b",
        "ls -d @ d a soft",
        "ls -t @ d/large d/small d/file",
        "ls @ a none d",
        "du @ d",
        "du -a @ d",
        "du -ac @ d tree",
        "du -sh @ d",
        "du -d1 @ .",
        "du -s -m @ d",
        "du -k @ d/large",
        "du -b @ d",
        "du --apparent-size -a @ d",
        "du -x -c @ a none",
        "stat -c %n|%N|%A|%a|%s|%h|%i|%F|%f|%b|%B|%u:%g|%t:%T|%% @ a d soft null d/file",
        "stat -c %y|%Y|%x|%X|%z|%Z|%w|%W @ d/file soft",
        "stat -c [%8s][%-8s][%08s][%20n][%-20n][%.3Y][%.Y] @ d/file",
        "stat --printf %n\\t%s\\n @ a none d",
        "stat -L -c %s @ soft",
    ]);
}

#[test]
fn find_does_what_the_expression_says() {
    let twins = Twins::new();
    twins.run(&[
        "find @ . -name sub -prune -o -type f -print",
        "find @ . -name a -print -o -name b",
        "find @ tree -name a -prune",
        "find @ tree -depth -name a -prune -o -print",
        "find @ d -maxdepth 1 -print -print",
        "find @ a -print -quit -o -print",
        "find @ . -false -o -true -name soft",
        "find @ tree -name *.tmp -print -delete",
        "find @ d -mindepth 1 -type d -empty -print -delete",
        "find @ tree e -depth -print",
        "find @ tree -type f -o -name b -delete",
        "find @ d -maxdepth 1 -name sub -delete",
        "find @ e tree -delete",
        "find @ . -not -type d -newer d/small -delete",
    ]);
    twins.compare();
    let listed = works(&["find", &twins.ours, "d", "-name", "file", "-ls"]);
    let words: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(
        (words[1], words[2], words[3], words[6], words[9]),
        ("0", "-rw-r--r--", "1", "3000", "d/file")
    );
    assert_eq!(works(&["find", &twins.ours, "d/file", "-print0"]), "d/file\0");
    // The root stays.
    works(&["find", &twins.ours, "-delete"]);
    assert_eq!(works(&["ls", "-A", &twins.ours]), "");
    for (words, why) in [
        (&["-exec", "rm", "{}", ";"][..], "xargs -0 cairn COMMAND IMAGE"),
        (&["-nmae", "x"], "did you mean `-name`?"),
        (&["-frobnicate"], "cairn find --help"),
    ] {
        let said = fails(&[&["find", &twins.ours, "/"], words].concat(), 2);
        assert!(said.contains(why), "{said}");
    }
    assert!(
        fails(&["shell", "-r", "-c", "find / -delete", &twins.ours], 2).contains("leave out -r")
    );
}

/// A filesystem would silently store the nearest possible time.
#[test]
fn a_time_that_cannot_be_stored_is_refused() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    works(&["touch", "-d", "2020-02-03", &image, "/file"]);
    let before = works(&["stat", "-c", "%x %y", &image, "/file"]);
    for (path, date, nearest) in [
        ("/file", "2500-01-01", "2446-05-10 22:38:55"),
        ("/new", "1800-01-01", "1901-12-13 20:45:52"),
    ] {
        let said = fails(&["touch", "-d", date, &image, path], 1);
        assert!(
            said.contains(date) && said.contains(nearest) && said.contains("give another date"),
            "{said}"
        );
    }
    assert_eq!(works(&["stat", "-c", "%x %y", &image, "/file"]), before);
    assert_eq!(works(&["ls", &image]), "file\nlost+found\n");
    works(&["touch", "-d", "2446-05-10 22:38:54", &image, "/file"]);
    judge::assert_clean(Path::new(&image));
}

/// As in cp -r: after a file that fails the other files are copied, removed or changed.
#[test]
fn a_tree_goes_on_past_one_file() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    works(&[
        "shell",
        "-c",
        "mkdir -p t/a t/b other/a",
        "-c",
        "touch t/a/x t/b/x t/c t/d other/a/y other/d",
        &image,
    ]);
    // `t` has a file where the host and the image have a directory, and the reverse.
    works(&[
        "shell",
        "-c",
        "mkdir to",
        "-c",
        "mkdir to/t",
        "-c",
        "mkdir to/t/c",
        "-c",
        "touch to/t/a",
        &image,
    ]);
    let (status, _, said) = cairn(&["cp", "-r", &image, "/t", "/to"]);
    assert_eq!((status, said.lines().count()), (1, 2), "{said}");
    assert!(
        said.contains("/to/t/a: exists and is not a directory")
            && said.contains("/to/t/c: a directory exists there")
    );
    assert_eq!(
        works(&["find", &image, "/to/t/b", "/to/t/d", "-type", "f"]),
        "/to/t/b/x\n/to/t/d\n"
    );
    let host = dir.path().join("t");
    std::fs::create_dir_all(host.join("c/below")).unwrap();
    std::fs::write(host.join("a"), "host").unwrap();
    let (status, _, said) = cairn(&["get", &image, "/t", dir.path().to_str().unwrap()]);
    assert_eq!((status, said.lines().count()), (1, 2), "{said}");
    assert!(host.join("b/x").exists() && host.join("d").exists() && host.join("c/below").is_dir());
    assert_eq!(std::fs::read(host.join("a")).unwrap(), b"host");
    // An immutable file, made so by the kernel's tools.
    judge::run("debugfs", ["-w", "-R", "set_inode_field /t/b/x flags 0x80010", &image]);
    for line in [
        &["chmod", "-R", &image, "700", "/t"][..],
        &["chown", "-R", &image, "5:5", "/t"],
        &["rm", "-r", &image, "/t"],
    ] {
        let (status, _, said) = cairn(line);
        assert_eq!((status, said.lines().count()), (1, 1), "{line:?}: {said}");
        assert!(said.contains("/t/b/x: "), "{line:?}: {said}");
    }
    assert_eq!(works(&["find", &image, "/t"]), "/t\n/t/b\n/t/b/x\n");
    assert_eq!(
        works(&["stat", "-c", "%a %u %n", &image, "/t/b", "/t/b/x"]),
        "700 5 /t/b\n644 0 /t/b/x\n"
    );
    judge::assert_clean(Path::new(&image));
}
