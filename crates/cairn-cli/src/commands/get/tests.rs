use super::*;
use crate::failure::Status;

#[test]
fn names_cannot_leave_the_destination() {
    for good in ["", "a", "a/b", "..a/b..", "a b"] {
        assert!(safe(good.as_bytes()).is_ok(), "{good}");
    }
    for bad in ["/etc", "..", "a/../b", ".", "a/./b", "a\0b"] {
        assert_eq!(safe(bad.as_bytes()).expect_err(bad).status, Status::Corrupt);
    }
}
