use super::*;

fn entry(tag: Tag, permissions: u8) -> Entry {
    Entry { tag, permissions }
}

fn named() -> Acl {
    Acl::new(vec![
        entry(Tag::Other, 0),
        entry(Tag::Mask, 7),
        entry(Tag::User(1000), 6),
        entry(Tag::GroupObj, 5),
        entry(Tag::UserObj, 7),
    ])
    .unwrap()
}

#[test]
fn both_encodings_round_trip() {
    let acl = named();
    assert_eq!(Acl::from_xattr(&acl.to_xattr()), Ok(Some(acl.clone())));
    assert_eq!(Acl::from_compact(&acl.to_compact()), Ok(Some(acl.clone())));
    assert_eq!(acl.to_xattr().len(), 4 + 5 * 8);
    assert_eq!(acl.to_compact().len(), 4 + 4 * 4 + 8);
}

#[test]
fn stored_lists_are_shown_as_they_stand_or_refused_by_their_size() {
    let stored = named().to_compact();
    assert_eq!(shown_from_compact(&stored), Ok(Some(named().to_xattr())));
    assert_eq!(shown_from_compact(b""), Ok(None));
    assert_eq!(shown_from_compact(b"\x01\0\0\0"), Ok(None));
    for len in [1, 2, 3, 5, 6, 7, 12, 16, 24, 26] {
        assert_eq!(shown_from_compact(&stored[..len]), Err(AclError::Length(len)), "{len}");
    }
    // Incomplete and unsorted: it cannot be set, but it is shown.
    assert_eq!(shown_from_compact(&stored[..8]), Ok(Some(named().to_xattr()[..12].to_vec())));
    assert_eq!(shown_from_compact(b"\x02\0\0\0\x01\0\x07\0"), Err(AclError::Version(2)));
    assert_eq!(shown_from_compact(b"\x01\0\0\0\x03\0\x07\0"), Err(AclError::Tag(3)));
}

/// Linux reads such a list as if the other bits were not there, and refuses to set it.
#[test]
fn stored_permissions_beyond_rwx_count_for_nothing() {
    let mut stored = named().to_compact();
    (stored[6], stored[7]) = (stored[6] | 0xc0, 0x80);
    assert_eq!(Acl::from_compact(&stored), Ok(Some(named())));
    assert_eq!(shown_from_compact(&stored), Ok(Some(named().to_xattr())));
}

#[test]
fn broken_values_are_refused() {
    assert_eq!(Acl::from_xattr(b"\x02\0\0"), Err(AclError::Length(3)));
    assert_eq!(Acl::from_xattr(b"\x01\0\0\0"), Err(AclError::Version(1)));
    assert_eq!(Acl::from_xattr(b"\x02\0\0\0"), Ok(None));
    assert_eq!(Acl::from_xattr(b"\x02\0\0\0\x01\0\x07\0\xff\xff\xff\xff"), Err(AclError::Shape));
    assert_eq!(Acl::from_compact(b"\x01\0\0\0\x02\0\x07\0"), Err(AclError::Length(8)));
    assert_eq!(Acl::from_compact(b"\x01\0\0\0\x03\0\x07\0"), Err(AclError::Tag(3)));
    let bits = b"\x02\0\0\0\x01\0\x08\0\xff\xff\xff\xff";
    assert_eq!(Acl::from_xattr(bits), Err(AclError::Permissions(8)));
    let unmasked = vec![
        entry(Tag::UserObj, 7),
        entry(Tag::User(1), 7),
        entry(Tag::GroupObj, 7),
        entry(Tag::Other, 7),
    ];
    assert_eq!(Acl::new(unmasked), Err(AclError::Shape));
    let twice = vec![
        entry(Tag::UserObj, 7),
        entry(Tag::GroupObj, 7),
        entry(Tag::Mask, 7),
        entry(Tag::Mask, 7),
        entry(Tag::Other, 7),
    ];
    assert_eq!(Acl::new(twice), Err(AclError::Shape));
}

/// Linux stores such lists, so volumes have them.
#[test]
fn a_user_may_have_several_entries_and_the_order_is_kept() {
    let entries = vec![
        entry(Tag::UserObj, 7),
        entry(Tag::User(1002), 5),
        entry(Tag::User(1002), 7),
        entry(Tag::GroupObj, 5),
        entry(Tag::Mask, 7),
        entry(Tag::Other, 0),
    ];
    let list = Acl::new(entries.clone()).unwrap();
    assert_eq!(list.entries(), entries);
    assert_eq!(Acl::from_compact(&list.to_compact()), Ok(Some(list.clone())));
    assert_eq!(Acl::from_xattr(&list.to_xattr()), Ok(Some(list)));
}

#[test]
fn the_mask_stands_for_the_group_bits() {
    let acl = named();
    assert_eq!(acl.equivalent_mode(), (0o770, false));
    assert_eq!(acl.with_mode(0o741).equivalent_mode(), (0o741, false));
    assert!(acl.with_mode(0o741).entries().contains(&entry(Tag::GroupObj, 5)));
    assert_eq!(Acl::from_mode(0o751).equivalent_mode(), (0o751, true));
    assert_eq!(Acl::from_mode(0o751).with_mode(0o640), Acl::from_mode(0o640));
}

#[test]
fn inheritance_narrows_and_ignores_the_umask() {
    let (mode, access, default) = Acl::for_new_inode(Some(&named()), 0o100_664, 0o077);
    assert_eq!(mode, 0o100_660);
    assert_eq!(access.unwrap().equivalent_mode(), (0o660, false));
    assert_eq!(default, None);
    let (_, _, default) = Acl::inherit(&named(), 0o040_777);
    assert_eq!(default, Some(named()));
    assert_eq!(Acl::inherit(&Acl::from_mode(0o750), 0o100_666), (0o100_640, None, None));
    assert_eq!(Acl::for_new_inode(None, 0o102_777, 0o022), (0o102_755, None, None));
}
