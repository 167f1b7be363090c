//! [`refuse`]: programs of this process cannot type at a terminal in the name of its user.
//!
//! `TIOCSTI` and `TIOCLINUX` put text into the input of a terminal, where the shell that started
//! this process would read it as commands. A filter of system calls (seccomp) refuses both.

use std::io;

/// Whose numbers of system calls [`refuse`] knows: the machine's, as `AUDIT_ARCH_*`.
const MACHINE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else if cfg!(target_arch = "riscv64") {
    Some(0xc000_00f3)
} else {
    None
};

/// `ioctl` of 32-bit programs, on Intel's and ARM's machines.
const NARROW_IOCTL: u32 = 54;
/// `ioctl` of x32.
const X32_IOCTL: u32 = 0x4000_0000 + 514;

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;

/// Where the filter finds the number of the call, the machine, and the second argument.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const REQUEST: u32 = if cfg!(target_endian = "little") { 24 } else { 28 };

/// From now on the kernel refuses both calls to this thread and to the programs that it starts, for
/// ever. Needs `CAP_SYS_ADMIN` in the user namespace.
///
/// # Errors
/// The kernel has no filters, or none for this machine is known.
pub fn refuse() -> io::Result<()> {
    const SECCOMP_FILTER_FLAG_SPEC_ALLOW: libc::c_ulong = 4;
    let Some(machine) = MACHINE else { return Err(io::ErrorKind::Unsupported.into()) };
    let mut filter = filter(machine);
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap_or(0),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: `program` points to as many instructions as it says, and both live beyond the call,
    // which copies them.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::c_ulong::from(libc::SECCOMP_SET_MODE_FILTER),
            SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            &raw const program,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn filter(machine: u32) -> [libc::sock_filter; 13] {
    const LOAD: u16 = 0x20;
    const RETURN: u16 = 0x06;
    const REFUSED: u32 = 0x0005_0000 | libc::EPERM.cast_unsigned();
    const ALLOWED: u32 = 0x7fff_0000;
    let load = |k| libc::sock_filter { code: LOAD, jt: 0, jf: 0, k };
    let end = |k| libc::sock_filter { code: RETURN, jt: 0, jf: 0, k };
    // Skips `jt` instructions if the loaded word is `k`, else `jf`.
    let equal = |k, jt, jf| libc::sock_filter { code: 0x15, jt, jf, k };
    let ioctl = u32::try_from(libc::SYS_ioctl).unwrap_or(u32::MAX);
    [
        load(ARCH),
        equal(machine, 0, 4),
        load(NUMBER),
        equal(ioctl, 4, 0),
        equal(X32_IOCTL, 3, 0),
        end(ALLOWED),
        load(NUMBER),
        equal(NARROW_IOCTL, 0, 3),
        load(REQUEST),
        equal(TIOCSTI, 2, 0),
        equal(TIOCLINUX, 1, 0),
        end(ALLOWED),
        end(REFUSED),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says of a call.
    fn verdict(machine: u32, number: u32, request: u32) -> u32 {
        let filter = filter(0xc000_003e);
        let (mut at, mut word) = (0, 0);
        loop {
            let step = filter[at];
            at += 1;
            match (step.code, step.k) {
                (0x06, verdict) => return verdict,
                (0x20, NUMBER) => word = number,
                (0x20, ARCH) => word = machine,
                (0x20, REQUEST) => word = request,
                (0x15, k) => at += usize::from(if word == k { step.jt } else { step.jf }),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn only_typing_is_refused() {
        let ioctl = u32::try_from(libc::SYS_ioctl).unwrap();
        let (wide, narrow) = (0xc000_003e, 0x4000_0003);
        for (machine, number) in [(wide, ioctl), (wide, X32_IOCTL), (narrow, NARROW_IOCTL)] {
            for request in [TIOCSTI, TIOCLINUX] {
                assert_eq!(verdict(machine, number, request), 0x0005_0001);
            }
            // TCGETS.
            assert_eq!(verdict(machine, number, 0x5401), 0x7fff_0000);
        }
        // mmap of as many bytes.
        assert_eq!(verdict(wide, 9, TIOCSTI), 0x7fff_0000);
        assert_eq!(verdict(narrow, 90, TIOCSTI), 0x7fff_0000);
    }
}
