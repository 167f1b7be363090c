//! Android's `fs_config`: `PATH UID GID MODE [capabilities=NUMBER] [selabel=CONTEXT]` for every
//! file. A path begins with the mount point of the volume, without a slash before it.

use std::collections::HashMap;

use super::capability::{self, Capabilities};
use super::entry::{Changes, Id};
use super::words::{self, Parsed, shown};

/// What a file states of every path.
#[derive(Debug, Default)]
pub(super) struct FsConfig(HashMap<Vec<u8>, Changes>);

/// True if a line says that its file has this form.
pub(super) fn is_line(line: &[u8]) -> bool {
    split(line).is_some_and(|(_, [uid, gid, mode], rest)| {
        words::decimal(uid).is_ok()
            && words::decimal(gid).is_ok()
            && words::permissions(mode).is_ok()
            && rest.iter().all(|word| word.contains(&b'='))
    })
}

/// The path, the three numbers and the other fields. The path of the root is empty.
type Fields<'a> = (&'a [u8], [&'a [u8]; 3], Vec<&'a [u8]>);

fn split(line: &[u8]) -> Option<Fields<'_>> {
    let mut fields = words::fields(line);
    let is_root = line.first().is_some_and(u8::is_ascii_whitespace);
    let path = if is_root { &[] } else { fields.next()? };
    Some((path, [fields.next()?, fields.next()?, fields.next()?], fields.collect()))
}

impl FsConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// The number of a line that cannot be read, and why.
    pub(super) fn parse(text: &[u8]) -> Result<Self, (usize, String)> {
        let mut all = HashMap::new();
        for (number, line) in words::lines(text) {
            let (path, changes) = entry(line).map_err(|why| (number, why))?;
            all.insert(path, changes);
        }
        Ok(Self(all))
    }

    /// What is stated of a path, which begins with the mount point and without a slash.
    pub(super) fn find(&self, path: &[u8]) -> Option<&Changes> {
        self.0.get(path)
    }
}

fn entry(line: &[u8]) -> Parsed<(Vec<u8>, Changes)> {
    let fields = split(line).ok_or("it must have four fields: PATH UID GID MODE")?;
    let (path, [uid, gid, mode], more) = fields;
    let mut set = Changes {
        permissions: Some(words::permissions(mode)?),
        uid: Some(Id::Number(words::id(uid)?)),
        gid: Some(Id::Number(words::id(gid)?)),
        ..Changes::default()
    };
    for word in more {
        if let Some(number) = word.strip_prefix(b"capabilities=") {
            let permitted = match number.starts_with(b"0x") || number.starts_with(b"0X") {
                true => words::hexadecimal(number)?,
                false => words::decimal(number)?,
            };
            if permitted != 0 {
                let of = Capabilities { permitted, inheritable: 0, effective: true };
                set.set_xattr(capability::NAME, of.value());
            }
        } else if let Some(label) = word.strip_prefix(b"selabel=") {
            set.set_xattr(super::file_contexts::NAME, super::file_contexts::value(label));
        } else {
            return Err(format!("{} is not known", shown(word)));
        }
    }
    let path = path.strip_prefix(b"/").unwrap_or(path);
    Ok((path.strip_suffix(b"/").unwrap_or(path).to_vec(), set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_capabilities() {
        let text = b" 0 0 755\nsystem/bin/ping 0 2000 0750 capabilities=0x2000\n\
            system/x 0 0 644 capabilities=0 selabel=u:object_r:x:s0\n";
        let config = FsConfig::parse(text).unwrap();
        assert_eq!(config.find(b"").unwrap().permissions, Some(0o755));
        let ping = config.find(b"system/bin/ping").unwrap();
        assert_eq!((ping.gid.clone(), ping.permissions), (Some(Id::Number(2000)), Some(0o750)));
        assert_eq!(ping.xattrs[0].value[..8], [1, 0, 0, 2, 0, 0x20, 0, 0]);
        let x = config.find(b"system/x").unwrap();
        assert_eq!(&*x.xattrs[0].value, b"u:object_r:x:s0\0");
        assert!(config.find(b"system").is_none());
        for wrong in ["a 0 0", "a 0 0 9", "a b 0 0", "a 0 0 0 caps=1", "a 0 0 0 capabilities=x"] {
            assert_eq!(FsConfig::parse(wrong.as_bytes()).unwrap_err().0, 1, "{wrong}");
        }
    }
}
