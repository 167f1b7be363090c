//! Names whose type is another one than that of the inode, although its contents fit both: a socket
//! or a file without contents, a link or a file with its target.
//!
//! While directories are walked, such names are kept. When all names are known, the names decide:
//! if none has the type of the mode, that is wrong.

use cairn_base::Ino;
use cairn_base::units::as_u64;
use cairn_check::{Finding, Place};
use cairn_vfs::FileKind;

use super::facts::{Dispute, Facts};
use super::kinds;
use super::state::State;
use crate::form::types;
use crate::format::inode::Inode as Record;

/// Most inodes of which names are kept.
const MOST_DISPUTED: usize = 1 << 16;

/// A name has another type than its inode. If the contents of the inode fit both, the other names
/// are awaited; else the name is wrong, which is the finding.
pub(super) fn name_differs(state: &State, ino: Ino, said: Option<FileKind>, finding: Finding) {
    let said = said.filter(|said| is_open(state, ino, *said));
    let mut disputes = state.disputes.lock();
    let Some(said) = said.filter(|_| disputes.len() < MOST_DISPUTED) else {
        drop(disputes);
        return state.findings.add(finding);
    };
    let names = Vec::new();
    let dispute = disputes.entry(ino.get()).or_insert(Dispute { said, is_one: true, names });
    dispute.is_one &= dispute.said == said;
    dispute.names.push(finding);
}

/// Can the inode be of the type that a name says? A directory was walked as what it is, and a right
/// checksum says that the mode is what was written.
fn is_open(state: &State, ino: Ino, said: FileKind) -> bool {
    let Some((bytes, record)) = state.record_bytes(ino).zip(state.record(ino)) else {
        return false;
    };
    let is_sealed = Record::checksums(&bytes, ino, &state.layout)
        .is_some_and(|(stored, computed)| stored == computed);
    let is_walked = record.is_directory() || said == FileKind::Directory;
    !is_sealed && !is_walked && types::may_be(state, ino, &record, said)
}

/// After all names are known: if no name of an inode has the type of its mode, the mode is wrong,
/// else the names are.
pub(super) fn judge(state: &State) {
    let disputes = std::mem::take(&mut *state.disputes.lock());
    for (ino, dispute) in disputes {
        let ino = Ino(ino);
        let names = state.facts(ino).map_or(0, Facts::names);
        let record = state.record(ino).filter(|_| as_u64(dispute.names.len()) >= names.into());
        let Some(record) = record else {
            dispute.names.into_iter().for_each(|finding| state.findings.add(finding));
            continue;
        };
        let kind = match dispute.is_one {
            true => &kinds::INODE_TYPE,
            false => &kinds::INODE_TYPE_UNPROVED,
        };
        let right = types::mode_of(record.mode, dispute.said);
        let place = Place::inode(ino.get()).in_field("i_mode");
        state.findings.add(Finding::new(kind, place).modes(record.mode, right));
        state.corrected.set_mode(ino, right);
    }
}
