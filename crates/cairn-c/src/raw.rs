//! What C passes in: strings and memory. All unsafe code of the crate is here, beside the names
//! that the linker sees.
//!
//! Only C makes values of these types, as arguments of a call. The header says what it must pass:
//! NULL, or memory that stays as it is during the call. So what a value is turned into lives no
//! longer than the value itself, which is a parameter of the entry.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_void, CStr};

use crate::failure::Failure;

/// A string that ends with a NUL.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// Its bytes. Errors name the argument.
    pub(crate) fn get(&self, what: &str) -> Result<&[u8], Failure> {
        self.find().ok_or_else(|| Failure::invalid(format!("{what} is NULL: give a string")))
    }

    /// Its bytes, unless it is NULL.
    pub(crate) fn find(&self) -> Option<&[u8]> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: it is not NULL, and the caller passes a string that ends with a NUL and does not
        // change during the call, to which the borrow of `self` is limited.
        Some(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }
}

/// Memory that is read.
#[repr(transparent)]
pub struct Bytes(*const c_void);

impl Bytes {
    /// The first `len` bytes.
    pub(crate) fn get(&self, what: &str, len: usize) -> Result<&[u8], Failure> {
        if len == 0 {
            return Ok(&[]);
        }
        check(what, self.0, len)?;
        // SAFETY: it is not NULL, `len` is at most `isize::MAX`, and the caller passes that many
        // initialised bytes, which do not change during the call.
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast(), len) })
    }
}

/// Memory that is written.
#[repr(transparent)]
pub struct Buffer(*mut c_void);

impl Buffer {
    /// The first `len` bytes. What nobody writes there stays as C has it.
    pub(crate) fn get(&mut self, what: &str, len: usize) -> Result<&mut [u8], Failure> {
        if len == 0 {
            return Ok(&mut []);
        }
        check(what, self.0, len)?;
        // SAFETY: it is not NULL, `len` is at most `isize::MAX`, and the caller passes that many
        // bytes, which nobody else uses during the call. They come from outside of Rust: bytes that
        // C has not initialised are bytes of any value here, and every value is one of `u8`.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.cast(), len) })
    }
}

fn check(what: &str, start: *const c_void, len: usize) -> Result<(), Failure> {
    if start.is_null() {
        return Err(Failure::invalid(format!("{what} is NULL: give memory, or a length of 0")));
    }
    match isize::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::invalid("the length is beyond what memory can have")),
    }
}
