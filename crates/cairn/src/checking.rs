//! What checks take and give ([`crate::check`]): an [`Observer`] sees the progress and can end a
//! check, a [`Report`] has the findings. A repair ([`crate::plan_repair`]) is a [`Plan`] of steps,
//! and [`undo`] says why one cannot be taken back.

pub use cairn_check::repair::{Loss, Plan, Scope, Step, Steps, undo};
pub use cairn_check::{
    Detail, ExitStatus, Fields, Finding, Kind, Observer, Phase, Place, Progress, Report, Severity,
    Usage, Value,
};
