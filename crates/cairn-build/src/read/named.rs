//! Access lists of archives that name users and groups: the numbers come from the `etc/passwd` and
//! `etc/group` of the image itself, not from the host.

use std::collections::HashMap;

use super::tar::acl_text::{BadList, parse};
use crate::assembly::Assembly;
use crate::error::{Error, Result};
use crate::path::MemberPath;

/// Most bytes of a file with names.
const FILE_MAX: u64 = 16 << 20;

/// Sets the lists that wait for names.
///
/// # Errors
/// A name is not in the image, or a list is malformed.
pub(super) fn resolve(assembly: &mut Assembly) -> Result<()> {
    let lists = std::mem::take(&mut assembly.named_lists);
    if lists.is_empty() {
        return Ok(());
    }
    let users = numbers(assembly, b"etc/passwd")?;
    let groups = numbers(assembly, b"etc/group")?;
    let find = |file: &str, name: &str| match file {
        "passwd" => users.get(name).copied(),
        _ => groups.get(name).copied(),
    };
    for list in lists {
        let failed = |why: String| Error::member(&list.source, &list.member, why);
        let parsed = parse(&list.text, &find).map_err(|bad| match bad {
            BadList::Text(why) => failed(why),
            BadList::NoId(name) => failed(format!(
                "an access list for '{}', who is not in etc/passwd or etc/group of the image",
                name.escape_default()
            )),
        })?;
        assembly.set_xattr(list.node, list.name, parsed.to_xattr()).map_err(failed)?;
    }
    Ok(())
}

/// The numbers in a file of lines `name:password:number:…`; none if there is no such file.
fn numbers(assembly: &Assembly, path: &[u8]) -> Result<HashMap<String, u32>> {
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
    let text = String::from_utf8_lossy(&bytes);
    let number = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((name, fields.nth(1)?.parse().ok()?))
    };
    Ok(text.lines().filter_map(number).collect())
}
