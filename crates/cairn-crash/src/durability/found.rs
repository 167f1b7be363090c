//! Compares the contents after a power cut with the promises.

use std::collections::BTreeMap;

use cairn_vfs::{FileKind, FileSystem, IoFlags};

use super::world::{File, Promise, Promised, Thing, XATTR};

/// More than a history writes into a file.
const LARGEST: u64 = 1 << 20;

fn look(fs: &dyn FileSystem) -> Result<BTreeMap<String, Thing>, String> {
    let text = |error: cairn_vfs::Error| format!("reading after recovery: {error}");
    let directory = fs.lookup(fs.root(), b"d").map_err(text)?.ino;
    let mut names = Vec::new();
    fs.readdir(directory, 0, &mut |entry| {
        names.push(entry.name);
        true
    })
    .map_err(text)?;
    names.retain(|name| name != b"." && name != b"..");
    let mut found = BTreeMap::new();
    for name in names {
        let attributes = fs.lookup(directory, &name).map_err(text)?;
        let thing = if attributes.kind == FileKind::Directory {
            Thing::Directory
        } else if attributes.kind == FileKind::CharDevice && attributes.device == 0 {
            Thing::Whiteout
        } else {
            if attributes.size > LARGEST {
                return Err(format!(
                    "a file has {} bytes, more than were written",
                    attributes.size
                ));
            }
            let mut bytes = vec![0; usize::try_from(attributes.size).expect("small")];
            let read = fs.read(attributes.ino, 0, &mut bytes, IoFlags::empty()).map_err(text)?;
            if read != bytes.len() {
                return Err(format!("{read} of {} bytes can be read", bytes.len()));
            }
            let xattr = match fs.getxattr(attributes.ino, XATTR) {
                Ok(value) => Some(value),
                Err(cairn_vfs::Error::NoAttribute) => None,
                Err(error) => return Err(text(error)),
            };
            Thing::File(File { bytes, xattr, owner: attributes.uid })
        };
        fs.forget(attributes.ino, 1);
        found.insert(String::from_utf8_lossy(&name).into_owned(), thing);
    }
    fs.forget(directory, 1);
    Ok(found)
}

fn describe(thing: Option<&Thing>) -> String {
    match thing {
        None => "nothing".into(),
        Some(Thing::Directory) => "a directory".into(),
        Some(Thing::Whiteout) => "a whiteout".into(),
        Some(Thing::File(File { bytes, xattr, owner })) => {
            let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
            format!(
                "a file of {} bytes (sum {sum}), attribute {xattr:?}, owner {owner}",
                bytes.len()
            )
        }
    }
}

/// Fails with the first promise that is not kept.
pub(super) fn check(promised: &Promised, fs: &dyn FileSystem) -> Result<(), String> {
    let found = look(fs)?;
    for (name, promise) in &promised.names {
        let there = found.get(name);
        let kept = match promise {
            Promise::Is(thing) => there == Some(thing),
            Promise::IsFile => matches!(there, Some(Thing::File(_))),
            Promise::Gone => there.is_none(),
        };
        if !kept {
            let promised = match promise {
                Promise::Is(thing) => describe(Some(thing)),
                Promise::IsFile => "a file".into(),
                Promise::Gone => "nothing".into(),
            };
            return Err(format!("{name} is {}, promised was {promised}", describe(there)));
        }
    }
    match found.keys().find(|name| promised.complete && !promised.names.contains_key(*name)) {
        Some(name) => Err(format!("{name} is there")),
        None => Ok(()),
    }
}
