//! Asks the user before data is overwritten.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::{Failure, Outcome, Status};

/// Are standard input and standard error a terminal?
#[must_use]
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks; anything but `y` or `yes` is a no.
///
/// # Errors
/// The answer is no, or there is none.
pub fn ask(question: &str) -> Outcome {
    // In one piece: the terminal may show typed letters between two.
    let _ = io::stderr().write_all(format!("{question} [y/N] ").as_bytes());
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" if read.is_ok() => Ok(()),
        _ => Err(Failure::new(
            Status::Failed,
            "nothing was changed: answer y, or add --force, to overwrite it",
        )),
    }
}
