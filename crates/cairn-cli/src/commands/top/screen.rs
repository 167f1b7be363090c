//! The terminal while `top` has it. However the program ends, but by SIGKILL, the terminal is then
//! as it was: after a return or an error by the drop of [`Screen`], after a panic by its hook.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::frame::{Line, Style};
use crate::failure::{Failure, Outcome, Status, plain};
use crate::output;

/// The settings before the first [`Screen`].
static BEFORE: OnceLock<Termios> = OnceLock::new();
/// True while the terminal has other settings.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Another page, without a cursor and without a break of long lines.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The terminal, taken.
#[derive(Debug)]
pub(super) struct Screen {
    styled: bool,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Standard input or output is none.
    pub(super) fn enter() -> Outcome<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(Failure::usage(
                "top: needs a terminal: for programs there are --once and --json",
            ));
        }
        let before = tcgetattr(io::stdin()).map_err(|error| failed(error.into()))?;
        if BEFORE.set(before).is_ok() {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                usual(panic);
            }));
        }
        let screen = Self { styled: std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()) };
        screen.take()?;
        Ok(screen)
    }

    /// Takes it again, after [`Screen::lend`].
    ///
    /// # Errors
    /// It cannot be set.
    pub(super) fn take(&self) -> Outcome {
        let Some(before) = BEFORE.get() else { return Ok(()) };
        let mut settings = before.clone();
        // Keys arrive at once and are not shown. Those that send signals still do.
        settings.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        IS_TAKEN.store(true, Ordering::SeqCst);
        tcsetattr(io::stdin(), OptionalActions::Now, &settings)
            .map_err(|error| failed(error.into()))?;
        put(ENTER)
    }

    /// Gives it back for a while.
    pub(super) fn lend(&self) {
        leave();
    }

    /// Columns and rows.
    #[must_use]
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => (80, 24),
        }
    }

    /// Shows these lines, and nothing else.
    ///
    /// # Errors
    /// The terminal has gone.
    pub(super) fn show(&self, lines: &[Line]) -> Outcome {
        let mut frame = String::from("\x1b[H");
        for (at, (style, text)) in lines.iter().enumerate() {
            let (start, end) = match style {
                _ if !self.styled => ("", ""),
                Style::Plain => ("", ""),
                Style::Head => ("\x1b[1m", "\x1b[0m"),
                Style::Warning => ("\x1b[33m", "\x1b[0m"),
                Style::Dim => ("\x1b[2m", "\x1b[0m"),
            };
            frame += if at > 0 { "\r\n" } else { "" };
            frame += &format!("{start}{text}{end}\x1b[K");
        }
        put(&(frame + "\x1b[J"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn put(text: &str) -> Outcome {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(failed)
}

/// Gives the terminal back, if it is taken. Errors have nobody to hear of them.
fn leave() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        let _ = put(LEAVE);
        if let Some(before) = BEFORE.get() {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn failed(error: io::Error) -> Failure {
    let why = plain(&error);
    Failure::new(Status::Failed, format!("top: the terminal: {why}: use --once or --json"))
}

/// True if the locale's letters are Unicode.
#[must_use]
pub(super) fn is_unicode() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Tells, after the screen is gone, why it ended.
pub(super) fn tell(text: &str) {
    output::complain(text);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs only inside [`a_panic_gives_the_terminal_back`].
    #[test]
    #[ignore = "it panics, on the terminal that another test makes for it"]
    fn panics_on_a_screen() {
        let _screen = Screen::enter().unwrap();
        panic!("on purpose");
    }

    #[test]
    fn a_panic_gives_the_terminal_back() {
        let this = std::env::current_exe().unwrap();
        let name = "commands::top::screen::tests::panics_on_a_screen";
        let line = format!(
            "stty -a; {} --ignored --exact --nocapture {name}; stty -a",
            this.to_str().unwrap()
        );
        let output = Command::new("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let message = said.find("on purpose").unwrap_or_else(|| panic!("no panic: {said}"));
        let left = said.find(LEAVE).unwrap_or_else(|| panic!("it was not left: {said}"));
        assert!(said.contains(ENTER) && left < message, "{said}");
        let settings: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("icanon") || line.contains(" echo "))
            .collect();
        assert_eq!(settings[..settings.len() / 2], settings[settings.len() / 2..], "{said}");
        assert!(!settings.is_empty() && !said.contains("-icanon"), "{said}");
    }
}
