//! `cairn check`.

mod args;
mod live;
mod output;
mod repair;
mod watch;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use cairn_check::ExitStatus;

use crate::failure::{self, Failure, Outcome, Status};
use crate::output::{complain, with_stdout};
use crate::{json, print};
pub use args::Args;
use live::Target;
use watch::{Watch, as_e2fsck, uncheckable};

/// Checks the volume.
///
/// # Errors
/// It has defects, it cannot be checked, or the result cannot be printed.
pub fn run(args: &Args) -> Outcome {
    let done = match (&args.take_back, args.repair) {
        (Some(file), _) => repair::take_back(args, file),
        (None, Some(wish)) => repair::run(args, wish),
        (None, None) => checked(args),
    };
    done.map_err(as_e2fsck)
}

/// The exit status of a wrong command line, if it is one of `check`.
#[must_use]
pub fn usage_status(words: &[OsString]) -> Option<u8> {
    let command = words.get(1).filter(|command| *command == "check");
    command.map(|_| ExitStatus::USAGE.code())
}

fn checked(args: &Args) -> Outcome {
    let target = live::target(&args.image)?;
    let watch = Watch::start()?;
    let checked = match &target {
        Target::Mount(point) => live::check(point, watch.clone()),
        Target::Image(image) => cairn::check(image, &args.devices, watch.clone())
            .map(|checked| (image.to_os_string(), checked))
            .map_err(uncheckable),
    };
    watch.steps.end();
    let (name, checked) = match checked {
        Ok(checked) => checked,
        Err(failure) => {
            warn_of_interrupted(&target, &failure);
            let failure = as_e2fsck(failure);
            if args.json {
                with_stdout(|output| json::failure(output, &failure))?;
            }
            return Err(failure);
        }
    };
    if let Some(interrupted) = &checked.interrupted {
        let why = failure::undo(interrupted);
        complain(format_args!("warning: {}: {why}", name.display()));
    }
    with_stdout(|to| match args.json {
        true => writeln!(to, "{:#}", output::document(name.as_bytes(), &checked)),
        false => output::text(to, &print::escaped(name.as_bytes()), &checked),
    })?;
    match checked.report.exit_status() {
        ExitStatus::CLEAN => Ok(()),
        found => Err(Failure::new(Status::Success, "").with_code(found.code())),
    }
}

/// The undo file of an interrupted repair may say why an image cannot be checked. One that is in
/// use may be in repair just now.
fn warn_of_interrupted(target: &Target, failure: &Failure) {
    let Target::Image(image) = target else { return };
    let interrupted = cairn::interrupted_repair(image).filter(|_| failure.status != Status::Busy);
    if let Some(interrupted) = interrupted {
        complain(format_args!("warning: {image}: {}", failure::undo(&interrupted)));
    }
}
