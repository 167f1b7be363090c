//! The ids of the namespace.
//!
//! Root has all ids that it has outside. Another user is root inside, and has the ids that
//! `/etc/subuid` and `/etc/subgid` grant, which the programs newuidmap and newgidmap map; without
//! them only that one id.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{getegid, geteuid};
use rustix::thread::set_thread_groups;

use super::starting::stage;
use crate::failure::{Failure, Outcome, Status};
use crate::output;

/// The programs that map ids of `/etc/subuid` and `/etc/subgid`.
const TOOLS: [&str; 2] = ["newuidmap", "newgidmap"];

/// Ids inside, ids outside, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    inside: u32,
    outside: u32,
    count: u32,
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.inside, self.outside, self.count)
    }
}

/// Which ids a namespace gets.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    /// The same as outside.
    Same,
    /// This user and those of `/etc/subuid` and `/etc/subgid`.
    Granted { users: Vec<Extent>, groups: Vec<Extent> },
    /// This user alone, for this reason.
    One(String),
}

impl Plan {
    fn of_this_user() -> Self {
        let user = geteuid().as_raw();
        if user == 0 {
            return Self::Same;
        }
        if let Some(missing) = TOOLS.into_iter().find(|tool| find_program(tool).is_none()) {
            return Self::One(format!("{missing} is not installed: install the package uidmap"));
        }
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let names = names(&passwd, user);
        let granted = |path: &str, own: u32| {
            let text = fs::read_to_string(path).unwrap_or_default();
            extents(own, &granted(&text, &names))
        };
        let users = granted("/etc/subuid", user);
        let groups = granted("/etc/subgid", getegid().as_raw());
        for (path, extents) in [("/etc/subuid", &users), ("/etc/subgid", &groups)] {
            if extents.len() < 2 {
                let grant = "root can grant some with usermod --add-subuids --add-subgids";
                return Self::One(format!("{path} grants this user no ids: {grant}"));
            }
        }
        Self::Granted { users, groups }
    }
}

/// True for root outside of all user namespaces. Its files in /proc/sys and /dev are those of the
/// host, also for a program that has no capability there.
fn is_host_root() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    geteuid().is_root() && map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// A program in PATH, or where only root's PATH leads.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).collect::<Vec<_>>();
    let more = ["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from);
    places.into_iter().chain(more).map(|place| place.join(name)).find(|path| path.is_file())
}

/// What `/etc/subuid` calls a user: names, and the number.
fn names(passwd: &str, user: u32) -> Vec<String> {
    let number = user.to_string();
    let name = |line: &str| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id == number).then(|| name.to_owned())
    };
    passwd.lines().filter_map(name).chain([number.clone()]).collect()
}

/// First ids and their numbers in the lines of a user.
fn granted(text: &str, names: &[String]) -> Vec<(u32, u32)> {
    let line = |line: &str| {
        let mut fields = line.trim().split(':');
        let name = fields.next()?;
        let (start, count) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        names.iter().any(|known| known == name).then_some((start, count))
    };
    text.lines().filter_map(line).filter(|(_, count)| *count > 0).collect()
}

/// This user as 0, and then the granted ids.
fn extents(own: u32, granted: &[(u32, u32)]) -> Vec<Extent> {
    let mut extents = vec![Extent { inside: 0, outside: own, count: 1 }];
    let mut next = 1_u32;
    for (outside, count) in granted.iter().copied() {
        extents.push(Extent { inside: next, outside, count });
        next = next.saturating_add(count);
    }
    extents
}

/// The process outside that maps the ids, when the namespace is there.
pub(super) struct Mapper {
    plan: Plan,
    helper: Option<Child>,
    /// User and group of this process outside.
    own: (u32, u32),
}

/// What the helper writes when the ids are mapped.
const MAPPED: &[u8] = b"M";

impl Mapper {
    /// Starts it.
    ///
    /// # Errors
    /// Root of the host calls without `host_root`, or the process cannot be started.
    pub(super) fn start(host_root: bool) -> Outcome<Self> {
        if !host_root && is_host_root() {
            let why = "root of this host keeps its power over the host there: run it as an \
                       ordinary user, or trust the command and give --host-root";
            return Err(Failure::usage(why));
        }
        let plan = Plan::of_this_user();
        let helper = match &plan {
            Plan::One(_) => None,
            plan => Some(helper(plan)?),
        };
        Ok(Self { plan, helper, own: (geteuid().as_raw(), getegid().as_raw()) })
    }

    /// Maps the ids of the namespace that this process has entered.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn map(self) -> Outcome {
        let why = match (self.helper, self.plan) {
            (Some(helper), _) => match asked(helper) {
                Ok(()) => {
                    // Groups of the host have no meaning on the image.
                    return set_thread_groups(&[]).map_err(|error| refused(&error.into()));
                }
                Err(why) => why,
            },
            (None, Plan::One(why)) => why,
            (None, _) => "no process maps ids: run again".to_owned(),
        };
        map_one(self.own)?;
        output::complain(format_args!("note: there is one user, to whom all files belong: {why}"));
        Ok(())
    }
}

fn helper(plan: &Plan) -> Outcome<Child> {
    let mut command = stage("map");
    command.arg(std::process::id().to_string());
    if let Plan::Granted { users, groups } = plan {
        let words = |name: &str, extents: &[Extent]| {
            extents.iter().flat_map(|extent| [name.to_owned(), extent.to_string()]).collect()
        };
        let users: Vec<String> = words("--user", users);
        command.args(users).args::<Vec<String>, _>(words("--group", groups));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| Failure::start("mapping ids", &error, "mount /proc"))
}

/// Tells the helper that the namespace is there, and waits for it.
fn asked(mut helper: Child) -> Result<(), String> {
    if let Some(mut pipe) = helper.stdin.take() {
        // It may have ended; the answer tells.
        let _ = pipe.write_all(MAPPED);
    }
    let output = helper.wait_with_output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    match output.stdout.as_slice() == MAPPED {
        true => Ok(()),
        false => Err(said.strip_prefix("cairn: ").unwrap_or(&said).to_owned()),
    }
}

fn refused(error: &std::io::Error) -> Failure {
    Failure::start("the ids of the namespace cannot be set", error, "see what `dmesg` says")
}

/// These ids as root's, and no others.
fn map_one((user, group): (u32, u32)) -> Outcome {
    let write = |name: &str, text: &str| {
        fs::write(Path::new("/proc/self").join(name), text).map_err(|error| refused(&error))
    };
    // Who could leave groups could reach what is denied to them.
    write("setgroups", "deny")?;
    write("uid_map", &format!("0 {user} 1\n"))?;
    write("gid_map", &format!("0 {group} 1\n"))
}

/// Arguments of the process that maps ids.
#[derive(Clone, Debug, clap::Args)]
pub struct MapArgs {
    /// The process whose namespace it is.
    process: u32,
    /// Users: the first inside, the first outside, their number. Without any, all of them stay the
    /// same.
    #[arg(long)]
    user: Vec<String>,
    /// Groups.
    #[arg(long)]
    group: Vec<String>,
}

/// Waits until the namespace is there, and maps its ids.
///
/// # Errors
/// The kernel, newuidmap or newgidmap refuses it.
pub(super) fn map(args: &MapArgs) -> Outcome {
    let mut byte = [0; 1];
    // Without a byte the starter has ended.
    if !matches!(std::io::stdin().read(&mut byte), Ok(1)) {
        return Ok(());
    }
    if args.user.is_empty() {
        for name in ["uid_map", "gid_map"] {
            let own = fs::read_to_string(Path::new("/proc/self").join(name));
            let own = own.map_err(|error| refused(&error))?;
            let path = format!("/proc/{}/{name}", args.process);
            fs::write(path, same(&own)).map_err(|error| refused(&error))?;
        }
    } else {
        for (tool, extents) in TOOLS.into_iter().zip([&args.user, &args.group]) {
            call(tool, args.process, extents)?;
        }
    }
    output::with_stdout(|stdout| stdout.bytes(MAPPED))
}

/// A map that gives each id inside of this namespace the same number.
fn same(own: &str) -> String {
    let line = |line: &str| {
        let mut fields = line.split_whitespace();
        let (inside, count) = (fields.next()?, fields.nth(1)?);
        Some(format!("{inside} {inside} {count}\n"))
    };
    own.lines().filter_map(line).collect()
}

fn call(tool: &str, process: u32, extents: &[String]) -> Outcome {
    let program = find_program(tool).unwrap_or_else(|| tool.into());
    let numbers = extents.iter().flat_map(|extent| extent.split(' ')).map(OsString::from);
    let output = Command::new(&program).arg(process.to_string()).args(numbers).output();
    let output = output.map_err(|error| Failure::host(&program, &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().lines().next_back().unwrap_or("failed without a reason").to_owned();
    Err(Failure::new(Status::Failed, format!("{said}: reinstall the package uidmap")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granted_ids_follow_the_own_one() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        let names = names(passwd, 1000);
        assert_eq!(names, ["ann", "1000"]);
        let text = "bob:300000:65536\nann:100000:65536\n1000:200000:10\nann:x:1\nann:5:0\n";
        let granted = granted(text, &names);
        assert_eq!(granted, [(100_000, 65_536), (200_000, 10)]);
        let extents: Vec<String> =
            extents(1000, &granted).iter().map(ToString::to_string).collect();
        assert_eq!(extents, ["0 1000 1", "1 100000 65536", "65537 200000 10"]);
    }

    #[test]
    fn root_keeps_its_ids() {
        let own = "         0     100000      65536\n     70000          1          2\n";
        assert_eq!(same(own), "0 0 65536\n70000 70000 2\n");
    }
}
