//! [`Failure`]: a call that failed, its number and its words; and [`enter`], which every entry
//! calls.
//!
//! No panic leaves an entry. One that happens is EIO, and stops the volume as a power cut would:
//! its memory may be in the middle of a change.

#![allow(unsafe_code, reason = "names that the linker sees; unsafe blocks are in `raw`")]

use std::cell::RefCell;
use std::ffi::{c_char, c_int, CString};
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};

use cairn::FileSystem;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: c_int,
    message: String,
}

impl Failure {
    pub(crate) fn new(errno: c_int, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }

    /// The caller gave something that cannot be.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, message)
    }

    /// Its negative errno. Its words are kept for [`cairn_last_error`].
    pub(crate) fn keep(self) -> c_int {
        // A NUL would end the text.
        let text = self.message.replace('\0', "\\0");
        LAST.set(CString::new(text).unwrap_or_default());
        -self.errno
    }

    /// An error about a file of the volume.
    pub(crate) fn at(path: &[u8]) -> impl Fn(io::Error) -> Self + '_ {
        |error| Self::new(cairn::errno(&error), format!("{}: {error}", path.escape_ascii()))
    }
}

impl Failure {
    /// An error of a call with two paths, either of which may be the reason.
    pub(crate) fn between<'a>(from: &'a [u8], to: &'a [u8]) -> impl Fn(io::Error) -> Self + 'a {
        move |error| {
            let (from, to) = (from.escape_ascii(), to.escape_ascii());
            Self::new(cairn::errno(&error), format!("{from} to {to}: {error}"))
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(cairn::errno(&error), error.to_string())
    }
}

impl From<cairn::Error> for Failure {
    fn from(error: cairn::Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// What the last call that failed in this thread has to say: what happened, and what to do. The
/// text stays until the next call that fails in this thread; it is empty before the first.
#[no_mangle]
pub extern "C" fn cairn_last_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// Runs the body of an entry whose result is a number.
pub(crate) fn count(
    stops: Option<&dyn FileSystem>,
    body: impl FnOnce() -> Result<u64, Failure>,
) -> i64 {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(number)) => match i64::try_from(number) {
            Ok(number) => return number,
            Err(_) => Failure::new(libc::EOVERFLOW, format!("{number} is beyond an int64_t")),
        },
        Ok(Err(failure)) => failure,
        Err(panic) => panicked(stops, &*panic),
    };
    failure.keep().into()
}

/// Runs the body of an entry without a result.
pub(crate) fn enter(
    stops: Option<&dyn FileSystem>,
    body: impl FnOnce() -> Result<(), Failure>,
) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => failure.keep(),
        Err(panic) => panicked(stops, &*panic).keep(),
    }
}

fn panicked(stops: Option<&dyn FileSystem>, panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text");
    let reason = format!("a defect of Cairn: {text}: close the volume, check it, and report this");
    if let Some(filesystem) = stops {
        // It has stopped whatever this returns, or panics with.
        let _ = catch_unwind(AssertUnwindSafe(|| filesystem.abandon(&reason)));
    }
    Failure::new(libc::EIO, reason)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> String {
        LAST.with_borrow(|last| CStr::to_string_lossy(last).into_owned())
    }

    #[test]
    fn a_panic_is_an_error_and_threads_have_errors_of_their_own() {
        assert_eq!(enter(None, || panic!("number {}", 7)), -libc::EIO);
        assert!(last().contains("number 7"), "{}", last());
        let other = std::thread::spawn(|| {
            let before = last();
            (before, count(None, || Err(Failure::invalid("mine\0"))), last())
        });
        let invalid = i64::from(-libc::EINVAL);
        assert_eq!(other.join().unwrap(), (String::new(), invalid, "mine\\0".into()));
        assert!(last().contains("number 7"), "{}", last());
        assert_eq!(count(None, || Ok(u64::MAX)), i64::from(-libc::EOVERFLOW));
    }
}
