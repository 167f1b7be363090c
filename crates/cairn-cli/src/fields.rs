//! Structures of a volume ([`Fields`]) as text and as JSON.

use std::fmt::Write as _;

use cairn_check::{Detail, Fields};
use cairn_vfs::Timestamp;
use serde_json::Value;

use crate::{json, print};

/// Bytes of a line of a hex dump.
const LINE: usize = 16;

/// The fields as a JSON object. Times are seconds since 1970, bytes are hexadecimal digits.
#[must_use]
pub fn object(fields: &Fields) -> json::Object {
    let mut object = json::Object::new();
    for (key, detail) in fields.iter() {
        match detail {
            Detail::Name(name) => json::insert_name(&mut object, key, name),
            detail => {
                object.insert(key.into(), value(detail));
            }
        }
    }
    object
}

fn value(detail: &Detail) -> Value {
    match detail {
        Detail::Flag(flag) => (*flag).into(),
        Detail::Number(number) | Detail::Hex(number) => (*number).into(),
        Detail::Time(seconds) => (*seconds).into(),
        Detail::Text(text) => text.as_str().into(),
        Detail::Name(name) => String::from_utf8_lossy(name).into(),
        Detail::Bytes(bytes) => json::hex(bytes).into(),
        Detail::List(list) => list.iter().map(value).collect::<Vec<_>>().into(),
        Detail::Fields(fields) => Value::Object(object(fields)),
    }
}

/// The fields as lines, each `key: value`.
#[must_use]
pub fn text(fields: &Fields) -> String {
    let mut text = String::new();
    for (key, detail) in fields.iter() {
        let label = format!("{key}:");
        match detail {
            Detail::Bytes(bytes) => {
                let _ = writeln!(text, "{label}");
                hex_dump(&mut text, bytes);
            }
            Detail::List(list) if list.iter().any(is_structure) => {
                let _ = writeln!(text, "{label}");
                list.iter().for_each(|one| item(&mut text, one, 2));
            }
            detail => {
                let _ = writeln!(text, "{label:<26} {}", inline(detail));
            }
        }
    }
    text
}

fn is_structure(detail: &Detail) -> bool {
    matches!(detail, Detail::Fields(_))
}

/// Lists of structures have lines of their own.
fn is_block(detail: &Detail) -> bool {
    match detail {
        Detail::List(list) => list.iter().any(is_structure),
        Detail::Bytes(bytes) => bytes.len() > LINE,
        _ => false,
    }
}

/// A structure of a list: a line, and further ones for the lists in it.
fn item(text: &mut String, detail: &Detail, indent: usize) {
    let Detail::Fields(fields) = detail else {
        let _ = writeln!(text, "{:indent$}{}", "", inline(detail));
        return;
    };
    let short: Vec<String> = fields
        .iter()
        .filter(|(_, detail)| !is_block(detail))
        .map(|(key, detail)| format!("{key} {}", inline(detail)))
        .collect();
    let _ = writeln!(text, "{:indent$}{}", "", short.join(", "));
    for (key, detail) in fields.iter().filter(|(_, detail)| is_block(detail)) {
        let deeper = indent + 2;
        let _ = writeln!(text, "{:deeper$}{key}:", "");
        match detail {
            Detail::List(list) => list.iter().for_each(|one| item(text, one, deeper + 2)),
            Detail::Bytes(bytes) => hex_dump(text, bytes),
            _ => {}
        }
    }
}

fn inline(detail: &Detail) -> String {
    match detail {
        Detail::Flag(flag) => if *flag { "yes" } else { "no" }.into(),
        Detail::Number(number) => number.to_string(),
        Detail::Hex(number) => format!("{number:#x}"),
        Detail::Time(0) => "never".into(),
        Detail::Time(seconds) => {
            format!("{} UTC", print::time(Timestamp { seconds: *seconds, nanoseconds: 0 }))
        }
        Detail::Text(text) if text.is_empty() => "-".into(),
        Detail::Text(text) => print::escaped(text.as_bytes()),
        Detail::Name(name) if name.is_empty() => "-".into(),
        Detail::Name(name) => print::escaped(name),
        Detail::Bytes(bytes) if bytes.is_empty() => "-".into(),
        Detail::Bytes(bytes) => json::hex(bytes),
        Detail::List(list) if list.is_empty() => "-".into(),
        Detail::List(list) => list.iter().map(inline).collect::<Vec<_>>().join(" "),
        Detail::Fields(fields) => {
            let parts = fields.iter().map(|(key, detail)| format!("{key} {}", inline(detail)));
            format!("({})", parts.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Bytes in lines of 16: offset, digits, characters. Equal lines are shown once.
fn hex_dump(text: &mut String, bytes: &[u8]) {
    let mut before: Option<&[u8]> = None;
    let mut skips = false;
    for (number, line) in bytes.chunks(LINE).enumerate() {
        if before == Some(line) {
            if !skips {
                text.push_str("  *\n");
            }
            skips = true;
            continue;
        }
        (before, skips) = (Some(line), false);
        let mut digits = String::new();
        for (index, byte) in line.iter().enumerate() {
            let gap = if index == LINE / 2 { " " } else { "" };
            let _ = write!(digits, "{gap}{byte:02x} ");
        }
        let shown = |byte: &u8| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        };
        let letters: String = line.iter().map(shown).collect();
        let _ = writeln!(text, "  {:08x}  {digits:<49} {letters}", number * LINE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_become_lines_and_objects() {
        let mut fields = Fields::new()
            .with("block", 7_u32)
            .with("hash", Detail::Hex(255))
            .with("name", Detail::Name(b"a\xff".to_vec()))
            .with("extents", vec![Fields::new().with("start", 1_u32).with("len", 2_u32)]);
        fields.checksum(1, 1);
        fields.put("bytes", Detail::Bytes([vec![0; 48], b"end".to_vec()].concat()));
        let shown = text(&fields);
        for line in [
            "block:                     7\n",
            "hash:                      0xff\n",
            "name:                      a\\377\n",
            "extents:\n  start 1, len 2\n",
            "checksum:                  (stored 0x1, computed 0x1, right yes)\n",
            "  *\n  00000030  65 6e 64 ",
        ] {
            assert!(shown.contains(line), "{line:?} in {shown}");
        }
        let object = Value::Object(object(&fields));
        assert_eq!(object["name_hex"], "61ff");
        assert_eq!(object["extents"][0]["len"], 2);
        assert_eq!(object["checksum"]["right"], true);
        assert_eq!(object["hash"], 255);
    }
}
