//! The pages of the book, and what their blocks of commands print.
//!
//! A block of the language `console` has lines that begin with `$ `, and below each what it prints,
//! to standard output and standard error. `…` stands for any text of a line, and alone for any
//! lines. A command ends with status 0, or with that behind `# status`. The blocks of a page run in
//! one shell, in a directory of their own: once as this user and, if that is root, once as an
//! ordinary one, who sees the same.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cairn_testkit::judge;
use cairn_testkit::place::Place;

#[path = "../as_user/mod.rs"]
mod as_user;

use as_user::{Reachable, USER};

/// What no command prints.
const MARK: char = '\u{1e}';

/// A command, and what the page shows of it.
#[derive(Debug)]
struct Step {
    line: String,
    status: i32,
    shown: Vec<String>,
}

/// A page.
#[derive(Debug)]
pub struct Page {
    /// Its file.
    pub path: PathBuf,
    /// True if it mounts.
    pub mounts: bool,
    steps: Vec<Step>,
}

/// All pages of the book's own.
pub fn pages() -> Vec<Page> {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(book).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let is_page = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "md");
    paths.into_iter().filter(is_page).map(parse).collect()
}

fn parse(path: PathBuf) -> Page {
    let text = std::fs::read_to_string(&path).unwrap();
    let mut page = Page { path, mounts: false, steps: Vec::new() };
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside && line.starts_with("```console");
            page.mounts |= inside && line == "```console,mount";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            let status = command.split("# status ").nth(1);
            let status = status.map_or(0, |status| status.trim().parse().unwrap());
            page.steps.push(Step { line: command.to_owned(), status, shown: Vec::new() });
        } else if inside {
            let step = page.steps.last_mut().unwrap_or_else(|| panic!("{:?}: {line}", page.path));
            step.shown.push(line.to_owned());
        }
    }
    page
}

/// Runs a command in a mount namespace of its own.
const APART: [&str; 4] = ["unshare", "--mount", "--propagation", "private"];

/// What these pages show and their commands do not print, with this program.
pub fn mistakes<'p>(pages: impl IntoIterator<Item = &'p Page>, program: &Path) -> Vec<String> {
    let reachable = Reachable::copy(program);
    let mut failed = Vec::new();
    for page in pages {
        let mut run = |who: &str, below: &[&str], user: Option<u32>| {
            let work = Place::new();
            chown(work.path(), user, user).unwrap();
            for difference in differences(page, &reachable.program, below, work.path()) {
                failed.push(format!("{} {who}: {difference}", page.path.display()));
            }
        };
        run("", if page.mounts { &APART } else { &[] }, None);
        if judge::is_root() {
            run("as an ordinary user", &reachable.words(page.mounts), Some(USER));
        }
    }
    failed
}

/// Runs the page's commands with this program, below a command such as `unshare`. Returns what was
/// other than shown.
fn differences(page: &Page, program: &Path, below: &[&str], work: &Path) -> Vec<String> {
    let mut script = String::from(if below == APART { judge::FORGET_MOUNTS } else { "" });
    script += "exec 2>&1\numask 022\n";
    for step in &page.steps {
        script += &format!("{}\nprintf '{MARK}%d{MARK}' $?\n", step.line);
    }
    let words: Vec<&str> = below.iter().copied().chain(["sh", "-c", &script]).collect();
    // Ordinary users have no directories of the system's programs in it.
    let path = std::env::var("PATH").unwrap();
    let path = path.split(':').filter(|directory| !directory.ends_with("sbin"));
    let path: Vec<&str> =
        [program.parent().unwrap().to_str().unwrap()].into_iter().chain(path).collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .current_dir(work)
        .env("PATH", path.join(":"))
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .env_remove("SOURCE_DATE_EPOCH")
        .env_remove("CAIRN_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut parts = text.split(MARK);
    let mut found = Vec::new();
    for step in &page.steps {
        let (printed, status) = (parts.next().unwrap_or("nothing: the shell ended"), parts.next());
        let lines: Vec<&str> = printed.lines().collect();
        let shown: Vec<&str> = step.shown.iter().map(String::as_str).collect();
        if status != Some(&step.status.to_string()) || !is_shown(&shown, &lines) {
            found.push(format!("$ {}\n{printed}status {status:?}", step.line));
        }
    }
    found
}

fn is_shown(shown: &[&str], printed: &[&str]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((&"…", rest)) => (0..=printed.len()).any(|at| is_shown(rest, &printed[at..])),
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(first, more)| is_like(line, first) && is_shown(rest, more)),
    }
}

fn is_like(shown: &str, printed: &str) -> bool {
    let Some((start, rest)) = shown.split_once('…') else { return shown == printed };
    let Some(mut left) = printed.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('…').unwrap_or(("", rest));
    for part in middle.split('…').filter(|part| !part.is_empty()) {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(end)
}

#[test]
fn what_is_shown_and_what_is_printed_are_told_apart() {
    assert!(is_shown(&["a…c", "…"], &["abc", "more", "lines"]) && is_shown(&["…"], &[]));
    assert!(is_shown(&["…", "z"], &["a", "z"]) && is_like("a … b … c", "a 1 b 2 c"));
    for (shown, printed) in
        [(&["a"][..], &[][..]), (&[], &["a"]), (&["a…b"], &["ab "]), (&["…", "y"], &["z"])]
    {
        assert!(!is_shown(shown, printed), "{shown:?} {printed:?}");
    }
}
