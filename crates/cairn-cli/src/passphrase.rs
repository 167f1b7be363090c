//! Asks for the passphrase of an encrypted disk: on a terminal alone, which does not show what is
//! typed. The terminal is as it was afterwards, whatever ends the question.
//!
//! Locking: `SAVED` is a leaf.

use std::fs::File;
use std::io::{self, Write};

use cairn::{ImageSpec, Passphrase};
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::thread::spawn;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use signal_hook::consts::SIGINT;
use signal_hook::low_level::{emulate_default_handler, raise};

use crate::{confirm, signals};

/// The longest passphrase that can be typed, as of cryptsetup.
const MOST: usize = 512;
const INTERRUPT: u8 = 3;
const END: u8 = 4;
const KILL: u8 = 21;

/// How the terminal was, while it is silent.
static SAVED: Mutex<Option<Termios>> = Mutex::new(Rank::Leaf, None);

/// Asks. `None` if standard input and standard error are not a terminal.
///
/// # Errors
/// The terminal cannot be made silent, or nothing was typed.
pub fn ask(image: &ImageSpec) -> io::Result<Option<Passphrase>> {
    if !confirm::can_ask() {
        return Ok(None);
    }
    restore_on_signals()?;
    let mut terminal = io::stderr();
    // Before the question: what is typed at once is not shown either.
    let silent = Silent::begin()?;
    terminal.write_all(format!("Passphrase of {image}: ").as_bytes())?;
    let typed = line();
    drop(silent);
    terminal.write_all(b"\n")?;
    match typed {
        Ok(typed) => Ok(Some(typed)),
        Err(error) => {
            match error.kind() {
                io::ErrorKind::Interrupted if signals::are_handled() => raise(SIGINT)?,
                io::ErrorKind::Interrupted => emulate_default_handler(SIGINT)?,
                _ => {}
            }
            Err(error)
        }
    }
}

/// As [`ask`], of a process whose starter has asked: standard input has the passphrase.
///
/// # Errors
/// Standard input cannot be read.
pub fn from_starter() -> io::Result<Option<Passphrase>> {
    // Without the buffer of `io::stdin`, which would keep it.
    let input = File::from(rustix::stdio::stdin().try_clone_to_owned()?);
    let passphrase = Passphrase::read(input)?;
    Ok((!passphrase.is_empty()).then_some(passphrase))
}

/// A line from standard input, byte by byte: what follows stays there. It grows nowhere else, so
/// nothing of it stays in memory.
fn line() -> io::Result<Passphrase> {
    let mut typed = Vec::with_capacity(MOST);
    let ended = read_line(&mut typed);
    // It is overwritten, whole or not.
    let typed = Passphrase::new(typed);
    ended.map(|()| typed)
}

fn read_line(typed: &mut Vec<u8>) -> io::Result<()> {
    let wrong = |kind, why: &str| Err(io::Error::new(kind, why));
    let mut byte = [0; 1];
    loop {
        let read = || rustix::io::read(rustix::stdio::stdin(), &mut byte);
        let count = rustix::io::retry_on_intr(read)?;
        match byte[0] {
            _ if count == 0 => {
                return wrong(io::ErrorKind::UnexpectedEof, "the terminal has ended");
            }
            b'\n' | b'\r' => return Ok(()),
            INTERRUPT => return wrong(io::ErrorKind::Interrupted, "it was interrupted"),
            END if typed.is_empty() => {
                return wrong(io::ErrorKind::UnexpectedEof, "none was typed: type it, and Enter");
            }
            END => return Ok(()),
            KILL => typed.clear(),
            8 | 127 => drop(typed.pop()),
            _ if typed.len() == MOST => {
                let why = "it has more than 512 bytes: give it in a file, 'IMAGE?key-file=FILE'";
                return wrong(io::ErrorKind::InvalidInput, why);
            }
            other => typed.push(other),
        }
    }
}

/// A terminal that shows nothing, and gives each byte as it is typed.
struct Silent;

impl Silent {
    fn begin() -> io::Result<Self> {
        let saved = tcgetattr(rustix::stdio::stdin())?;
        let mut quiet = saved.clone();
        let shown = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN;
        quiet.local_modes -= shown;
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        *SAVED.lock() = Some(saved);
        let silent = Self;
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &quiet)?;
        Ok(silent)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        restore();
    }
}

/// True if the terminal was silent.
fn restore() -> bool {
    let Some(saved) = SAVED.lock().take() else { return false };
    // Without its terminal there is nothing to restore.
    let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &saved);
    true
}

/// From now on signals restore the terminal. A signal that no other part of the command handles
/// ends the process, as without a handler.
fn restore_on_signals() -> io::Result<()> {
    let mut caught = signals::catch()?;
    spawn("passphrase", move || {
        for signal in caught.forever() {
            let _ = restore();
            if !signals::are_handled() {
                // It ends the process.
                let _ = emulate_default_handler(signal);
            }
        }
    })
    .map(drop)
}
