//! Who has a volume open: a process, told apart from all others.
//!
//! `BOOT-NAMESPACE-PID-START`: the boot of the machine, the namespace of process numbers, the
//! number, and when the process started, in the kernel's ticks.

use std::fs;

use crate::format::manifest::Writer;

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// What this process shares with all whose end it can see.
fn machine() -> Option<String> {
    let boot = line("/proc/sys/kernel/random/boot_id")?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let number: String = namespace.to_str()?.chars().filter(char::is_ascii_digit).collect();
    Some(format!("{boot}-{number}"))
}

/// When a process started; none if it has ended.
fn start(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, and may have anything in it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let state = fields.first()?;
    (*state != "Z").then(|| fields.get(19).map(|start| (*start).to_owned()))?
}

fn host() -> Option<String> {
    line("/proc/sys/kernel/hostname")
}

/// True if the writer's host has the name of this one, and nobody can see whether it runs: this
/// machine may have been started again since.
pub(crate) fn may_be_earlier_boot(writer: &Writer) -> bool {
    runs(writer).is_none() && host().as_ref() == Some(&writer.host)
}

/// This process, as the writer with this nonce and this local log.
pub(crate) fn this(nonce: u64, log: Option<&str>) -> Writer {
    let pid = std::process::id();
    let host = host().unwrap_or_else(|| "an unknown host".to_owned());
    let process = machine().zip(start(pid));
    // Nobody can see the end of a process that does not know who it is.
    let process = process.map_or_else(
        || format!("{nonce:016x}"),
        |(machine, start)| format!("{machine}-{pid}-{start}"),
    );
    Writer { host, pid, process, nonce, log: log.map(str::to_owned) }
}

/// Whether the writer runs; none if it is not of this machine, or nobody can see that.
fn runs(writer: &Writer) -> Option<bool> {
    let rest = writer.process.strip_prefix(&format!("{}-", machine()?))?;
    let (pid, started) = rest.split_once('-')?;
    Some(start(pid.parse().ok()?).as_deref() == Some(started))
}

/// True if the writer ran on this machine, and has ended.
pub(crate) fn has_ended(writer: &Writer) -> bool {
    runs(writer) == Some(false)
}

/// True if the writer is a process of this machine, and runs.
pub(crate) fn runs_here(writer: &Writer) -> bool {
    runs(writer) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_has_not_ended() {
        let this = this(7, None);
        assert!(!has_ended(&this) && runs_here(&this), "{this:?}");
        let earlier = Writer { process: this.process.clone() + "0", ..this.clone() };
        assert!(has_ended(&earlier), "another process had this number before");
        let elsewhere = Writer { process: format!("x{}", this.process), ..this };
        assert!(!has_ended(&elsewhere) && !runs_here(&elsewhere), "nobody here can know");
        assert!(may_be_earlier_boot(&elsewhere) && !may_be_earlier_boot(&earlier));
        let far = Writer { host: "x".to_owned(), ..elsewhere.clone() };
        assert!(!may_be_earlier_boot(&far));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let other = Writer {
            process: format!("{}-{pid}-{}", machine().unwrap(), start(pid).unwrap()),
            ..elsewhere
        };
        assert!(!has_ended(&other));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(&other) && !runs_here(&other));
    }
}
