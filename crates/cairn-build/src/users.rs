//! Users and groups by name: the numbers are those of the `etc/passwd` and `etc/group` of the image
//! itself, not of the host.

use std::collections::HashMap;

use crate::assembly::Assembly;
use crate::error::Result;
use crate::path::MemberPath;

/// Most bytes of a file with names.
const FILE_MAX: u64 = 16 << 20;

/// The names of an image.
#[derive(Debug, Default)]
pub(crate) struct Users {
    users: HashMap<Vec<u8>, u32>,
    groups: HashMap<Vec<u8>, u32>,
}

impl Users {
    /// Reads the files of the image. A file that is not there has no names.
    ///
    /// # Errors
    /// The source of a file cannot be read.
    pub(crate) fn read(assembly: &Assembly) -> Result<Self> {
        let users = numbers(assembly, b"etc/passwd")?;
        Ok(Self { users, groups: numbers(assembly, b"etc/group")? })
    }

    /// The number of a user. `root` is 0 also where no file says so.
    pub(crate) fn user(&self, name: &[u8]) -> Option<u32> {
        self.users.get(name).copied().or((name == b"root").then_some(0))
    }

    /// The number of a group, as [`Users::user`].
    pub(crate) fn group(&self, name: &[u8]) -> Option<u32> {
        self.groups.get(name).copied().or((name == b"root").then_some(0))
    }
}

/// The numbers in a file of lines `name:password:number:…`.
fn numbers(assembly: &Assembly, path: &[u8]) -> Result<HashMap<Vec<u8>, u32>> {
    let file = MemberPath::parse(path).ok().and_then(|path| assembly.regular(&path));
    let Some(file) = file.filter(|file| file.size <= FILE_MAX) else {
        return Ok(HashMap::new());
    };
    let mut bytes = vec![0; usize::try_from(file.size).unwrap_or(0)];
    for range in &file.data {
        let places = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        if let Some(part) = places.and_then(|(from, to)| bytes.get_mut(from..to)) {
            assembly.stores.read(file, range.start, part)?;
        }
    }
    let number = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next()?.to_vec();
        Some((name, std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?))
    };
    Ok(bytes.split(|byte| *byte == b'\n').filter_map(number).collect())
}
