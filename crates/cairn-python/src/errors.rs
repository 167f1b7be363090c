//! Errors become `OSError`s: Python chooses the subclass by the errno (`FileNotFoundError`, …).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// The error with this number about a file of the volume, or about the image.
pub(crate) fn named(errno: i32, what: &str, path: &[u8]) -> PyErr {
    let name = OsStr::from_bytes(path).to_owned();
    PyOSError::new_err((errno, what.to_owned(), name))
}

/// As [`named`], of an error of the library.
pub(crate) fn at(path: &[u8]) -> impl Fn(io::Error) -> PyErr + '_ {
    |error| named(cairn::errno(&error), &error.to_string(), path)
}

/// The error of a call with two paths.
pub(crate) fn between<'a>(from: &'a [u8], to: &'a [u8]) -> impl Fn(io::Error) -> PyErr + 'a {
    move |error| {
        let [from, to] = [from, to].map(|path| OsStr::from_bytes(path).to_owned());
        let nothing: Option<i32> = None;
        PyOSError::new_err((cairn::errno(&error), error.to_string(), from, nothing, to))
    }
}

/// The error about an image.
pub(crate) fn of_image(error: cairn::Error) -> PyErr {
    let text = error.to_string();
    // Python names the file itself.
    let name = error.image().to_owned();
    let text = text.strip_prefix(&format!("{name}: ")).unwrap_or(&text).to_owned();
    PyOSError::new_err((error.errno(), text, name))
}

/// The error of something that was closed.
pub(crate) fn closed(what: &str) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(format!("the {what} is closed"))
}
