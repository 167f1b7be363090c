//! What a check tells while it runs, and its exit status when it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cairn::{Cause, Class};
use cairn_check::{ExitStatus, Observer, Phase};

use crate::failure::{Failure, Outcome, Status};
use crate::progress::Steps;
use crate::signals;

/// What a walk tells of its progress.
pub(super) struct Watch {
    pub(super) steps: Steps,
    cancelled: AtomicBool,
}

impl Watch {
    /// Starts a line, and ends the check at a signal.
    pub(super) fn start() -> Outcome<Arc<Self>> {
        let (steps, cancelled) = (Steps::start("checking"), AtomicBool::new(false));
        let watch = Arc::new(Self { steps, cancelled });
        let stop = watch.clone();
        signals::on_ending(move || stop.cancelled.store(true, Relaxed), || ())?;
        Ok(watch)
    }
}

impl Observer for Watch {
    fn begin(&self, phase: Phase) {
        let Phase { number, of, what, total } = phase;
        self.steps.begin(&format!("{number}/{of} {what}"), total);
    }

    fn done(&self, steps: u64) {
        self.steps.set(steps);
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }
}

/// Gives a failure the exit status that e2fsck has for it.
pub(super) fn as_e2fsck(failure: Failure) -> Failure {
    let code = match failure.status {
        Status::Success => return failure,
        _ if failure.code().is_some() => return failure,
        Status::Usage => ExitStatus::USAGE,
        _ => ExitStatus::OPERATIONAL,
    };
    failure.with_code(code.code())
}

/// The failure of a check. The advice for a damaged volume is to check it, and that is what has
/// failed.
pub(super) fn uncheckable(error: cairn::Error) -> Failure {
    let cause = error.cause();
    if let Cause::UnknownFormat { hint: None } = cause {
        let advice = "`cairn rescue` looks for copies of a lost superblock in more places";
        return Failure::new(Status::Corrupt, format!("{error}; {advice}"));
    }
    let Cause::Format { class: Class::Corrupt, format, .. } = cause else { return error.into() };
    let (image, checker) = (error.image(), format.checker());
    let advice = format!("copy what can be read (cairn rescue), or try {checker} on a copy");
    Failure::new(Status::Corrupt, format!("{image}: {cause}: it cannot be checked: {advice}"))
}
