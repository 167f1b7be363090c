//! What opens encrypted disks: key files, descriptors, and passphrases that a person types.
//!
//! A command may open an image several times, but a descriptor can be read, and a person asked,
//! only once. So what was read or typed is remembered until [`forget_passphrases`], which
//! overwrites it.
//!
//! Locking: `REMEMBERED` is a leaf. Nobody is asked while it is held.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::names::Escaped;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::system_error;
use cairn_luks::Passphrase;

use crate::error::{Cause, Result};
use crate::image::{ImageSpec, Key};

/// Asks a person for the passphrase of an image. `None` if there is nobody to ask.
pub type Ask = fn(&ImageSpec) -> io::Result<Option<Passphrase>>;

static ASK: OnceLock<Ask> = OnceLock::new();
/// `None` for an image of which nobody typed the passphrase. A wrong one is there, too: nobody is
/// asked twice.
static REMEMBERED: Mutex<BTreeMap<OsString, Option<Passphrase>>> =
    Mutex::new(Rank::Leaf, BTreeMap::new());
/// How often a person was asked, whatever was typed.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// From now on a person is asked for passphrases of images that name no key. Only the first call
/// has an effect. A library asks nobody by itself.
pub fn ask_with(ask: Ask) {
    // A second one is not used.
    let _ = ASK.set(ask);
}

/// Remembers what opens an image.
pub fn remember_passphrase(image: &ImageSpec, passphrase: Passphrase) {
    REMEMBERED.lock().insert(image.to_os_string(), Some(passphrase));
}

/// Overwrites what was remembered.
pub fn forget_passphrases() {
    let gone = std::mem::take(&mut *REMEMBERED.lock());
    drop(gone);
}

/// How often a person was asked until now.
pub(crate) fn asked() -> u64 {
    ASKED.load(Ordering::Relaxed)
}

/// What was remembered of an image; `Some(None)` if nothing was typed.
pub(crate) fn remembered(image: &ImageSpec) -> Option<Option<Passphrase>> {
    REMEMBERED.lock().get(&image.to_os_string()).cloned()
}

/// What opens an image: read, remembered or typed.
pub(crate) fn of(image: &ImageSpec, version: u32) -> Result<Passphrase, Cause> {
    let path = match &image.key {
        // A FIFO gives what it has once, as a descriptor does.
        Some(Key::File(path)) if path.metadata().is_ok_and(|found| !found.is_file()) => {
            Some(path.clone())
        }
        Some(Key::File(path)) => return read(path.clone(), "the key file"),
        Some(Key::Descriptor(number)) => Some(format!("/dev/fd/{number}").into()),
        None => None,
    };
    if let Some(known) = remembered(image) {
        return known.ok_or(Cause::Encrypted { version });
    }
    match (path, ASK.get()) {
        (Some(path), _) => {
            let passphrase = read(path, "the key")?;
            remember_passphrase(image, passphrase.clone());
            Ok(passphrase)
        }
        (None, Some(ask)) => {
            let failed = |error| cairn_block::Error::from_io("read the passphrase", error);
            let typed = ask(image);
            if !matches!(typed, Ok(None)) {
                ASKED.fetch_add(1, Ordering::Relaxed);
                let answer = typed.as_ref().ok().cloned().flatten();
                REMEMBERED.lock().insert(image.to_os_string(), answer);
            }
            let typed = typed.map_err(|error| Cause::Open(failed(error)))?;
            typed.ok_or(Cause::Encrypted { version })
        }
        (None, None) => Err(Cause::Encrypted { version }),
    }
}

fn read(path: PathBuf, what: &str) -> Result<Passphrase, Cause> {
    let opened = File::open(&path).and_then(Passphrase::read);
    opened.map_err(|error| {
        let operation = format!("read {what} {}", path.escaped());
        let advice = match system_error::remedy(&error) {
            // It is in the text of the error.
            Some(_) => "",
            None => ": give one that can be read: 'IMAGE?key-file=FILE' or 'IMAGE?key-fd=N'",
        };
        let mut error = cairn_block::Error::from_io(operation, error);
        error.detail += advice;
        // What the caller would be told of an image does not fit a key.
        error.source = None;
        Cause::Open(error)
    })
}
