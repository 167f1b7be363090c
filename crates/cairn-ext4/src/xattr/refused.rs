//! [`refused`]: the one judgement of readers, the check and the repair on an attribute.

use super::{acl, names};
use crate::format::xattr::{Attribute, Value};

/// A place that no value has.
pub(super) const MISPLACED: &str = "a value at no multiple of 4 bytes";

/// What readers refuse of an attribute: its name, or the place or form of its value.
#[must_use]
pub(crate) fn refused(attribute: &Attribute<'_>) -> Option<&'static str> {
    let (index, name) = (attribute.index, attribute.name);
    let is_acl = matches!(index, names::ACL_ACCESS | names::ACL_DEFAULT);
    let of_list = || match &attribute.value {
        Value::Here(value) if is_acl => acl::refused(value),
        _ => None,
    };
    let of_place = (!attribute.is_aligned()).then_some(MISPLACED);
    names::refused(index, name).or(of_place).or_else(of_list)
}
