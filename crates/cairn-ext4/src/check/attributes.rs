//! Extended attributes: in the inode, in a block that inodes share, and in inodes of their own.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::Ordering::Relaxed;

use cairn_base::units::stored;
use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Place, Value as Shown};

use super::claims::Claims;
use super::facts::Bytes;
use super::state::State;
use super::value::{self, Says};
use super::{kinds, one_bit, placed};
use crate::form::{context, stored_flags};
use crate::format::features::{Compat, Incompat};
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::xattr::{self, Attribute, Value, XattrLocation};
use crate::xattr::{names, refused};

/// Prefix index and name of the attribute with inline contents.
const INLINE: (u8, &[u8]) = (7, b"data");

/// What the attributes of an inode say of its other parts.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// Blocks of values in inodes of their own.
    pub(super) charged: u64,
    /// Number of these values.
    pub(super) values: u64,
    /// The value of `system.data`.
    pub(super) inline_tail: Option<Vec<u8>>,
    /// A hash of what the context of an encrypted inode says of its keys and modes, if it has a
    /// known form.
    pub(super) policy: Option<u64>,
}

/// A hash of a context without what each inode has for itself.
fn policy(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let len = bytes.len().saturating_sub(context::NONCE);
    hasher.write(bytes.get(..len).unwrap_or_default());
    hasher.finish()
}

/// The blocks of values of an inode's attributes that are in inodes of their own.
pub(super) fn charged(state: &State, ino: Ino, record: &Record) -> u64 {
    let mut found = Attributes::default();
    if !state.layout.features.incompat(Incompat::EA_INODE) {
        return 0;
    }
    let mut add = |bytes: &[u8], location, pba| {
        let of = Container { state, ino, location, pba, is_sealed: true };
        if let Ok(all) = xattr::decode(bytes, location, ino) {
            of.check(&all, &mut found, false);
        }
    };
    add(&record.extra, XattrLocation::Inode, Pba(0));
    if record.file_acl != Pba(0)
        && let Ok(block) = state.source.block(record.file_acl)
    {
        add(&block, XattrLocation::Block, record.file_acl);
    }
    found.charged
}

/// Checks all attributes of an inode, and claims its attribute block.
pub(super) fn check(
    state: &State,
    ino: Ino,
    record: &Record,
    claims: &mut Claims<'_>,
) -> Attributes {
    let mut found = Attributes::default();
    if !record.flags.contains(InodeFlags::EA_INODE) {
        match xattr::decode(&record.extra, XattrLocation::Inode, ino) {
            Ok(attributes) => {
                let (location, pba) = (XattrLocation::Inode, Pba(0));
                let of = Container { state, ino, location, pba, is_sealed: true };
                of.check(&attributes, &mut found, true);
            }
            Err(why) => {
                let place = Place::inode(ino.get());
                state.report(&kinds::XATTR_INVALID, &kinds::XATTR_CHECKSUM, place, &why);
            }
        }
    }
    if record.file_acl != Pba(0) && !state.layout.features.compat(Compat::EXT_ATTR) {
        let place = Place::inode(ino.get()).in_field("i_file_acl");
        let finding = Finding::new(&kinds::XATTR_INVALID, place).stored(record.file_acl.get());
        state.findings.add(finding);
    }
    if record.file_acl != Pba(0) {
        block(state, ino, record.file_acl, claims, &mut found);
    }
    found
}

fn block(state: &State, ino: Ino, pba: Pba, claims: &mut Claims<'_>, found: &mut Attributes) {
    let place = || Place::inode(ino.get()).at_block(pba.get()).in_field("i_file_acl");
    if !state.layout.contains(pba, 1) {
        claims.is_whole = false;
        state.doubted_lists.note(ino);
        let finding = Finding::new(&kinds::MAP_RANGE, place()).stored(pba.get());
        return state.findings.add(finding);
    }
    if claims.is_system(0, pba, 1) {
        state.doubted_lists.note(ino);
        return;
    }
    let is_first = {
        let mut shared = state.shared.lock();
        let entry = shared.entry(pba.get()).or_default();
        entry.found = entry.found.saturating_add(1);
        if entry.found == 1 {
            entry.ino = stored(ino.get());
        }
        entry.found == 1
    };
    if is_first {
        claims.claim_block(pba);
    } else {
        claims.clusters = claims.clusters.saturating_add(1);
        if !state.layout.features.incompat(Incompat::EA_INODE) {
            return;
        }
    }
    let bytes = match state.source.block(pba) {
        Ok(bytes) => bytes,
        Err(error) => return state.unreadable(place(), &error),
    };
    let mut sealed = xattr::verify_block(&bytes, pba, state.layout.checksum, ino);
    let right = sealed.as_ref().err();
    let right = right.and_then(|why| one_bit::attributes(state, (ino, pba), &bytes, why));
    let right = right.or_else(|| placed::block(state, (ino, pba), &bytes));
    let bytes: &[u8] = right.as_deref().unwrap_or(&bytes);
    if right.is_some() {
        sealed = Ok(());
    }
    if is_first {
        if let Err(why) = &sealed {
            let sum = if is_hashed(bytes, ino) {
                &kinds::XATTR_CHECKSUM_ONLY
            } else {
                &kinds::XATTR_CHECKSUM
            };
            state.report(&kinds::XATTR_INVALID, sum, place(), why);
        }
        if let Some(entry) = state.shared.lock().get_mut(&pba.get()) {
            entry.stored = xattr::refcount(bytes);
        }
    }
    let attributes = xattr::decode(bytes, XattrLocation::Block, ino);
    if attributes.is_err() {
        state.doubted_lists.note(ino);
    }
    match attributes {
        Ok(attributes) => {
            let is_sealed = sealed.is_ok();
            let of = Container { state, ino, location: XattrLocation::Block, pba, is_sealed };
            of.check(&attributes, found, is_first);
        }
        // The header was reported above.
        Err(why) if sealed.is_ok() => {
            state.report(&kinds::XATTR_INVALID, &kinds::XATTR_CHECKSUM, place(), &why);
        }
        Err(_) => {}
    }
}

/// A container of attributes.
struct Container<'a> {
    state: &'a State,
    ino: Ino,
    location: XattrLocation,
    /// The block; 0 is the inode.
    pba: Pba,
    /// Its checksum is right. If it is not, a wrong hash is no finding of its own.
    is_sealed: bool,
}

/// The hash of each attribute of a block is that of its name and value.
pub(super) fn is_hashed(bytes: &[u8], ino: Ino) -> bool {
    let is_right = |attribute: &Attribute<'_>| match attribute.value {
        Value::Here(value) => xattr::entry_hashes(attribute.name, value).contains(&attribute.hash),
        Value::Inode { .. } => true,
    };
    xattr::decode(bytes, XattrLocation::Block, ino).is_ok_and(|all| all.iter().all(is_right))
}

impl Container<'_> {
    fn place(&self, name: &[u8]) -> Place {
        let place = Place::inode(self.ino.get()).named(name);
        if self.pba == Pba(0) { place } else { place.at_block(self.pba.get()) }
    }

    /// Checks attributes. If the block is shared, only its first inode reports.
    fn check(&self, all: &[Attribute<'_>], found: &mut Attributes, reports: bool) {
        if reports {
            self.check_places(all);
        }
        for attribute in all {
            let is_refused = reports && self.is_refused(attribute);
            match attribute.value {
                Value::Here(value) => {
                    if reports && !is_refused {
                        self.check_hash(attribute, value);
                    }
                    let context = context::value(attribute);
                    if let Some(context) = context.filter(|context| context::is_valid(context)) {
                        found.policy = Some(policy(context));
                    }
                    if (attribute.index, attribute.name) == INLINE {
                        found.inline_tail = Some(value.to_vec());
                    }
                }
                Value::Inode { ino, size, hash } => {
                    let block = u64::from(self.state.layout.block_size);
                    let blocks = u64::from(size).div_ceil(block);
                    let is_old = self
                        .state
                        .record(ino)
                        .is_some_and(|record| is_of_old_form(self.state, &record));
                    let (blocks, values) = if is_old { (0, 0) } else { (blocks, 1) };
                    found.charged = found.charged.saturating_add(blocks);
                    found.values = found.values.saturating_add(values);
                    if reports {
                        self.check_value(attribute.name, ino, size, hash);
                    }
                }
            }
        }
    }

    /// Values overlap neither entries nor each other.
    fn check_places(&self, all: &[Attribute<'_>]) {
        for (attribute, why) in overlapping(all, self.location) {
            let finding = Finding::new(&kinds::XATTR_INVALID, self.place(attribute.name));
            self.state.findings.add(finding.stored(Shown::text(why)));
        }
    }

    /// What readers refuse.
    fn is_refused(&self, attribute: &Attribute<'_>) -> bool {
        let what = refused(attribute);
        if let Some(what) = what {
            let name = names::shown(attribute.index, attribute.name);
            let place = self.place(name.as_bytes());
            self.state.findings.add(Finding::new(&kinds::XATTR_REFUSED, place).stored(what));
        }
        what.is_some()
    }

    /// In an inode the hash may be 0. It covers the padding, which Linux writes as zeros.
    fn check_hash(&self, attribute: &Attribute<'_>, value: &[u8]) {
        let words = [value, attribute.padding].concat();
        let hashes = xattr::entry_hashes(attribute.name, &words);
        let may_miss = self.location == XattrLocation::Inode && attribute.hash == 0;
        if self.is_sealed && !may_miss && !hashes.contains(&attribute.hash) {
            let finding = Finding::new(&kinds::XATTR_HASH, self.place(attribute.name));
            self.state.findings.add(finding.hex(attribute.hash, hashes[0]));
        }
    }

    fn check_value(&self, name: &[u8], value: Ino, size: u32, hash: u32) {
        let state = self.state;
        let wrong = |what: &str| {
            let finding = Finding::new(&kinds::XATTR_VALUE, self.place(name));
            state.findings.add(finding.stored(Shown::text(format!("inode {value} {what}"))));
        };
        if !state.layout.features.incompat(Incompat::EA_INODE) {
            // The flag itself counts, which says nothing without the feature.
            let flags = state.record_bytes(value).map(|bytes| stored_flags(&bytes));
            let flags = InodeFlags::from_bits_retain(flags.unwrap_or(0));
            if flags.contains(InodeFlags::EA_INODE) {
                state.totals.values.fetch_add(1, Relaxed);
            }
            return wrong("without the feature ea_inode");
        }
        let Some(record) = state.record(value) else { return wrong("cannot be read") };
        if !record.flags.contains(InodeFlags::EA_INODE) || record.links == 0 {
            return wrong("holds no value");
        }
        if let Some(facts) = state.facts(value) {
            facts.add_reference();
        }
        if record.size != u64::from(size) {
            return wrong("has another size");
        }
        let bytes = match value::hash(state, value, &record) {
            Bytes::Refused(what) => return wrong(what),
            Bytes::Hash(hash) => Some(hash),
            Bytes::Unknown => None,
        };
        if is_of_old_form(state, &record) {
            return;
        }
        match value::judge(state, value, &record, (name, hash), bytes) {
            Says::Entry => {}
            Says::Inode => {
                let right = xattr::entry_hash_of_inode(name, record.value_facts().hash);
                let finding = Finding::new(&kinds::XATTR_HASH, self.place(name));
                state.findings.add(finding.hex(hash, right));
            }
            Says::Neither => wrong("holds a value with another hash"),
        }
    }
}

/// The attributes whose values lie where entries or other values do, and how. Of two values, one
/// with a right hash is not among them.
pub(super) fn overlapping<'a, 'b>(
    all: &'a [Attribute<'b>],
    location: XattrLocation,
) -> Vec<(&'a Attribute<'b>, String)> {
    let entries = all.iter().map(|attribute| xattr::entry_len(attribute.name.len()));
    let head = location.header_len().saturating_add(4);
    let mut from = entries.fold(head, usize::saturating_add);
    let mut places: Vec<(usize, usize, &Attribute<'_>)> = Vec::new();
    for attribute in all {
        if let Value::Here(value) = attribute.value
            && !value.is_empty()
        {
            places.push((
                attribute.value_at,
                attribute.value_at.saturating_add(value.len()),
                attribute,
            ));
        }
    }
    places.sort_unstable_by_key(|(start, behind, _)| (*start, *behind));
    let mut found = Vec::new();
    let mut before: Option<&Attribute<'_>> = None;
    for (start, behind, attribute) in places {
        if start < from {
            let why = format!("value at {start} overlaps what ends at {from}");
            let other = before.filter(|other| !is_proved(other));
            if other.is_none() || !is_proved(attribute) {
                found.push((attribute, why.clone()));
            }
            let is_new = |other: &&Attribute<'_>| {
                found.iter().all(|(known, _)| !std::ptr::eq(*known, *other))
            };
            if let Some(other) = other.filter(is_new) {
                found.push((other, why));
            }
        }
        from = from.max(behind);
        before = Some(attribute);
    }
    found
}

/// The attribute has the hash of its value.
fn is_proved(attribute: &Attribute<'_>) -> bool {
    let is_right =
        |value: &[u8]| xattr::entry_hashes(attribute.name, value).contains(&attribute.hash);
    attribute.hash != 0 && matches!(attribute.value, Value::Here(value) if is_right(value))
}

/// The counts of blocks that inodes share, and of the inodes of values.
pub(super) fn check_references(state: &State) {
    let shared = std::mem::take(&mut *state.shared.lock());
    for (block, entry) in shared {
        if entry.stored != entry.found {
            let place = Place::inode(entry.ino).at_block(block).in_field("h_refcount");
            state.differ(&kinds::XATTR_REFERENCES, place, entry.stored.into(), entry.found.into());
        }
    }
    for (number, facts) in state.inodes.iter().filter(|(_, facts)| facts.is_value()) {
        let Some(record) = state.record(Ino(number)) else { continue };
        let stored = record.value_facts().references;
        let found = u64::from(facts.references());
        // Without references, it is found as such.
        if found == 0 {
            continue;
        }
        // Lustre's old volumes have no count, but the attribute's owner.
        if stored != found && !is_of_old_form(state, &record) {
            let place = Place::inode(number);
            state.differ(&kinds::VALUE_REFERENCES, place, stored, found);
        }
    }
}

/// Values as Lustre made them, without a hash and a count: they refer to their owner.
fn is_of_old_form(state: &State, record: &Record) -> bool {
    let owner = u64::try_from(record.mtime.seconds).unwrap_or(0);
    let is_inode = owner != 0 && owner <= u64::from(state.layout.inodes_count);
    let owner = is_inode.then(|| state.record(Ino(owner))).flatten();
    owner.is_some_and(|owner| owner.generation == record.generation)
}
