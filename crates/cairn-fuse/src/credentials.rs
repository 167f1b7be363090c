//! The sender of a request: what the kernel sends, and what is looked up in `/proc`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use cairn_vfs::{Caller, FileSystem, ReservedFor};

use crate::wire::Request;

/// The user namespace of the system itself, as `/proc` links to it: `PROC_USER_INIT_INO`.
const SYSTEM_NAMESPACE: &str = "user:[4026531837]";
/// `CAP_SYS_ADMIN`, a bit of a set of capabilities.
const SYS_ADMIN: u32 = 21;

/// The sender is not in the request: on mounts that can be idmapped, only requests that make a file
/// carry their sender's numbers.
const UNKNOWN: u32 = u32::MAX;

/// With this many free bytes, a request of limited length does not reach the root-reserved blocks.
const FAR_FROM_FULL: u64 = 64 << 20;

/// `CAP_SYS_RESOURCE`.
const SYS_RESOURCE: u32 = 24;

/// The sender of a request.
pub(crate) struct Credentials {
    uid: u32,
    gid: u32,
    pid: u32,
}

impl Credentials {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let header = &request.header;
        Self { uid: header.uid, gid: header.gid, pid: header.pid }
    }

    fn uid(&self) -> u32 {
        if self.uid == UNKNOWN {
            self.numbers("Uid:").last().copied().unwrap_or(UNKNOWN)
        } else {
            self.uid
        }
    }

    fn gid(&self) -> u32 {
        if self.gid == UNKNOWN {
            self.numbers("Gid:").last().copied().unwrap_or(UNKNOWN)
        } else {
            self.gid
        }
    }

    /// The caller for the filesystem, with this mask for new files.
    pub(crate) fn caller(&self, umask: u32) -> Caller {
        Caller { uid: self.uid(), gid: self.gid(), umask, inherits: true }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.uid() == 0
    }

    /// True if the sender is in the group, or is root. Supplementary groups are looked up, because
    /// the kernel does not send them. This is rare: only for set-group-id programs that their group
    /// cannot run.
    pub(crate) fn is_member(&self, gid: u32) -> bool {
        self.is_root() || self.gid() == gid || self.numbers("Groups:").contains(&gid)
    }

    /// True if the sender may use root-reserved blocks. As in Linux, its user, its groups and
    /// `CAP_SYS_RESOURCE` decide.
    pub(crate) fn may_use_reserved(&self, fs: &dyn FileSystem) -> bool {
        fs.reserved_for().is_none_or(|of| {
            of.admits(&self.caller(0), |gid| self.numbers("Groups:").contains(&gid))
                || self.has_capability(SYS_RESOURCE)
        })
    }

    /// As [`Self::may_use_reserved`], for a request of limited length: while much space is free,
    /// the sender is not looked up.
    pub(crate) fn may_use_reserved_now(&self, fs: &dyn FileSystem) -> bool {
        fs.room(false) >= FAR_FROM_FULL || self.may_use_reserved(fs)
    }

    /// As [`Self::may_use_reserved`], for later writes of the sender through a handle. While much
    /// space is free, nothing is looked up, and only its user and its first group decide.
    pub(crate) fn may_use_reserved_later(&self, fs: &dyn FileSystem) -> bool {
        if fs.room(false) < FAR_FROM_FULL {
            return self.may_use_reserved(fs);
        }
        let of = fs.reserved_for().unwrap_or(ReservedFor { uid: 0, gid: 0 });
        of.admits(&self.caller(0), |_| false)
    }

    /// True if the sender has `CAP_SYS_ADMIN`.
    pub(crate) fn is_administrator(&self) -> bool {
        self.has_capability(SYS_ADMIN)
    }

    /// Four bytes of the memory of the sender, which waits for the answer. `None` if this process
    /// may not read it: the sender belongs to another user or namespace.
    pub(crate) fn word_at(&self, address: u64) -> Option<u32> {
        let mut word = [0; 4];
        let memory = File::open(format!("/proc/{}/mem", self.pid)).ok()?;
        memory.read_exact_at(&mut word, address).ok()?;
        Some(u32::from_ne_bytes(word))
    }

    /// True if the sender has this capability in the system's user namespace, not only in one of
    /// its own. False if that is not readable.
    fn has_capability(&self, capability: u32) -> bool {
        let namespace = fs::read_link(format!("/proc/{}/ns/user", self.pid));
        if !namespace.is_ok_and(|namespace| namespace.as_os_str() == SYSTEM_NAMESPACE) {
            return false;
        }
        let set = u64::from_str_radix(self.status("CapEff:").trim(), 16).unwrap_or(0);
        set >> capability & 1 == 1
    }

    /// The numbers of a line of the sender's status. The last number of `Uid` and `Gid` is the one
    /// for filesystems. Empty if the process has ended or is not readable.
    fn numbers(&self, line: &str) -> Vec<u32> {
        self.status(line).split_whitespace().map_while(|number| number.parse().ok()).collect()
    }

    fn status(&self, line: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        status.lines().find_map(|text| text.strip_prefix(line)).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_where_the_sender_has_it() {
        let word = Box::new(0x1234_5678_u32);
        let address = std::ptr::from_ref(&*word).addr() as u64;
        let own = Credentials { uid: 0, gid: 0, pid: std::process::id() };
        assert_eq!(own.word_at(address), Some(*word));
        assert_eq!(own.word_at(8), None, "nothing is mapped there");
        assert_eq!(Credentials { pid: 0, ..own }.word_at(address), None);
    }

    #[test]
    fn capabilities_are_those_of_the_sender_s_process() {
        let own = Credentials { uid: 1, gid: 1, pid: std::process::id() };
        // Capability 0 is CAP_CHOWN; there is no capability 63.
        assert_eq!(own.has_capability(0), rustix::process::geteuid().is_root());
        assert!(!own.has_capability(63) && !Credentials { pid: 0, ..own }.has_capability(0));
    }

    #[test]
    fn groups_are_the_sender_s_own_and_those_of_its_process() {
        let pid = std::process::id();
        let own = rustix::process::getgroups().unwrap();
        let sender = Credentials { uid: 1, gid: 12_345, pid };
        assert!(sender.is_member(12_345));
        assert!(own.iter().all(|gid| sender.is_member(gid.as_raw())));
        let strange = (90_000..).find(|gid| own.iter().all(|own| own.as_raw() != *gid)).unwrap();
        assert!(!sender.is_member(strange));
        assert!(!Credentials { pid: 0, ..sender }.is_member(strange));
        assert!(Credentials { uid: 0, gid: 0, pid }.is_member(strange));
        // The kernel sends no numbers.
        let unknown = Credentials { uid: UNKNOWN, gid: UNKNOWN, pid };
        assert_eq!(unknown.is_root(), rustix::process::geteuid().is_root());
        assert!(unknown.is_member(rustix::process::getegid().as_raw()));
        assert!(!Credentials { pid: 0, ..unknown }.is_root());
    }
}
