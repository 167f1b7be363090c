//! Capabilities of files: `security.capability` in the form of version 2, from numbers and from the
//! words of setcap(8).

use super::words::{Parsed, shown};

/// The attribute.
pub(super) const NAME: &[u8] = b"security.capability";

/// The version, and the flag that makes the permitted ones effective.
const VERSION_2: u32 = 0x0200_0000;
const EFFECTIVE: u32 = 1;

/// Names by number, without `cap_`.
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// The capabilities of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    pub(super) permitted: u64,
    pub(super) inheritable: u64,
    pub(super) effective: bool,
}

impl Capabilities {
    /// The value of the attribute.
    pub(super) fn value(self) -> Vec<u8> {
        let version = VERSION_2 | if self.effective { EFFECTIVE } else { 0 };
        let halves = |set: u64| {
            let bytes = set.to_le_bytes();
            let (low, high) = bytes.split_at(4);
            (low.to_vec(), high.to_vec())
        };
        let ((permitted, permitted_high), (inheritable, inheritable_high)) =
            (halves(self.permitted), halves(self.inheritable));
        let version = version.to_le_bytes().to_vec();
        [version, permitted, inheritable, permitted_high, inheritable_high].concat()
    }

    /// Adds what a text says: clauses such as `cap_net_raw,cap_chown+ep`.
    ///
    /// # Errors
    /// A name or a clause is not known.
    pub(super) fn add(&mut self, text: &[u8]) -> Parsed<()> {
        for clause in super::words::fields(text) {
            let wrong = || {
                let shown = shown(clause);
                format!("{shown} is no list of capabilities: give one such as cap_net_raw+ep")
            };
            let at = clause.iter().position(|byte| b"=+".contains(byte)).ok_or_else(wrong)?;
            let (names, rest) = clause.split_at(at);
            let mut set = 0_u64;
            for name in names.split(|byte| *byte == b',') {
                set |= match name {
                    b"all" => (1 << NAMES.len()) - 1,
                    name => 1 << number(name).ok_or_else(wrong)?,
                };
            }
            let (operator, flags) = rest.split_first().ok_or_else(wrong)?;
            if *operator == b'=' {
                self.permitted &= !set;
                self.inheritable &= !set;
            }
            for flag in flags {
                match flag {
                    b'p' => self.permitted |= set,
                    b'i' => self.inheritable |= set,
                    b'e' => self.effective = true,
                    _ => return Err(wrong()),
                }
            }
        }
        Ok(())
    }
}

fn number(name: &[u8]) -> Option<usize> {
    let name = name.strip_prefix(b"cap_")?;
    NAMES.iter().position(|known| known.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What setcap(8) stores.
    #[test]
    fn words_become_the_value_of_the_attribute() {
        let mut of = Capabilities::default();
        of.add(b"cap_net_raw+ep").unwrap();
        assert_eq!(of.value(), [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        of.add(b"cap_checkpoint_restore,cap_chown=i").unwrap();
        assert_eq!((of.permitted, of.inheritable), (1 << 13, 1 << 40 | 1));
        for wrong in ["cap_net_raw", "net_raw+ep", "cap_no+e", "cap_chown+x", "cap_chown,+e"] {
            assert!(Capabilities::default().add(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
