//! The memory of the daemon, as the kernel counts it.

use cairn_base::stats::Report;

/// Adds `resident_bytes` and `resident_peak_bytes`, unless /proc is not mounted.
pub(super) fn report(into: &mut Report) {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return };
    for (field, name) in [("VmRSS:", "resident_bytes"), ("VmHWM:", "resident_peak_bytes")] {
        if let Some(bytes) = bytes_in(&status, field) {
            into.set(name, bytes);
        }
    }
}

fn bytes_in(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_lines_are_read() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(bytes_in(status, "VmRSS:"), Some(1 << 20));
        assert_eq!(bytes_in(status, "VmHWM:"), Some(2 << 20));
        assert_eq!(bytes_in("VmRSS:\tmany", "VmRSS:"), None);
    }
}
