//! Repairs: a plan is made in memory, shown, and then applied as one step.
//!
//! [`plan`] puts an [`Overlay`] over the device, and lets the format's [`Mend`] check and mend what
//! is in it until a round finds nothing to do. What the overlay then holds is the [`Plan`]: nothing
//! of the volume has changed yet. A volume that does not get sound is not touched.
//!
//! [`Plan::apply`] writes the bytes before and after the change to an undo file ([`undo`]), makes
//! it durable, and then changes the volume. A crash leaves the volume as it was, or together with
//! the undo file what [`undo::take_back`] makes of it: the volume as it was.

mod changes;
mod steps;
pub mod undo;

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::wrap::{Overlay, ReadAhead};

pub use changes::Changes;
pub use steps::{Loss, Step, Steps};

use crate::kind::{Kind, Severity};
use crate::report::Report;

/// Rounds of checking and mending. What is not sound then does not get sound.
const ROUNDS: u32 = 64;

/// What the user allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Defects of [`Severity::Accounting`] only: nothing is lost.
    Accounting,
    /// All but those of [`Severity::Fatal`].
    All,
}

impl Scope {
    /// May a repair mend defects of this kind?
    #[must_use]
    pub const fn allows(self, kind: &Kind) -> bool {
        match (self, kind.severity) {
            (_, Severity::Accounting) | (Self::All, Severity::Losing) => true,
            (_, Severity::Fatal) | (Self::Accounting, Severity::Losing) => false,
        }
    }
}

/// What a format's repair does.
pub trait Mend {
    /// Why it failed. Damage is no failure.
    type Error: From<cairn_block::Error>;

    /// Checks the volume on `device`, which holds what was mended so far, and mends there what it
    /// has found, as far as `scope` allows: all of it, or only what must be right before the rest
    /// can be. Each thing that it mends is a step. Returns what it has found before it mended.
    ///
    /// A round that finds nothing writes nothing. A volume that was not unmounted cleanly is
    /// recovered on `device` first, which is no step.
    ///
    /// # Errors
    /// There is no volume that can be read, or the device failed.
    fn round(
        &self,
        device: &Arc<dyn BlockDevice>,
        scope: Scope,
        steps: &mut Steps,
    ) -> Result<Report, Self::Error>;

    /// May a repair end here, which has mended something and leaves something? If not, nothing is
    /// changed. `before` holds the volume as it is.
    ///
    /// # Errors
    /// A device failed.
    fn may_end(
        &self,
        before: &Arc<dyn BlockDevice>,
        after: &Arc<dyn BlockDevice>,
    ) -> Result<bool, Self::Error> {
        let _ = (before, after);
        Ok(true)
    }
}

/// A repair that can be applied.
pub struct Plan {
    /// What was found on the volume.
    pub before: Report,
    /// What will be found after the repair.
    pub after: Report,
    /// What is mended.
    pub steps: Steps,
    /// The blocks that change.
    pub changes: Changes,
    /// The volume would not get sound, so that nothing is to be changed.
    pub is_refused: bool,
}

/// Plans the repair of the volume on `device`, which is only read. What a repair with losses does
/// not get sound, one without may.
///
/// # Errors
/// As [`Mend::round`]; the device has zones, or there is not enough memory.
pub fn plan<M: Mend>(
    mender: &M,
    device: &Arc<dyn BlockDevice>,
    scope: Scope,
) -> Result<Plan, M::Error> {
    let planned = plan_within(mender, device, scope)?;
    if scope == Scope::Accounting || !planned.is_refused || planned.after.cancelled {
        return Ok(planned);
    }
    let safe = plan_within(mender, device, Scope::Accounting)?;
    let is_sound = !safe.is_refused && safe.after.count() == 0 && !safe.after.cancelled;
    Ok(if is_sound { safe } else { planned })
}

fn plan_within<M: Mend>(
    mender: &M,
    device: &Arc<dyn BlockDevice>,
    scope: Scope,
) -> Result<Plan, M::Error> {
    let overlay = Arc::new(Overlay::new(Arc::new(ReadAhead::new(device.clone())))?);
    let above: Arc<dyn BlockDevice> = overlay.clone();
    let mut steps = Steps::default();
    let mut after = mender.round(&above, scope, &mut steps)?;
    let mut before = None;
    let mut done = 0;
    for _ in 0..ROUNDS {
        if after.cancelled || steps.made() == done {
            break;
        }
        done = steps.made();
        let listed = steps.count();
        let next = mender.round(&above, scope, &mut steps)?;
        // The same steps for the same findings will not help the next time either.
        let is_stuck = steps.count() == listed && steps.made() > done && next.is_same(&after);
        before.get_or_insert(std::mem::replace(&mut after, next));
        if is_stuck {
            break;
        }
    }
    let is_left = |(kind, _): &(&'static Kind, u64)| scope.allows(kind) || scope == Scope::All;
    // Accounting that depends on what may not be repaired is left with it.
    let may_stay = scope == Scope::Accounting && after.worst() > Some(Severity::Accounting);
    let is_settled = steps.made() == done;
    // What seemed to be accounting was not, if it has uncovered what loses something.
    let losing = |report: &Report| -> u64 {
        let losing = report.counts.iter().filter(|(kind, _)| !scope.allows(kind));
        losing.map(|(_, count)| count).sum()
    };
    let uncovers = before.as_ref().is_some_and(|before| losing(&after) > losing(before));
    let is_refused = after.counts.iter().any(is_left) && !may_stay || !is_settled || uncovers;
    let is_partial = !is_refused && !after.cancelled && after.count() > 0 && steps.made() > 0;
    let is_refused = is_refused || is_partial && !mender.may_end(device, &above)?;
    let changes = match is_refused || after.cancelled {
        true => Changes::default(),
        false => Changes::between(device, &overlay)?,
    };
    let before = before.unwrap_or_else(|| after.clone());
    Ok(Plan { before, after, steps, changes, is_refused })
}

#[cfg(test)]
mod tests;
