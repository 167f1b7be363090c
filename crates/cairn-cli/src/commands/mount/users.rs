//! Finds the programs, loop devices and mounts that keep a mount in use, in `/proc` and `/sys`.
//!
//! Nothing on the mount is accessed: its daemon may be busy, stopped or gone. Paths are compared as
//! texts. A file with such a path that is on another mount (the mount covers it, or it is from
//! another namespace) is no use. Only root sees what other users' processes do.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use cairn_base::shell::quoted;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::table::{self, Mount};

/// Most users that a message names. The others are counted.
const NAMED: usize = 5;

/// One user of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    who: String,
    how: String,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.who, self.how)
    }
}

/// Several users, in one line; `None` if there are none.
#[must_use]
pub fn listed(users: &[User]) -> Option<String> {
    let named: Vec<String> = users.iter().take(NAMED).map(ToString::to_string).collect();
    let rest = users.len().saturating_sub(NAMED);
    let more = if rest > 0 { format!(", and {rest} more") } else { String::new() };
    (!named.is_empty()).then(|| named.join(", ") + &more)
}

/// What uses the mount at `point`: processes, loop devices, further mounts. `device` is its
/// `major:minor`. This process and the mount's daemon are left out: to end the daemon would not end
/// a use.
#[must_use]
pub fn of(point: &Path, device: &str, daemon: Option<u32>) -> Vec<User> {
    let left_out = [Some(std::process::id()), daemon].map(|pid| pid.map(|pid| pid.to_string()));
    let is_user = |pid: &String| left_out.iter().flatten().all(|out| out != pid);
    let processes = processes().into_iter().filter(is_user);
    let mut found: Vec<User> = processes.filter_map(|pid| use_by(&pid, point, device)).collect();
    found.extend(mounts_below(point));
    found.extend(loops(point));
    found
}

/// Other places where the same volume is mounted: in this mount namespace, and in those of
/// processes.
#[must_use]
pub fn copies(device: &str) -> Vec<User> {
    mounts_of(|mount| mount.device == device)
}

/// As [`copies`], of a mount that may have ended: the kernel may have given its device number to
/// the mount of another image.
#[must_use]
pub fn copies_of(ended: &Mount) -> Vec<User> {
    mounts_of(|mount| mount.device == ended.device && mount.source == ended.source)
}

fn mounts_of(is_one: impl Fn(&Mount) -> bool) -> Vec<User> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for pid in std::iter::once("self".to_owned()).chain(processes()) {
        let Ok(namespace) = fs::read_link(format!("/proc/{pid}/ns/mnt")) else { continue };
        if !seen.insert(namespace) {
            continue;
        }
        let table = fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        for mount in table::parse_all(&table).filter(|mount| is_one(mount)) {
            let point = mount.point.display();
            found.push(match pid.as_str() {
                "self" => User {
                    who: point.to_string(),
                    how: "it is mounted there, too: unmount that".to_owned(),
                },
                _ => copy_of(&pid, &mount.point),
            });
        }
    }
    found
}

/// True if this mount is still there: in this mount namespace, or in the one where it was found.
#[must_use]
pub fn is_mounted(mount: &Mount) -> bool {
    let has =
        |pid: &str| mount.is_in(&fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default());
    has("self") || processes().iter().any(|pid| has(pid))
}

/// True if the volume is mounted in the mount namespace of this process.
#[must_use]
pub fn has_mount(pid: u32, device: &str) -> bool {
    let table = fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    table::parse_all(&table).any(|mount| mount.device == device)
}

/// A Cairn mount that was at this path, and still is in another mount namespace.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// Its entry in the table of that namespace.
    pub mount: Mount,
    /// A process in that namespace.
    pub user: User,
    /// A path to it from this namespace.
    pub path: PathBuf,
}

/// Looks for a mount that was at this path and still is in another mount namespace.
#[must_use]
pub fn elsewhere(point: &Path) -> Option<Elsewhere> {
    let point = table::absolute(point).ok()?;
    let here: HashSet<String> = {
        let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
        table::parse_all(&table).map(|mount| mount.device).collect()
    };
    processes().into_iter().find_map(|pid| {
        let table = fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        let ours = |mount: &Mount| {
            mount.point == point && mount.is_cairn() && !here.contains(&mount.device)
        };
        let mount = table::parse_all(&table).find(ours)?;
        let path = PathBuf::from(format!("/proc/{pid}/root"))
            .join(point.strip_prefix("/").unwrap_or(&point));
        Some(Elsewhere { mount, user: copy_of(&pid, &point), path })
    })
}

fn copy_of(pid: &str, point: &Path) -> User {
    let point = quoted(point);
    User {
        who: process(pid),
        how: format!(
            "its mount namespace has a copy: nsenter --target {pid} --mount umount {point}"
        ),
    }
}

fn processes() -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

fn process(pid: &str) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid}, {}", name.trim())
}

/// How a process uses the mount. One use is enough.
fn use_by(pid: &str, point: &Path, device: &str) -> Option<User> {
    let base = PathBuf::from(format!("/proc/{pid}"));
    let link = |name: &OsStr| {
        let at = base.join(name);
        let target = fs::read_link(&at).ok().filter(|target| target.starts_with(point))?;
        is_on(&at, &base, device).then_some(target)
    };
    let mut held = [("cwd", "works in"), ("root", "has for its root"), ("exe", "runs")].into_iter();
    let held =
        held.find_map(|(name, how)| Some(format!("{how} {}", link(name.as_ref())?.display())));
    let open = || {
        let descriptors = fs::read_dir(base.join("fd")).ok()?.flatten();
        let file = descriptors
            .map(|entry| Path::new("fd").join(entry.file_name()))
            .find_map(|at| link(at.as_os_str()))?;
        Some(format!("has {} open", file.display()))
    };
    let how = held.or_else(open).or_else(|| mapped(&base, device))?;
    Some(User { who: process(pid), how })
}

/// Whether a link of `/proc` leads to a mount of the device. True if that cannot be found out.
fn is_on(link: &Path, process: &Path, device: &str) -> bool {
    let table = |path: &Path| {
        let table = fs::read(path.join("mountinfo")).unwrap_or_default();
        let ours = table::parse_all(&table).filter(|mount| mount.device == device);
        ours.map(|mount| mount.id).collect::<Vec<_>>()
    };
    let ids = [table(Path::new("/proc/self")), table(process)].concat();
    ids.is_empty() || mount_of(link).is_none_or(|id| ids.contains(&id))
}

/// The number of the mount that a link of `/proc` leads to.
fn mount_of(link: &Path) -> Option<String> {
    // The filesystem does not learn of this descriptor.
    let file = openat(CWD, link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let facts = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let id = facts.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    Some(id.trim().to_owned())
}

/// A file of the mount in the memory of a process: `START-END FLAGS OFFSET MAJ:MIN INODE PATH`.
fn mapped(base: &Path, device: &str) -> Option<String> {
    let (major, minor) = device.split_once(':')?;
    let wanted = format!("{:02x}:{:02x}", major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
    let maps = fs::read_to_string(base.join("maps")).ok()?;
    let line = maps.lines().find(|line| line.split_ascii_whitespace().nth(3) == Some(&wanted))?;
    let path = line.split_ascii_whitespace().skip(5).collect::<Vec<_>>().join(" ");
    Some(format!("has {path} in its memory"))
}

fn mounts_below(point: &Path) -> Vec<User> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let below = table::parse_all(&table)
        .filter(|mount| mount.point != point && mount.point.starts_with(point));
    let named = below.map(|mount| User {
        who: mount.source,
        how: format!("is mounted on {}", mount.point.display()),
    });
    named.collect()
}

fn loops(point: &Path) -> Vec<User> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let shown = devices.filter_map(|device| {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        let file = file.trim_end_matches('\n');
        let who = format!("/dev/{}", device.file_name().to_string_lossy());
        Path::new(file).starts_with(point).then(|| User { who, how: format!("shows {file}") })
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_some_and_counts_the_rest() {
        let user =
            |n: usize| User { who: format!("process {n}, sh"), how: "works in /mnt".to_owned() };
        assert_eq!(listed(&[]), None);
        assert_eq!(listed(&[user(1)]).unwrap(), "process 1, sh (works in /mnt)");
        let many: Vec<User> = (0..8).map(user).collect();
        assert!(listed(&many).unwrap().ends_with("process 4, sh (works in /mnt), and 3 more"));
    }

    #[test]
    fn this_process_is_seen_by_another_but_not_by_itself() {
        let here = std::env::current_dir().unwrap();
        assert!(use_by("self", &here, "0:0").unwrap().how.starts_with("works in"));
        assert!(
            of(&here, "0:0", None)
                .iter()
                .all(|user| !user.who.contains(&format!("process {},", std::process::id())))
        );
    }

    #[test]
    fn a_directory_on_another_mount_is_no_use() {
        let here = std::env::current_dir().unwrap();
        let table = table::all().unwrap();
        let device = |point: &str| {
            let mount = table.iter().rfind(|mount| mount.point == Path::new(point));
            mount.unwrap().device.clone()
        };
        assert_eq!(use_by("self", &here, &device("/proc")), None);
        let link = Path::new("/proc/self/cwd");
        assert!(table.iter().any(|mount| Some(&mount.id) == mount_of(link).as_ref()));
        let proc = Path::new("/proc/self");
        assert!(is_on(Path::new("/proc/self/cmdline"), proc, &device("/proc")));
    }
}
