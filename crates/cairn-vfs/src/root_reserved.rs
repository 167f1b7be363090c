//! Root-reserved blocks: the users who may use them, and whether the current call may.
//!
//! As in Linux, where the credentials of the task decide, this belongs to the calling thread and is
//! not an argument of each method. A front-end calls [`denied_if`] around a request. Trusted
//! callers (library, command line) and daemons do not, so they may use the blocks. A format calls
//! [`may_be_used`] on the thread of the request, before it allocates a block.

use std::cell::Cell;

use crate::types::Caller;

thread_local! {
    static DENIED: Cell<bool> = const { Cell::new(false) };
}

/// The user and the group who may use a volume's root-reserved blocks, beside root (`resuid`,
/// `resgid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedFor {
    /// The user.
    pub uid: u32,
    /// The group. With 0, the members of root's group may not use the blocks.
    pub gid: u32,
}

impl ReservedFor {
    /// True if `who` may use the blocks. `is_member` is true for a supplementary group of `who`. It
    /// is called at most once.
    pub fn admits(&self, who: &Caller, is_member: impl FnOnce(u32) -> bool) -> bool {
        who.uid == 0
            || who.uid == self.uid
            || self.gid != 0 && (who.gid == self.gid || is_member(self.gid))
    }
}

/// The user or the group of an option (`resuid=77`, given as its name and value).
///
/// # Errors
/// A text that names the option, if the value is no number of a user or group.
pub fn parse_id(name: &str, value: &str) -> Result<u32, String> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    // The highest number means "no user" and is refused.
    let id = digits.then(|| value.parse().ok()).flatten().filter(|id| *id != u32::MAX);
    id.ok_or_else(|| format!("{name}={value}: give the number of a user or group, as in {name}=0"))
}

/// Runs `call`. If `denied`, it uses no root-reserved block.
pub fn denied_if<T>(denied: bool, call: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            DENIED.set(self.0);
        }
    }
    let _restore = Restore(DENIED.replace(denied));
    call()
}

/// True if the present call on this thread may use root-reserved blocks.
#[must_use]
pub fn may_be_used() -> bool {
    !DENIED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_named_user_and_group_may_use_the_blocks() {
        let who = |uid, gid| Caller { uid, gid, ..Caller::ROOT };
        let reserved = ReservedFor { uid: 77, gid: 88 };
        for admitted in [who(0, 5), who(77, 5), who(5, 88)] {
            assert!(reserved.admits(&admitted, |_| false), "{admitted:?}");
        }
        assert!(!reserved.admits(&who(5, 5), |_| false));
        assert!(reserved.admits(&who(5, 5), |gid| gid == 88));
        let roots = ReservedFor { uid: 0, gid: 0 };
        assert!(
            !roots.admits(&who(5, 0), |_| true),
            "the group of root is none that blocks are reserved for"
        );
    }

    #[test]
    fn users_and_groups_are_numbers() {
        assert_eq!((parse_id("resuid", "0"), parse_id("resgid", "4294967294")), (Ok(0), Ok(!1)));
        for bad in ["", "-1", "+1", "4294967295", "root"] {
            assert!(parse_id("resuid", bad).unwrap_err().contains(&format!("resuid={bad}:")));
        }
    }

    #[test]
    fn a_call_is_denied_until_it_ends_however_it_ends() {
        assert!(may_be_used());
        denied_if(true, || {
            assert!(!may_be_used());
            denied_if(false, || assert!(may_be_used()));
            assert!(!may_be_used());
            assert!(std::thread::spawn(may_be_used).join().unwrap(), "only this thread");
        });
        assert!(
            std::panic::catch_unwind(|| denied_if(true, || panic!("a broken invariant"))).is_err()
        );
        assert!(may_be_used());
    }
}
