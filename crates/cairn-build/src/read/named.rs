//! Access lists of archives that name users and groups: the numbers come from the `etc/passwd` and
//! `etc/group` of the image itself, not from the host.

use cairn_base::names::Escaped;

use super::tar::acl_text::{BadList, parse};
use crate::assembly::Assembly;
use crate::error::{Error, Result};
use crate::users::Users;

/// Sets the lists that wait for names.
///
/// # Errors
/// A name is not in the image, or a list is malformed.
pub(super) fn resolve(assembly: &mut Assembly) -> Result<()> {
    let lists = std::mem::take(&mut assembly.named_lists);
    if lists.is_empty() {
        return Ok(());
    }
    let users = Users::read(assembly)?;
    let find = |file: &str, name: &str| match file {
        "passwd" => users.user(name.as_bytes()),
        _ => users.group(name.as_bytes()),
    };
    for list in lists {
        let failed = |why: String| Error::member(&list.source, &list.member, why);
        let parsed = parse(&list.text, &find).map_err(|bad| match bad {
            BadList::Text(why) => failed(why),
            BadList::NoId(name) => failed(format!(
                "an access list for '{}', who is not in etc/passwd or etc/group of the image",
                name.escaped()
            )),
        })?;
        assembly.set_xattr(list.node, list.name, parsed.to_xattr()).map_err(failed)?;
    }
    Ok(())
}
