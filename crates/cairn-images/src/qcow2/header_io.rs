//! Changing the header of an image, which is one write of one sector.

use zerocopy::FromBytes;

use super::error::Result;
use super::format::header::RawHeader;
use super::host::Host;

/// Changes fields; the caller flushes.
pub(super) fn change(host: &Host, change: impl FnOnce(&mut RawHeader)) -> Result<()> {
    let mut bytes = host.read(0, host.unit())?;
    let (raw, _) = RawHeader::mut_from_prefix(&mut bytes).expect("a unit has room for a header");
    change(raw);
    Ok(host.write(0, bytes.into_bytes())?)
}
