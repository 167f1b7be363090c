//! Every example of the help, of README.md and of docs/ runs unchanged, in a directory with the
//! files that it names.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cairn_cli::args::Cli;
use cairn_testkit::judge;
use clap::CommandFactory;

use crate::support::works;

/// Examples that take minutes, need a device of this host or more than it has, or change it:
/// `umount -a` would end the mounts of other tests.
const NOT_RUN: &[&str] = &[
    "cairn lab buffered-io",
    "cairn lab async-checkpoint",
    "cairn lab checkpoint-merge",
    "cairn lab mount",
    "cairn lab crash --exhaustive",
    "cairn lab crash --keep",
    "cairn lab crash --format ext4 --modes default,small-log --seed 7 --rounds 20",
    "cairn lab all",
    "cairn generate /usr/local/share",
    "cairn umount -a",
    // These need the network.
    "cairn snapshot s3://",
    "cairn clone s3://",
    "cairn mkfs --size 100G s3://",
    "cairn mount 's3://",
    "cairn build -F 'nbd://",
    // The test `mounted` has a terminal for it.
    "cairn top /mnt",
    // These need programs on the image, and the network.
    "cairn run root.img -- ",
    "cairn run --ro ",
    "cairn run --ephemeral ",
    "cairn mkfs -t f2fs -m -Z 8 -c /dev/nullb0 /dev/sdb",
];
/// Names of disks.
const DISKS: &[&str] =
    &["/dev/sd", "/dev/vd", "/dev/nvme", "/dev/mmcblk", "/dev/loop", "/dev/nbd", "/dev/nullb"];
/// Examples that run until they are stopped.
const ENDLESS: &[&str] = &["cairn serve nbd", "cairn serve-nothing", "cairn stats --json --watch"];
/// Commands that need a live mount at /mnt.
const LIVE: &[&str] = &["stats", "remount", "freeze", "thaw", "top", "umount"];

/// Contents of the images that examples name.
const CONTENTS: &str = "
mkdir -p /etc/cron.daily /etc/ssh
mkdir -p /etc/conf.d /boot /var/log /var/cache/apt /home/pi /srv/www/html /srv/archive \
/usr/lib /bin /run /dev /opt/app/data
touch /etc/passwd /etc/fstab /etc/hosts.new /etc/a.conf /etc/stamp /etc/ssh/host_key \
/boot/config.txt /bin/ping /old
setfattr -n user.origin -v x /etc/fstab
touch /var/log/a.gz /var/log/b.gz /var/cache/apt/x /home/pi/file
truncate -s 2M /var/log/syslog
setfattr -n user.origin -v x /etc/passwd
setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 /bin/ping
";

/// A directory with everything that examples name.
fn surroundings() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for name in ["rootfs/etc", "rootfs/usr", "src", "files", "home"] {
        std::fs::create_dir_all(at(name)).unwrap();
        std::fs::write(Path::new(&at(name)).join("file"), "x").unwrap();
    }
    std::fs::write(at("files/hello"), "hello\n").unwrap();
    build_systems(dir.path());
    std::fs::write(at("interfaces"), "").unwrap();
    for name in ["esp.fat", "boot.fat"] {
        std::fs::write(at(name), vec![1; 1 << 16]).unwrap();
    }
    std::fs::write(at("hostname"), "name\n").unwrap();
    std::fs::write(at("script"), "ls /etc\n").unwrap();
    std::fs::create_dir(at("backup")).unwrap();
    let contents = at("contents");
    std::fs::write(&contents, CONTENTS).unwrap();
    works(&["mkfs", "--size", "24M", &at("disk.img")]);
    works(&["shell", "-f", &contents, &at("disk.img")]);
    // The file is also found through a pipe, because grep fails if there is none.
    std::fs::write(at("log"), "an error\n").unwrap();
    works(&["put", &at("disk.img"), &at("log"), "/var/log/syslog"]);
    std::fs::write(at("parts.img"), crate::mkfs_safety::disk("gpt")).unwrap();
    works(&["mkfs", &format!("{}#2", at("parts.img"))]);
    works(&["shell", "-f", &contents, &format!("{}#2", at("parts.img"))]);
    std::fs::copy(at("disk.img"), at("a.img")).unwrap();
    let whole = std::fs::read(at("disk.img")).unwrap();
    std::fs::write(at("offset.img"), [vec![0; 1 << 20], whole].concat()).unwrap();
    std::fs::remove_file(contents).unwrap();
    dir
}

/// What the pages on build systems and servers name.
fn build_systems(at: &Path) {
    let script = r"
        mkdir -p images target/etc system META vendor/bin; echo x >target/etc/hosts
        echo x >vendor/bin/tool
        printf '/dev d 755 0 0 - - - - -\n/dev/null c 666 0 0 1 3 0 0 -\n' >system/device_table.txt
        printf 'vendor 0 0 755\nvendor/bin 0 2000 755\nvendor/bin/tool 0 2000 755\n' \
            >META/fs_config.txt
        printf '/vendor(/.*)?  u:object_r:vendor_file:s0\n' >META/file_contexts.txt
        tar -C rootfs -cf images/rootfs.tar .; cp images/rootfs.tar images/alpine.tar
        zstd -q images/rootfs.tar -o images/core.rootfs.tar.zst
        zstd -q images/rootfs.tar -o images/image.tar.zst
        printf '#mtree\n./etc type=dir mode=0700 uid=3\n' >rootfs.mtree
        mkdir certs
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 \
            -subj /CN=localhost -keyout certs/server-key.pem -out certs/server-cert.pem 2>/dev/null
        truncate -s 1M raw; img2simg raw system.simg; rm raw
        cp system.simg super.img_sparsechunk.0; cp system.simg super.img_sparsechunk.1";
    let done = Command::new("sh").args(["-ec", script]).current_dir(at).status().unwrap();
    assert!(done.success());
}

/// The examples of a text that is indented as help is: a line, with what follows it up to the end
/// of its here-document, or behind a backslash.
fn of_help(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
    scripts(lines.take_while(|line| line.starts_with("  ")).map(|line| &line[2..]))
}

/// The examples of a page: lines that begin with `cairn` in blocks of code.
fn of_page(text: &str) -> Vec<String> {
    let (mut inside, mut goes_on) = (false, false);
    let lines = text.lines().filter(|line| {
        inside ^= line.starts_with("```");
        let taken = inside && (goes_on || line.starts_with("cairn "));
        goes_on = taken && line.ends_with('\\');
        taken
    });
    scripts(lines)
}

fn scripts<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let (mut open, mut goes_on) = (false, false);
    for line in lines {
        match found.last_mut().filter(|_| open || goes_on) {
            Some(script) => *script += &format!("\n{line}"),
            None => found.push(line.to_owned()),
        }
        goes_on = line.ends_with('\\');
        open = if open { line != "EOF" } else { line.contains("<<EOF") };
    }
    found
}

fn all_examples() -> Vec<String> {
    let mut found = Vec::new();
    let shown = |command: &&clap::Command| !command.is_hide_set();
    for command in Cli::command().get_subcommands().filter(shown) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = of_help(&help);
        assert!(!examples.is_empty(), "{}", command.get_name());
        found.extend(examples);
        for nested in command.get_subcommands().filter(shown) {
            let help = nested.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = of_help(&help);
            assert!(!examples.is_empty(), "{} {}", command.get_name(), nested.get_name());
            found.extend(examples);
        }
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(top.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages: Vec<PathBuf> = docs.chain([top.join("README.md")]).collect();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|kind| kind == "md")) {
        found.extend(of_page(&std::fs::read_to_string(page).unwrap()));
    }
    found
}

fn begins_with(example: &str, some: &[&str]) -> bool {
    some.iter().any(|start| example.starts_with(start))
}

/// True if the example makes the object volume that it names.
fn makes_volume(example: &str) -> bool {
    ["cairn mkfs", "cairn build"].iter().any(|command| example.starts_with(command))
}

/// The images that the example names.
fn images(example: &str) -> String {
    let mut script = String::from("cp --sparse=auto \"$HERE\"/disk.img disk.img\n");
    let makes_it = ["mkfs", "cairn build"].iter().any(|command| example.contains(command));
    if example.contains("disk.img#2") || example.contains("sdcard.img") && !makes_it {
        script += "cp --sparse=auto \"$HERE\"/parts.img disk.img; ln disk.img sdcard.img\n";
    }
    if example.contains("system.img#2") {
        script += "cp --sparse=auto \"$HERE\"/parts.img system.img\n";
    }
    if example.contains("?offset=1M") {
        script += "cp --sparse=auto \"$HERE\"/offset.img disk.img\n";
    }
    if example.contains("root.img") && !makes_it {
        script += "mv disk.img root.img\n";
    }
    script + "cp -r \"$HERE\"/[!dop]* .\n"
}

#[test]
fn every_example_runs_as_it_is_written() {
    let here = surroundings();
    let program = Path::new(env!("CARGO_BIN_EXE_cairn"));
    let path =
        format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let examples = all_examples();
    let mut failed = Vec::new();
    assert!(examples.len() > 50, "{}", examples.len());
    for example in examples.iter().filter(|example| !begins_with(example, NOT_RUN)) {
        // It runs as root, and would write to a disk of this machine.
        assert!(!DISKS.iter().any(|disk| example.contains(disk)), "{example}: add it to NOT_RUN");
        let work = tempfile::tempdir().unwrap();
        let command = example.split(' ').nth(1).unwrap_or_default();
        let mut script = format!(
            "set -e\nmkdir -p /mnt\numount -l /mnt 2>/dev/null || true\n{}",
            images(example)
        );
        if LIVE.contains(&command) || example == "cairn check /mnt" {
            script += "cairn mount disk.img /mnt\n";
        }
        if example.contains("/media/disk") {
            script += "mount -t tmpfs none /media; mkdir /media/disk; cp disk.img other.img\n";
            script += "cairn mount other.img /media/disk\n";
        }
        if example.contains("file-store:///srv/pool") {
            script += "mount -t tmpfs none /srv\n";
            for name in ["main", "old"].iter().filter(|_| !makes_volume(example)) {
                script += &format!("cairn mkfs --size 16M file-store:///srv/pool@{name}\n");
            }
        }
        if example.contains("--take-back") {
            script += "debugfs -w -R 'sif /etc/passwd links_count 7' disk.img 2>/dev/null\n";
            script += "cairn check --repair --undo disk.undo disk.img || [ $? = 1 ]\n";
        }
        if example.contains("letter.txt") {
            script += "cairn mkdir -p disk.img /home/me; echo Dear >letter\n";
            script += "cairn put disk.img letter /home/me/letter.txt\n";
            script += "debugfs -w -R 'rm /home/me/letter.txt' disk.img 2>/dev/null\n";
        }
        if command == "thaw" {
            script += "cairn freeze /mnt\n";
        }
        // An example may mount over any directory, because the namespace ends with the script.
        match begins_with(example, ENDLESS) {
            // A killed daemon leaves a dead mount.
            true => {
                script += &format!(
                    "timeout 1 {example} || [ $? = 124 ]\numount -l /mnt 2>/dev/null || true\n"
                )
            }
            false => script += &format!("{example}\n"),
        }
        script += "if grep -q ' /mnt fuse' /proc/mounts; then cairn umount /mnt; fi\n";
        let mut shell = Command::new("unshare");
        script.insert_str(0, judge::FORGET_MOUNTS);
        shell.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        shell
            .current_dir(work.path())
            .env("PATH", &path)
            .env("HERE", here.path())
            .env_remove("CAIRN_LOG");
        let output = shell.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let complained = said
            .lines()
            .any(|line| line.starts_with("cairn: ") && !line.contains("warning: not root"));
        if !output.status.success() || complained {
            failed.push(format!("{example}\n{}: {said}", output.status));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// What the examples of README.md need is made by those before them.
#[test]
fn the_examples_of_the_readme_work_in_their_order() {
    let readme = include_str!("../../../../README.md");
    let section = readme.split("\n## ").find(|section| section.starts_with("Six examples\n"));
    let (mut inside, mut script) = (false, String::from("set -e\n"));
    // Without a network, and without the minutes of an experiment.
    let left_out = ["mmdebstrap ", "cairn run ", "cairn lab "];
    for line in section.unwrap().lines() {
        match line.starts_with("```") {
            true => inside = line == "```sh",
            false if inside && !begins_with(line, &left_out) => script += &format!("{line}\n"),
            false => {}
        }
    }
    assert!(script.contains("cairn shell "), "{script}");
    script += "test \"$(cairn cat root.img /srv/www/hello)\" = hello\n";
    script += "test -e backup/etc/cron.daily\n";
    let work = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(work.path().join("rootfs/etc/cron.daily")).unwrap();
    let before = "umount -l /mnt 2>/dev/null || true; mkdir -p /mnt";
    let program = Path::new(env!("CARGO_BIN_EXE_cairn")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("unshare");
    let script = [judge::FORGET_MOUNTS, before, "\n", &script].concat();
    shell.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    shell.current_dir(work.path()).env("PATH", &path).env_remove("CAIRN_LOG");
    let output = shell.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    judge::assert_clean(&work.path().join("root.img"));
}

/// On a terminal of 80 columns `clap` breaks longer lines, and an example that is broken cannot be
/// copied.
#[test]
fn examples_fit_a_terminal_of_80_columns() {
    for command in Cli::command().get_subcommands() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines().filter(|line| line.starts_with("  ")) {
            assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
        }
    }
    for example in all_examples() {
        for line in example.lines() {
            assert!(line.chars().count() <= 98, "{line}");
        }
    }
}

/// The help of `remount` names every option that docs/options.md calls live.
#[test]
fn the_help_of_remount_names_every_live_option() {
    let page = include_str!("../../../../docs/options.md");
    let help = works(&["remount", "--help"]);
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let words: Vec<&str> = help.split(|letter| !is_word(letter)).collect();
    let mut live = 0;
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let columns: Vec<&str> = row.trim_start_matches("| ").split(" | ").collect();
        if columns[1] != "yes" {
            continue;
        }
        for option in columns[0].split('`').skip(1).step_by(2) {
            let name = option.split(|letter| !is_word(letter)).next().unwrap();
            assert!(name.is_empty() || words.contains(&name), "{name}: {help}");
            live += 1;
        }
    }
    assert!(live > 40, "{live}");
}
