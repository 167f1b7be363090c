//! What a remount refuses of every format.

use crate::error::{Error, Result};

/// The error of a change that a mounted volume cannot make.
#[must_use]
pub fn refused(why: &str) -> Error {
    Error::Option(format!("{why}: unmount and mount again").into())
}

/// Fails if the list asks for `rw` although the volume was mounted writable and has been stopped:
/// nobody is told that it is writable. `read_only` is the option in force, `reason` why nothing may
/// be written.
///
/// # Errors
/// [`Error::Option`], with the reason.
pub fn check_stopped(read_only: bool, reason: Option<&str>, list: &str) -> Result<()> {
    let asks = !read_only && list.split(',').any(|word| word == "rw");
    match reason.filter(|_| asks) {
        Some(reason) => Err(refused(&format!("rw is not possible: {reason}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_volume_is_not_called_writable() {
        assert_eq!(
            check_stopped(false, Some("it stopped"), "noatime,rw").unwrap_err().to_string(),
            "rw is not possible: it stopped: unmount and mount again"
        );
        for (read_only, reason, list) in [
            (false, Some("it stopped"), "noatime"),
            (false, None, "rw"),
            // A volume that is read-only on request may be asked to become writable.
            (true, Some("opened for reading"), "rw"),
        ] {
            assert!(check_stopped(read_only, reason, list).is_ok(), "{list}");
        }
    }
}
