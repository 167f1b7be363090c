//! Which descriptors of this process the programs that it starts get.

use std::io;
use std::ops::Range;

use rustix::io::Errno;

/// Programs that are started from now on get no descriptor from `first` on, whoever opened it.
///
/// # Errors
/// The system refuses it, and `/proc` cannot be read.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    // SAFETY: no memory is passed. A flag of descriptors changes, which stay open here.
    let done = unsafe {
        libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC)
    };
    if done == 0 {
        return Ok(());
    }
    // Before Linux 5.11.
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let is_meant = |number: &i32| u32::try_from(*number).is_ok_and(|number| number >= first);
        if let Some(number) = number.filter(is_meant) {
            // The descriptor of this listing is one of them, and may be gone.
            let _ = set_close_on_exec(number, true);
        }
    }
    Ok(())
}

/// Programs that are started from now on get these descriptors.
///
/// # Errors
/// One of them is not open.
pub fn inherit(range: Range<i32>) -> io::Result<()> {
    range.into_iter().try_for_each(|number| set_close_on_exec(number, false))
}

fn set_close_on_exec(number: i32, on: bool) -> io::Result<()> {
    // SAFETY: no memory is passed. A flag of a descriptor is read.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(Errno::BADF.into());
    }
    let flags = if on { flags | libc::FD_CLOEXEC } else { flags & !libc::FD_CLOEXEC };
    // SAFETY: as above; the flag changes, and the descriptor stays open.
    match unsafe { libc::fcntl(number, libc::F_SETFD, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    use super::*;

    /// What `ls` sees of a descriptor.
    fn has(number: i32) -> bool {
        let path = format!("/proc/self/fd/{number}");
        Command::new("test").args(["-e", &path]).status().unwrap().success()
    }

    #[test]
    fn programs_get_what_they_are_given() {
        let file = File::open("/dev/null").unwrap();
        let number = file.as_raw_fd();
        inherit(number..number + 1).unwrap();
        assert!(has(number));
        close_on_exec_from(u32::try_from(number).unwrap()).unwrap();
        assert!(!has(number));
        inherit(number..number + 1).unwrap();
        assert!(has(number));
        drop(file);
        assert!(inherit(100_000..100_001).is_err());
    }
}
