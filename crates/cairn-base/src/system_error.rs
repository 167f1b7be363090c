//! System errors as parts of a message: what happened, and what to do.

use std::io;

use rustix::io::Errno;

/// Without Rust's "(os error N)", and without a capital, because it is part of a line.
#[must_use]
pub fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

/// What to do if the system has run out of something.
#[must_use]
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        // From the calls that start threads and processes.
        Errno::AGAIN => Some("raise `ulimit -v`, `ulimit -u` or the control group's pids.max"),
        Errno::MFILE => Some("raise `ulimit -n`"),
        Errno::NFILE => Some("raise the system's fs.file-max"),
        Errno::FBIG => {
            Some("raise `ulimit -f`, or choose a filesystem on the host that takes larger files")
        }
        Errno::NOMEM => Some("raise `ulimit -v`, or free memory"),
        _ => None,
    }
}

/// `what happened: what to do`. `otherwise` says what to do if there is no remedy for the error.
#[must_use]
pub fn with_remedy(error: &io::Error, otherwise: &str) -> String {
    format!("{}: {}", words(error), remedy(error).unwrap_or(otherwise))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_helps() {
        let said = |errno: Errno| with_remedy(&errno.into(), "look");
        assert_eq!(said(Errno::MFILE), "too many open files: raise `ulimit -n`");
        assert!(
            said(Errno::AGAIN).contains("pids.max") && said(Errno::NOMEM).contains("ulimit -v")
        );
        assert_eq!(said(Errno::NOENT), "no such file or directory: look");
        assert!(said(Errno::FBIG).contains("ulimit -f"));
        assert_eq!(words(&io::Error::other("Words")), "words");
    }
}
