//! What the two sides of a mount use: processor time, changes of context, page faults, requests,
//! copies.

use std::path::Path;

use nix::sys::resource::{UsageWho, getrusage};

use crate::error::{Error, Result};

/// What a server has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Nanoseconds of processor time.
    pub(crate) processor: u64,
    /// Changes of context.
    pub(crate) switches: u64,
    /// Page faults.
    pub(crate) faults: u64,
    /// Requests, if the server counts them.
    pub(crate) requests: Option<u64>,
    /// Bytes that the server copied between requests and its cache, if it counts them.
    pub(crate) copied: Option<u64>,
}

impl Used {
    /// What was used since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        let since = |now: Option<u64>, then: Option<u64>| {
            now.zip(then).map(|(now, then)| now.saturating_sub(then))
        };
        Self {
            processor: self.processor.saturating_sub(before.processor),
            switches: self.switches.saturating_sub(before.switches),
            faults: self.faults.saturating_sub(before.faults),
            requests: since(self.requests, before.requests),
            copied: since(self.copied, before.copied),
        }
    }

    /// What this process and the programs that it has run to their end have used.
    pub(crate) fn by_clients() -> Result<Self> {
        let mut used = Self::default();
        for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
            let usage = getrusage(who)
                .map_err(|error| Error::host("the use of the processor")(error.into()))?;
            for time in [usage.user_time(), usage.system_time()] {
                let nanoseconds = time.tv_sec() * 1_000_000_000 + time.tv_usec() * 1000;
                used.processor += u64::try_from(nanoseconds).unwrap_or(0);
            }
            let switches =
                usage.voluntary_context_switches() + usage.involuntary_context_switches();
            used.switches += u64::try_from(switches).unwrap_or(0);
            let faults = usage.minor_page_faults() + usage.major_page_faults();
            used.faults += u64::try_from(faults).unwrap_or(0);
        }
        Ok(used)
    }
}

/// Processor time, changes of context and page faults of all threads of a process.
pub(super) fn of_process(process: u32) -> Result<Used> {
    let path = format!("/proc/{process}/task");
    let mut used = Used::default();
    for thread in std::fs::read_dir(&path).map_err(Error::host(&path))? {
        let thread = thread.map_err(Error::host(&path))?.path();
        // A thread that has just ended is left out.
        let read = |name: &str| std::fs::read_to_string(Path::new(&thread).join(name));
        let (Ok(times), Ok(status)) = (read("schedstat"), read("status")) else { continue };
        used.processor += times.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0);
        used.switches += switches_in(&status);
    }
    let path = format!("/proc/{process}/stat");
    let stat = std::fs::read_to_string(&path).map_err(Error::host(&path))?;
    used.faults = faults_in(&stat);
    Ok(used)
}

/// Minor and major faults of a process's line in /proc.
fn faults_in(stat: &str) -> u64 {
    // The name may have spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let mut fields = fields.split_whitespace().skip(7).step_by(2);
    let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    next() + next()
}

fn switches_in(status: &str) -> u64 {
    let counts = status.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        name.ends_with("voluntary_ctxt_switches").then(|| count.trim().parse::<u64>().ok())?
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_the_processor() {
        let before = Used::by_clients().unwrap();
        let mut sum = 0_u64;
        while of_process(std::process::id()).unwrap().processor < 5_000_000 {
            sum = (0..10_000).fold(sum, |sum, number| std::hint::black_box(sum ^ number));
        }
        assert!(Used::by_clients().unwrap().processor > 0);
        assert_eq!(before.since(before), Used::default());
    }

    #[test]
    fn both_kinds_of_faults_count() {
        assert_eq!(faults_in("7 (a b) c) S 1 7 7 0 -1 4194304 90 11 5 12 3 4"), 95);
        assert_eq!(faults_in(""), 0);
    }

    #[test]
    fn both_kinds_of_switches_count() {
        assert_eq!(
            switches_in("Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n"),
            9
        );
    }
}
