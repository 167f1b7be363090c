//! Standard output and standard error of the commands.
//!
//! Invariants: if the reader has gone away (`cairn info --json IMAGE | head -1`), a command ends
//! early, without a message, and with the status of its work so far. It never panics, so the crate
//! does not use `print!`. Output that cannot be written for another reason (a full disk) is a
//! failure. Lists of names are printed byte for byte, except on a terminal, which would interpret
//! their control characters. Lines that say what was done or differs are for people: their names
//! are always escaped, so that no name looks like a further line.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::Path;

use crate::failure::{Failure, Outcome, Status};
use crate::{print, wording};

/// Size of the buffer for a pipe or a file.
const BUFFER: usize = 1 << 16;

/// Most output that is held back.
const HELD_BACK: usize = 64 << 20;

/// Where a command prints its results.
pub struct Output<'a> {
    to: Box<dyn Write + 'a>,
    terminal: bool,
}

impl Output<'static> {
    /// Standard output.
    #[must_use]
    pub fn stdout() -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let to: Box<dyn Write> = if terminal {
            Box::new(stdout)
        } else {
            Box::new(BufWriter::with_capacity(BUFFER, stdout))
        };
        Self { to, terminal }
    }

    /// Standard output, held back until [`Output::flush`] or until it is large: its reader may need
    /// the image, which is open until then (`cairn find | xargs cairn chmod`).
    #[must_use]
    pub fn held_back() -> Self {
        let stdout = io::stdout();
        if stdout.is_terminal() {
            return Self::stdout();
        }
        Self { to: Box::new(HeldBack { bytes: Vec::new(), to: stdout }), terminal: false }
    }
}

/// Keeps what is written until it is flushed.
struct HeldBack {
    bytes: Vec<u8>,
    to: io::Stdout,
}

impl Write for HeldBack {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > HELD_BACK {
            self.flush()?;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        self.to.write_all(&bytes)?;
        self.to.flush()
    }
}

impl<'a> Output<'a> {
    /// An output that is no terminal.
    #[must_use]
    pub fn to(writer: impl Write + 'a) -> Self {
        Self { to: Box::new(writer), terminal: false }
    }

    /// Prints text, for `write!` and `writeln!`.
    ///
    /// # Errors
    /// The reader has gone, or the text cannot be written.
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> Outcome {
        self.to.write_fmt(text).map_err(|error| failed(&error))
    }

    /// Prints bytes as they are.
    ///
    /// # Errors
    /// As [`Output::write_fmt`].
    pub fn bytes(&mut self, bytes: &[u8]) -> Outcome {
        self.to.write_all(bytes).map_err(|error| failed(&error))
    }

    /// Prints a name or path: on a terminal with control characters escaped, else byte for byte.
    ///
    /// # Errors
    /// As [`Output::write_fmt`].
    pub fn name(&mut self, name: &[u8]) -> Outcome {
        let shown = if self.terminal {
            Cow::Owned(print::escaped(name).into_bytes())
        } else {
            Cow::Borrowed(name)
        };
        self.bytes(&shown)
    }

    /// Prints a name or path with control characters escaped, wherever the output goes.
    ///
    /// # Errors
    /// As [`Output::write_fmt`].
    pub fn escaped(&mut self, name: &[u8]) -> Outcome {
        self.bytes(print::escaped(name).as_bytes())
    }

    /// Prints the line of a command with `--verbose`: texts, each followed by an escaped name in
    /// quotation marks. A command that changes files continues without a reader.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn done(&mut self, parts: &[(&str, &[u8])]) -> Outcome {
        let mut print = || {
            for (text, name) in parts {
                self.bytes(text.as_bytes())?;
                self.bytes(b"'")?;
                self.escaped(name)?;
                self.bytes(b"'")?;
            }
            self.bytes(b"\n")
        };
        match print() {
            Err(failure) if failure.status == Status::Success => {
                self.discard();
                Ok(())
            }
            printed => printed,
        }
    }

    /// Discards all further output: the reader has gone, and the work continues.
    pub fn discard(&mut self) {
        self.to = Box::new(io::sink());
    }

    /// Writes the buffered output.
    ///
    /// # Errors
    /// As [`Output::write_fmt`].
    pub fn flush(&mut self) -> Outcome {
        self.to.flush().map_err(|error| failed(&error))
    }
}

fn failed(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::closed_pipe(),
        _ => Failure::host("standard output", error).ending_all(),
    }
}

/// Prints the results of one command: flushes after `work`, even if it fails.
///
/// # Errors
/// As `work`, or the results cannot be written.
pub fn with_stdout(work: impl FnOnce(&mut Output<'_>) -> Outcome) -> Outcome {
    print_to(Output::stdout(), work)
}

/// As [`with_stdout`], but the results are written when `work` is done ([`Output::held_back`]).
///
/// # Errors
/// As [`with_stdout`].
pub fn with_stdout_held_back(work: impl FnOnce(&mut Output<'_>) -> Outcome) -> Outcome {
    print_to(Output::held_back(), work)
}

fn print_to(mut output: Output<'static>, work: impl FnOnce(&mut Output<'_>) -> Outcome) -> Outcome {
    let done = work(&mut output);
    let flushed = output.flush();
    done.and(flushed)
}

/// Refuses to write an image to a terminal.
///
/// # Errors
/// `out` stands for standard output, which is a terminal.
pub fn refuse_terminal(out: &Path) -> Outcome {
    match out == Path::new("-") && io::stdout().is_terminal() {
        true => Err(Failure::usage("an image does not go to a terminal: lead it into a pipe")),
        false => Ok(()),
    }
}

/// All lines of a failure, if there are any left to print.
pub fn report(failure: &Failure) {
    failure.lines().filter(|line| !line.is_told()).for_each(complain);
}

/// Prints a line on standard error, after `cairn: `. A failure to do so is ignored.
pub fn complain(text: impl fmt::Display) {
    let text = text.to_string();
    let _ = writeln!(io::stderr().lock(), "cairn: {}", print::harmless(&wording::named(&text)));
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_reader_that_is_gone_is_no_failure_a_full_disk_is() {
        let gone = write!(Output::to(Broken(ErrorKind::BrokenPipe)), "x").unwrap_err();
        assert!(gone.status == Status::Success && gone.is_told());
        let full = write!(Output::to(Broken(ErrorKind::StorageFull)), "x").unwrap_err();
        assert!(
            full.status == Status::Failed && full.to_string().starts_with("standard output: "),
            "{full}"
        );
    }

    #[test]
    fn only_terminals_get_names_escaped() {
        for (terminal, expected) in
            [(true, &b"a\\nb\\033[2J\\377"[..]), (false, b"a\nb\x1b[2J\xff")]
        {
            let mut bytes = Vec::new();
            let mut output = Output { to: Box::new(&mut bytes), terminal };
            output.name(b"a\nb\x1b[2J\xff").unwrap();
            drop(output);
            assert_eq!(bytes, expected);
        }
    }
}
