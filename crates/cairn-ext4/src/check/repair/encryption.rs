//! The policy of an encrypted directory, which all that lies in it has as well.

use cairn_base::Ino;
use cairn_check::{Finding, Value};

use super::mender::Mender;
use crate::error::Result;
use crate::form::context::{self, NONCE};

/// Gives a directory the policy of an inode in it, or an inode that of its directory. Each keeps
/// the nonce of its own.
pub(super) fn mend(mender: &mut Mender<'_>, ino: Ino, finding: &Finding) -> Result<()> {
    let model = finding.computed.as_ref().and_then(Value::number).map(Ino);
    let of = |ino: Ino| context::inside(ino, &mender.state.record(ino)?);
    let (Some(own), Some(other)) = (of(ino), model.and_then(of)) else { return Ok(()) };
    let len = own.1.len().saturating_sub(NONCE);
    let is_alike = own.1.len() == other.1.len() && context::is_valid(&other.1);
    let Some(policy) = other.1.get(..len).filter(|_| is_alike) else { return Ok(()) };
    let is_done = mender.edit(ino, |record| {
        if let Some(place) = record.extra.get_mut(own.0.clone()).and_then(|all| all.get_mut(..len))
        {
            place.copy_from_slice(policy);
        }
    })?;
    if is_done {
        mender.step(finding);
    }
    Ok(())
}
