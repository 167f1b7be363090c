//! Extended attributes and ACLs of an inode in memory: locks, transactions, and the mode that an
//! ACL changes.

use std::sync::Arc;

use cairn_base::{FileBlock, Ino, Pba, memory};
use cairn_block::BlockDeviceExt;
use cairn_cache::status::State as Mapped;
use cairn_vfs::acl::{ACCESS, Acl, DEFAULT};
use cairn_vfs::namespace::NamedInode;
use cairn_vfs::new_inode::Ownership;
use cairn_vfs::protection::after_access_list;
use cairn_vfs::{Error as VfsError, FileKind, XattrMode};

use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::features::Incompat;
use crate::format::inode::InodeFlags;
use crate::inode::{Inode, State, attributes};
use crate::map::{BlockMap, MapContext, NoSource};
use crate::op::Operations;
use crate::space::BlockSource;
use crate::store::Store;
use crate::txn::Handle;
use crate::xattr::{ValueInodes, XattrEdit, XattrStore, XattrView, names};

/// Inodes for attribute values. Volumes with this feature are read-only, so only `read` succeeds.
struct Values<'v>(&'v Operations);

impl ValueInodes for Values<'_> {
    fn read(&self, ino: Ino, size: u32) -> Result<Vec<u8>> {
        value_inode(self.0, ino, size)
    }

    fn create(&self, _: &Handle, _: &[u8], _: u32) -> Result<Ino> {
        Err(VfsError::NoSpace.into())
    }

    fn retain(&self, _: &Handle, _: Ino) -> Result<()> {
        Err(not_maintained())
    }

    fn release(&self, _: &Handle, _: Ino) -> Result<()> {
        Err(not_maintained())
    }
}

fn not_maintained() -> crate::Error {
    VfsError::Unsupported("attribute values in separate inodes (ea_inode) are not maintained")
        .into()
}

/// The contents of an inode for an attribute's value.
///
/// # Errors
/// [`Corrupt::Inode`] if the inode is not one of a value or has another size; its map is damaged,
/// or the device failed.
pub(crate) fn value_inode(store: &Store, ino: Ino, size: u32) -> Result<Vec<u8>> {
    let record = store.read_record(ino)?;
    let bad = |field, value, problem| Corrupt::Inode { ino, field, value, problem };
    if !record.flags.contains(InodeFlags::EA_INODE) {
        return Err(bad(
            "i_flags",
            u64::from(record.flags.bits()),
            "without EA_INODE_FL on the inode of a value",
        )
        .into());
    }
    if record.size != u64::from(size) {
        return Err(bad("i_size", record.size, "not the size in its attribute").into());
    }
    // The map is read from the record, because the owner's state is locked, and two inodes' states
    // must not be.
    let layout = &store.layout;
    let seed = layout.checksum.for_inode(ino, record.generation);
    let system = store.groups.system_blocks(ino);
    let context =
        MapContext { ino, seed, layout, system, buffers: &store.buffers, source: &NoSource };
    let map = BlockMap::new(context, record.flags.contains(InodeFlags::EXTENTS));
    // The decoder refuses sizes above 16 MiB.
    let (len, block_size) = (size as usize, layout.block_size as usize);
    let mut value = memory::list("the value of an attribute", len)?;
    while value.len() < len {
        let block = FileBlock((value.len() / block_size) as u64);
        let found = map.lookup(&record.block, block)?;
        let Some(Mapped::Mapped(pba)) =
            found.clip(block.get(), block.get() + 1).map(|part| part.state)
        else {
            return Err(bad("extents", block.get(), "a hole in a value").into());
        };
        let part = store.device.read_block(pba.get() * block_size as u64, block_size)?;
        value.extend_from_slice(&part[..part.len().min(len - value.len())]);
    }
    Ok(value)
}

/// Calls `work` with the volume's attribute store.
fn with_store<R>(ops: &Operations, work: impl FnOnce(&XattrStore<'_>) -> R) -> R {
    with_blocks_of(ops, &*ops.space, work)
}

/// As [`with_store`], with `source` for blocks.
fn with_blocks_of<R>(
    ops: &Operations,
    source: &dyn BlockSource,
    work: impl FnOnce(&XattrStore<'_>) -> R,
) -> R {
    let layout = &ops.layout;
    let values = Values(ops);
    work(&XattrStore {
        block_size: layout.block_size,
        cluster_size: layout.block_size << layout.cluster_bits,
        checksum: layout.checksum,
        value_seed: layout.value_seed(),
        buffers: &ops.buffers,
        source,
        values: layout.features.incompat(Incompat::EA_INODE).then_some(&values),
    })
}

fn view<'s>(inode: &Inode, state: &'s State) -> XattrView<'s> {
    XattrView { ino: inode.ino, in_inode: &state.record.extra, file_acl: state.record.file_acl }
}

/// The value of an attribute.
///
/// # Errors
/// As [`XattrStore::get`].
pub(crate) fn get(ops: &Operations, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
    let state = inode.state.read();
    if has_no_attributes(&state) {
        // Most files have no attributes and are asked for some often, so this comes before any
        // decoding.
        names::parse(name)?;
        return Err(VfsError::NoAttribute.into());
    }
    with_store(ops, |store| store.get(view(inode, &state), name))
}

fn has_no_attributes(state: &State) -> bool {
    state.record.file_acl == Pba(0)
        && state.record.extra.first_chunk::<4>().is_none_or(|magic| *magic == [0; 4])
}

/// The names of all attributes.
///
/// # Errors
/// As [`XattrStore::list`].
pub(crate) fn list(ops: &Operations, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    let state = inode.state.read();
    with_store(ops, |store| store.list(view(inode, &state)))
}

/// Sets an attribute. An access ACL also sets the permission bits, and is stored only if these do
/// not contain all of it.
///
/// # Errors
/// [`VfsError::Invalid`] for a malformed list, [`VfsError::Unsupported`] for a list on a symbolic
/// link, [`VfsError::AccessDenied`] for a default list on a file, [`VfsError::NotPermitted`] by the
/// flags; otherwise as [`XattrStore::set`].
pub(crate) fn set(
    ops: &Operations,
    inode: &Arc<Inode>,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
) -> Result<()> {
    ops.check_writable()?;
    inode.flags().check_links()?;
    check_kind(inode, name)?;
    let acl = match name {
        ACCESS | DEFAULT => Some(
            Acl::from_xattr(value)
                .map_err(|_| VfsError::Invalid("malformed access control list"))?,
        ),
        _ => None,
    };
    if inode.kind == FileKind::Symlink && acl.is_some() {
        return Err(VfsError::Unsupported("symbolic links have no access control lists").into());
    }
    if name == DEFAULT && inode.kind != FileKind::Directory {
        return match acl {
            Some(Some(_)) => Err(VfsError::AccessDenied.into()),
            _ => Ok(()),
        };
    }
    let handle = ops.begin(ops.credits.xattr)?;
    let mut guard = inode.state.write();
    let state = &mut *guard;
    match acl {
        // An empty list removes the attribute.
        Some(None) => remove_if_present(ops, &handle, inode, state, name)?,
        Some(Some(acl)) => {
            let (bits, complete) = acl.equivalent_mode();
            if name == ACCESS && complete {
                remove_if_present(ops, &handle, inode, state, name)?;
            } else {
                // As in Linux, lists are set whatever `mode` says.
                change(ops, inode, state, |store, edit| {
                    store.set(&handle, edit, name, value, XattrMode::Set)
                })?;
            }
            // The mode changes after the list is stored.
            if name == ACCESS {
                let changed = state.record.mode & !0o777 | u16::try_from(bits).unwrap_or(0);
                state.record.mode = after_access_list(changed, mode);
            }
        }
        None => {
            change(ops, inode, state, |store, edit| store.set(&handle, edit, name, value, mode))?
        }
    }
    finish(ops, &handle, inode, state)
}

/// Removes an attribute.
///
/// # Errors
/// [`VfsError::NotPermitted`] by the flags; otherwise as [`XattrStore::remove`].
pub(crate) fn remove(ops: &Operations, inode: &Arc<Inode>, name: &[u8]) -> Result<()> {
    ops.check_writable()?;
    inode.flags().check_links()?;
    check_kind(inode, name)?;
    let handle = ops.begin(ops.credits.xattr)?;
    let mut guard = inode.state.write();
    let state = &mut *guard;
    match name {
        ACCESS | DEFAULT => remove_if_present(ops, &handle, inode, state, name)?,
        _ => change_without_adding(ops, inode, state, |store, edit| {
            store.remove(&handle, edit, name)
        })?,
    }
    finish(ops, &handle, inode, state)
}

/// `user.` attributes are for files and directories, because permission bits do not guard them on
/// other inodes.
fn check_kind(inode: &Inode, name: &[u8]) -> Result<()> {
    names::parse(name)?;
    if name.starts_with(b"user.") && !matches!(inode.kind, FileKind::Regular | FileKind::Directory)
    {
        return Err(VfsError::NotPermitted.into());
    }
    Ok(())
}

fn remove_if_present(
    ops: &Operations,
    handle: &Handle,
    inode: &Inode,
    state: &mut State,
    name: &[u8],
) -> Result<()> {
    match change_without_adding(ops, inode, state, |store, edit| store.remove(handle, edit, name)) {
        Err(crate::Error::Vfs(VfsError::NoAttribute)) => Ok(()),
        other => other,
    }
}

fn change(
    ops: &Operations,
    inode: &Inode,
    state: &mut State,
    work: impl FnOnce(&XattrStore<'_>, &mut XattrEdit<'_>) -> Result<i64>,
) -> Result<()> {
    change_with(ops, &*ops.space, inode, state, work)
}

/// As [`change`], if nothing is added: the copy of a shared block may use blocks that are kept for
/// mapping.
fn change_without_adding(
    ops: &Operations,
    inode: &Inode,
    state: &mut State,
    work: impl FnOnce(&XattrStore<'_>, &mut XattrEdit<'_>) -> Result<i64>,
) -> Result<()> {
    change_with(ops, &ops.space.for_mapping(), inode, state, work)
}

fn change_with(
    ops: &Operations,
    source: &dyn BlockSource,
    inode: &Inode,
    state: &mut State,
    work: impl FnOnce(&XattrStore<'_>, &mut XattrEdit<'_>) -> Result<i64>,
) -> Result<()> {
    let goal = ops.space.goal_of(inode.ino);
    let record = &mut state.record;
    let mut edit = XattrEdit {
        ino: inode.ino,
        in_inode: &mut record.extra,
        file_acl: &mut record.file_acl,
        goal,
    };
    let sectors = with_blocks_of(ops, source, |store| work(store, &mut edit))?;
    record.blocks_512 = record.blocks_512.saturating_add_signed(sectors);
    Ok(())
}

fn finish(ops: &Operations, handle: &Handle, inode: &Inode, state: &mut State) -> Result<()> {
    state.record.ctime = attributes::now(ops);
    inode.write_inode(ops, handle, state)?;
    handle.finish();
    Ok(())
}

/// The default ACL of a directory.
///
/// # Errors
/// The attributes are damaged or the list is malformed.
pub(crate) fn default_acl(ops: &Operations, directory: &Inode) -> Result<Option<Acl>> {
    match get(ops, directory, DEFAULT) {
        Ok(value) => Ok(Acl::from_xattr(&value)
            .map_err(|_| VfsError::Invalid("malformed access control list"))?),
        Err(crate::Error::Vfs(VfsError::NoAttribute)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Stores the ACLs that a new inode inherits. The caller writes the record.
///
/// # Errors
/// As [`XattrStore::set`].
pub(crate) fn store_acls(
    ops: &Operations,
    handle: &Handle,
    inode: &Inode,
    ownership: &Ownership,
) -> Result<()> {
    for (name, acl) in [(ACCESS, &ownership.access), (DEFAULT, &ownership.default)] {
        if let Some(acl) = acl {
            let value = acl.to_xattr();
            let mut state = inode.state.write();
            change(ops, inode, &mut state, |store, edit| {
                store.set(handle, edit, name, &value, XattrMode::Set)
            })?;
        }
    }
    Ok(())
}

/// Updates owner, mask and other entries of the access ACL after chmod.
///
/// # Errors
/// The attributes are damaged or the list is malformed; otherwise as [`XattrStore::set`].
pub(crate) fn follow_mode(
    ops: &Operations,
    handle: &Handle,
    inode: &Inode,
    state: &mut State,
    permissions: u32,
) -> Result<()> {
    if has_no_attributes(state) || inode.kind == FileKind::Symlink {
        return Ok(());
    }
    let stored = with_store(ops, |store| store.get(view(inode, state), ACCESS));
    let value = match stored {
        Ok(value) => value,
        Err(crate::Error::Vfs(VfsError::NoAttribute)) => return Ok(()),
        Err(error) => return Err(error),
    };
    let acl =
        Acl::from_xattr(&value).map_err(|_| VfsError::Invalid("malformed access control list"))?;
    let Some(acl) = acl else { return Ok(()) };
    let value = acl.with_mode(permissions).to_xattr();
    change_without_adding(ops, inode, state, |store, edit| {
        store.set(handle, edit, ACCESS, &value, XattrMode::Set)
    })
}

/// Result of [`make_room`].
pub(crate) enum Room {
    /// The new bytes of the inode's attributes.
    Made(Vec<u8>),
    /// There is none.
    None,
    /// The transaction has no room for the changes.
    Later,
}

/// Takes `bytes` from the attributes in the inode; attributes that no longer fit move to the block.
/// The caller writes the record.
pub(crate) fn make_room(
    ops: &Operations,
    handle: &Handle,
    ino: Ino,
    state: &mut State,
    bytes: usize,
) -> Result<Room> {
    let record = &mut state.record;
    let Some(len) = record.extra.len().checked_sub(bytes) else { return Ok(Room::None) };
    with_store(ops, |store| {
        let view = XattrView { ino, in_inode: &record.extra, file_acl: record.file_acl };
        let Some(plan) = store.plan_shrink(view, len)? else { return Ok(Room::None) };
        if plan.moves() && !handle.extend(ops.credits.xattr)? {
            return Ok(Room::Later);
        }
        let goal = ops.space.goal_of(ino);
        let mut edit =
            XattrEdit { ino, in_inode: &mut record.extra, file_acl: &mut record.file_acl, goal };
        let (area, sectors) = store.shrink(handle, &mut edit, plan)?;
        record.blocks_512 = record.blocks_512.saturating_add_signed(sectors);
        Ok(Room::Made(area))
    })
}

/// Frees all attributes of a deleted inode.
///
/// # Errors
/// As [`XattrStore::remove_all`].
pub(crate) fn free_all(
    ops: &Operations,
    handle: &Handle,
    inode: &Inode,
    state: &mut State,
) -> Result<()> {
    if has_no_attributes(state) {
        return Ok(());
    }
    change_without_adding(ops, inode, state, |store, edit| store.remove_all(handle, edit))
}
