//! The state of fakeroot(1) (`fakeroot -s FILE`): what its programs were told of files of the host,
//! which are named by device and inode.

use std::collections::HashMap;

use super::words::{self, Parsed, shown};
use crate::assembly::Stated;

/// Files by device and inode.
pub(super) type Files = HashMap<(u64, u64), Stated>;

/// True if a line says that its file has this form.
pub(super) fn is_line(line: &[u8]) -> bool {
    line.starts_with(b"dev=") && line.split(|byte| *byte == b',').nth(1).is_some_and(is_inode)
}

fn is_inode(word: &[u8]) -> bool {
    word.starts_with(b"ino=")
}

/// The files of a state.
///
/// # Errors
/// The number of a line that cannot be read, and why.
pub(super) fn parse(text: &[u8]) -> Result<Files, (usize, String)> {
    let lines = words::lines(text);
    lines.map(|(number, line)| entry(line).map_err(|why| (number, why))).collect()
}

fn entry(line: &[u8]) -> Parsed<((u64, u64), Stated)> {
    let mut said: HashMap<&[u8], &[u8]> = HashMap::new();
    for word in line.trim_ascii().split(|byte| *byte == b',') {
        let equals = word.iter().position(|byte| *byte == b'=');
        let parts = equals.and_then(|at| Some((word.get(..at)?, word.get(at + 1..)?)));
        let (key, value) = parts.ok_or_else(|| format!("{} is not KEY=VALUE", shown(word)))?;
        said.insert(key, value);
    }
    let get = |key: &str| {
        let value = said.get(key.as_bytes()).copied();
        value.ok_or_else(|| format!("it has no {key}="))
    };
    let of = Stated {
        mode: words::octal(get("mode")?, 0o177_777)?,
        owner: (words::id(get("uid")?)?, words::id(get("gid")?)?),
        device: words::device_number(words::decimal(get("rdev")?)?)?,
    };
    Ok(((words::hexadecimal(get("dev")?)?, words::decimal(get("ino")?)?), of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_file() {
        let line = b"dev=fe01,ino=42,mode=20666,uid=0,gid=5,nlink=1,rdev=259\n";
        assert!(is_line(line));
        let files = parse(line).unwrap();
        let of = files[&(0xfe01, 42)];
        assert_eq!((of.mode, of.owner, of.device), (0o20666, (0, 5), 0x103));
        for wrong in ["dev=1", "dev=1,ino=x,mode=1,uid=1,gid=1,rdev=1", "dev", "dev=1,ino=2,mode=9"]
        {
            assert_eq!(parse(wrong.as_bytes()).unwrap_err().0, 1, "{wrong}");
        }
    }
}
