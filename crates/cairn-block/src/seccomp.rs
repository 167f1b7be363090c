//! [`confine`]: programs of this process neither type at a terminal in the name of its user, nor
//! use the user's keys.
//!
//! `TIOCSTI` and `TIOCLINUX` put text into the input of a terminal, where the shell that started
//! this process would read it as commands. `keyctl`, `add_key` and `request_key` reach the keyrings
//! that this process has from its caller: no namespace separates those of a session. A filter of
//! system calls (seccomp) refuses all of them.

use std::io;

/// Whose numbers of system calls [`confine`] knows: the machine's, as `AUDIT_ARCH_*`.
const MACHINE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else if cfg!(target_arch = "riscv64") {
    Some(0xc000_00f3)
} else {
    None
};

/// Bit of the calls of x32.
const X32: u32 = 0x4000_0000;
/// `ioctl` of 32-bit programs, on Intel's and ARM's machines.
const NARROW_IOCTL: u32 = 54;
/// `ioctl` of x32.
const X32_IOCTL: u32 = X32 + 514;
/// `add_key`, `request_key` and `keyctl` of 32-bit programs.
const NARROW_KEYS: [u32; 3] =
    if cfg!(target_arch = "x86_64") { [286, 287, 288] } else { [309, 310, 311] };

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;

/// Where the filter finds the number of the call, the machine, and the second argument.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const REQUEST: u32 = if cfg!(target_endian = "little") { 24 } else { 28 };

/// From now on the kernel refuses these calls to this thread and to the programs that it starts,
/// for ever. Needs `CAP_SYS_ADMIN` in the user namespace.
///
/// # Errors
/// The kernel has no filters, or none for this machine is known.
pub fn confine() -> io::Result<()> {
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

/// Calls of 64-bit programs that are refused.
fn keys() -> [u32; 6] {
    let [add, request, control] = [libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl]
        .map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    [add, request, control, add | X32, request | X32, control | X32]
}

fn filter(machine: u32) -> Vec<libc::sock_filter> {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const REFUSED: u32 = 0x0005_0000 | libc::EPERM.cast_unsigned();
    const ALLOWED: u32 = 0x7fff_0000;
    let load = |k| libc::sock_filter { code: LOAD, jt: 0, jf: 0, k };
    let end = |k| libc::sock_filter { code: RETURN, jt: 0, jf: 0, k };
    // Skips `jt` instructions if the loaded word is `k`, else `jf`.
    let equal = |k, jt, jf| libc::sock_filter { code: EQUAL, jt, jf, k };
    let ioctl = u32::try_from(libc::SYS_ioctl).unwrap_or(u32::MAX);
    // From the end: each jump is forward, over as many instructions as are there.
    let mut steps = vec![end(REFUSED), end(ALLOWED)];
    steps.extend([equal(TIOCLINUX, 1, 0), equal(TIOCSTI, 2, 0), load(REQUEST)]);
    let over = |steps: &[libc::sock_filter], to: usize| {
        u8::try_from(steps.len().saturating_sub(to)).unwrap_or(u8::MAX)
    };
    let request = steps.len();
    let calls = |steps: &mut Vec<libc::sock_filter>, ioctls: &[u32], keys: &[u32]| {
        steps.push(end(ALLOWED));
        for number in ioctls {
            steps.push(equal(*number, over(steps, request), 0));
        }
        for number in keys {
            steps.push(equal(*number, over(steps, 1), 0));
        }
        steps.push(load(NUMBER));
    };
    calls(&mut steps, &[NARROW_IOCTL], &NARROW_KEYS);
    let others = steps.len();
    calls(&mut steps, &[ioctl, X32_IOCTL], &keys());
    steps.push(equal(machine, 0, over(&steps, others)));
    steps.push(load(ARCH));
    steps.reverse();
    steps
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
    fn keys_and_typing_are_refused_and_nothing_else() {
        let ioctl = u32::try_from(libc::SYS_ioctl).unwrap();
        let (wide, narrow) = (0xc000_003e, 0x4000_0003);
        for (machine, number) in [(wide, ioctl), (wide, X32_IOCTL), (narrow, NARROW_IOCTL)] {
            for request in [TIOCSTI, TIOCLINUX] {
                assert_eq!(verdict(machine, number, request), 0x0005_0001);
            }
            // TCGETS.
            assert_eq!(verdict(machine, number, 0x5401), 0x7fff_0000);
        }
        for number in keys() {
            assert_eq!(verdict(wide, number, 0), 0x0005_0001);
        }
        for number in NARROW_KEYS {
            assert_eq!(verdict(narrow, number, 0), 0x0005_0001);
        }
        // mmap of as many bytes.
        assert_eq!(verdict(wide, 9, TIOCSTI), 0x7fff_0000);
        assert_eq!(verdict(narrow, 90, TIOCSTI), 0x7fff_0000);
    }
}
