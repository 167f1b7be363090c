//! JSON output of commands.
//!
//! Names are bytes, and JSON strings are Unicode. A name that is not UTF-8 has two keys: its own,
//! with U+FFFD for invalid bytes, and one with `_hex` appended, with all bytes in hexadecimal
//! digits. Names in UTF-8 do not have the second key.

use std::fmt::Write as _;

use cairn_vfs::{Attributes, Timestamp};
use serde_json::{Map, Value, json};

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::print;

/// An object under construction; keys keep their order.
pub type Object = Map<String, Value>;

/// Adds a name.
pub fn insert_name(object: &mut Object, key: &str, name: &[u8]) {
    object.insert(key.into(), String::from_utf8_lossy(name).into());
    if std::str::from_utf8(name).is_err() {
        object.insert(format!("{key}_hex"), hex(name).into());
    }
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `{"seconds", "nanoseconds"}` since 1970.
#[must_use]
pub fn time(at: Timestamp) -> Value {
    json!({ "seconds": at.seconds, "nanoseconds": at.nanoseconds })
}

/// The attributes of a file that `stat`, `ls` and `find` print.
#[must_use]
pub fn attributes(path: &[u8], of: &Attributes) -> Object {
    let (major, minor) = cairn_vfs::decode_device(of.device);
    let mut object = Object::new();
    insert_name(&mut object, "path", path);
    let fields = json!({
        "inode": of.ino.get(),
        "generation": of.generation,
        "kind": print::kind(of.kind),
        "mode": format!("{:04o}", of.permissions),
        "links": of.links,
        "uid": of.uid,
        "gid": of.gid,
        "size": of.size,
        "sectors": of.sectors,
        "device": [major, minor],
        "atime": time(of.atime),
        "mtime": time(of.mtime),
        "ctime": time(of.ctime),
        "crtime": of.crtime.map(time),
        "flags": of.flags.bits(),
    });
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    object
}

/// Prints the object that replaces the value after a failure: `{"error", "status"}`.
///
/// # Errors
/// It cannot be printed.
pub fn failure(output: &mut Output<'_>, failure: &Failure) -> Outcome {
    failure_with(output, failure, Object::new())
}

/// As [`failure`], with what was found before it.
///
/// # Errors
/// As [`failure`].
pub fn failure_with(output: &mut Output<'_>, failure: &Failure, mut object: Object) -> Outcome {
    let status = failure.code().unwrap_or(failure.status as u8);
    object.insert("error".into(), failure.to_string().into());
    object.insert("status".into(), status.into());
    writeln!(output, "{:#}", Value::Object(object))
}

/// An array that is printed while its elements are found, one a line.
#[derive(Debug, Default)]
pub struct Array {
    begun: bool,
}

impl Array {
    /// Prints one more element.
    ///
    /// # Errors
    /// It cannot be printed.
    pub fn push(&mut self, output: &mut Output<'_>, element: impl Into<Value>) -> Outcome {
        let before = if self.begun { ",\n" } else { "[\n" };
        self.begun = true;
        write!(output, "{before}{}", element.into())
    }

    /// Ends it.
    ///
    /// # Errors
    /// It cannot be printed.
    pub fn end(self, output: &mut Output<'_>) -> Outcome {
        output.bytes(if self.begun { b"\n]\n" } else { b"[]\n" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_exactly() {
        let mut object = Object::new();
        insert_name(&mut object, "path", "á\n".as_bytes());
        insert_name(&mut object, "target", b"a\xff");
        assert_eq!(
            Value::Object(object),
            json!({"path": "á\n", "target": "a\u{fffd}", "target_hex": "61ff"})
        );
    }

    #[test]
    fn arrays_of_any_length_are_json() {
        for count in 0..3 {
            let mut bytes = Vec::new();
            let mut output = Output::to(&mut bytes);
            let mut array = Array::default();
            (0..count).for_each(|n| array.push(&mut output, n).unwrap());
            array.end(&mut output).unwrap();
            drop(output);
            assert_eq!(
                serde_json::from_slice::<Vec<i32>>(&bytes).unwrap(),
                Vec::from_iter(0..count)
            );
        }
    }
}
