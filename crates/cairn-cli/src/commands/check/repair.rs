//! `cairn check --repair` and `--take-back`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cairn::{Cause, ImageSpec, Repair};
use cairn_check::repair::{Plan, Scope, Step, undo};
use cairn_check::{ExitStatus, Kind, Report, Severity};
use serde_json::{Value as Json, json};

use super::args::{Args, Wish};
use super::watch::{Watch, as_e2fsck, uncheckable};
use super::{live, output};
use crate::failure::{Failure, Outcome, Status};
use crate::output::{Output, with_stdout};
use crate::{confirm, json, print};

/// Repairs the volume.
///
/// # Errors
/// It stays defective, in whole or in part; it cannot be read or written; the user says no.
pub(super) fn run(args: &Args, wish: Wish) -> Outcome {
    if let Some(point) = live::mount_point(&args.image) {
        return Err(told(args, live::not_repaired(&point)));
    }
    let image = ImageSpec::parse(&args.image)?;
    let scope = match wish {
        Wish::Accounting => Scope::Accounting,
        Wish::All => Scope::All,
    };
    let watch = Watch::start()?;
    let planned = cairn::plan_repair(&image, &args.devices, scope, !args.no_change, watch.clone());
    watch.steps.end();
    let repair = planned.map_err(|error| told(args, uncheckable(error)))?;
    let name = image.to_os_string();
    let shown = print::escaped(name.as_bytes());
    // What cannot be applied is said before what would be done.
    let usable = match is_possible(args, &repair.plan) {
        true => repair.check_undo_file(args.undo.as_deref()).map_err(Failure::from),
        false => Ok(()),
    };
    if !args.json && usable.is_ok() {
        with_stdout(|to| steps(to, &repair.plan))?;
    }
    let end = usable.and_then(|()| decide(args, &repair, &shown)).and_then(|is_wanted| {
        if is_wanted {
            repair.apply(args.undo.as_deref()).map_err(not_applied)?;
        }
        Ok(status(&repair.plan, is_wanted))
    });
    let status = match end {
        Ok(status) => status,
        Err(failure) => {
            let failure = as_e2fsck(failure);
            if args.json {
                let steps = document(name.as_bytes(), &repair, ExitStatus::default());
                with_stdout(|to| json::failure_with(to, &failure, steps))?;
            }
            return Err(failure);
        }
    };
    with_stdout(|to| match args.json {
        true => writeln!(to, "{:#}", Json::Object(document(name.as_bytes(), &repair, status))),
        false => summary(to, &shown, &repair.plan, status),
    })?;
    match status {
        ExitStatus::CLEAN => Ok(()),
        status => Err(Failure::new(Status::Success, "").with_code(status.code())),
    }
}

/// The failure of a repair. If only its undo file is left, the volume is repaired.
fn not_applied(error: cairn::Error) -> Failure {
    let is_left = matches!(error.cause(), Cause::Undo(undo::Error::Left { .. }));
    let failure = Failure::from(error);
    match is_left {
        true => failure.with_code((ExitStatus::REPAIRED | ExitStatus::OPERATIONAL).code()),
        false => failure,
    }
}

/// Prints the failure as a document, if one is asked for.
fn told(args: &Args, failure: Failure) -> Failure {
    let failure = as_e2fsck(failure);
    if args.json {
        let _ = with_stdout(|to| json::failure(to, &failure));
    }
    failure
}

/// Can the plan be applied, if the user wants it?
fn is_possible(args: &Args, plan: &Plan) -> bool {
    !(plan.is_refused || plan.after.cancelled || plan.changes.is_empty() || args.no_change)
}

/// Is the plan to be applied? Asks before something is lost.
fn decide(args: &Args, repair: &Repair, shown: &str) -> Outcome<bool> {
    let plan = &repair.plan;
    if !is_possible(args, plan) {
        return Ok(false);
    }
    let losing = plan.steps.losing().count();
    if losing == 0 || args.yes {
        return Ok(true);
    }
    let left =
        |why: String| Failure::new(Status::Failed, why).with_code(ExitStatus::ERRORS_LEFT.code());
    if args.json || !confirm::can_ask() {
        return Err(left(format!(
            "{shown}: {} something, and nobody can be asked: look at the steps, then add -y; \
             nothing was changed",
            loses(losing)
        )));
    }
    let question = format!("{shown}: {} what is listed above. Repair?", loses(losing));
    match confirm::ask(&question) {
        Ok(()) => Ok(true),
        Err(_) => Err(left(format!("{shown}: nothing was changed"))),
    }
}

fn status(plan: &Plan, is_applied: bool) -> ExitStatus {
    let left = match is_applied {
        true => plan.after.count(),
        false => plan.before.count(),
    };
    let mut status = ExitStatus::CLEAN;
    if is_applied {
        status = status | ExitStatus::REPAIRED;
    }
    if left > 0 {
        status = status | ExitStatus::ERRORS_LEFT;
    }
    if plan.after.cancelled {
        status = status | ExitStatus::CANCELLED;
    }
    status
}

/// A line for each step.
fn steps(to: &mut Output<'_>, plan: &Plan) -> Outcome {
    for step in plan.steps.kept() {
        writeln!(to, "{step}")?;
    }
    for (kind, count) in plan.steps.counts() {
        let shown = plan.steps.kept().iter().filter(|step| step.kind.code == kind.code).count();
        let hidden = count.saturating_sub(shown as u64);
        if hidden > 0 {
            writeln!(to, "{}: {hidden} more", kind.code)?;
        }
    }
    Ok(())
}

fn summary(to: &mut Output<'_>, name: &str, plan: &Plan, status: ExitStatus) -> Outcome {
    let left = plan.after.count();
    if plan.after.cancelled {
        return writeln!(to, "{name}: ended before everything was checked; nothing was changed");
    }
    if (plan.is_refused || plan.changes.is_empty()) && is_fatal(&plan.before) {
        return writeln!(to, "{name}: {}; nothing was changed", output::NOT_REPAIRABLE);
    }
    if plan.is_refused {
        for finding in &plan.after.findings {
            writeln!(to, "left: {finding}")?;
        }
        return writeln!(
            to,
            "{name}: it would not get sound, so nothing was changed: copy what can be read \
             (cairn rescue), or try e2fsck or fsck.f2fs on a copy"
        );
    }
    let count = counted(plan.steps.count(), "step");
    match (status.contains(ExitStatus::REPAIRED), left) {
        (true, 0) => writeln!(to, "{name}: repaired ({count})"),
        (true, _) => writeln!(to, "{name}: repaired ({count}); {}", left_over(&plan.after)),
        (false, 0) if plan.changes.is_empty() => writeln!(to, "{name}: clean"),
        (false, _) if plan.changes.is_empty() => {
            writeln!(to, "{name}: {}; nothing was changed", left_over(&plan.after))
        }
        (false, _) => writeln!(to, "{name}: nothing was changed (-n); planned: {count}"),
    }
}

fn is_fatal(report: &Report) -> bool {
    report.counts.iter().any(|(kind, _)| kind.severity == Severity::Fatal)
}

/// `1 step`, `2 steps`.
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn loses(count: usize) -> String {
    format!("{} {}", counted(count as u64, "repair"), if count == 1 { "loses" } else { "lose" })
}

/// What a repair without losses leaves: what loses something, and what depends on that.
fn left_over(after: &Report) -> String {
    if let Some(why) = &after.no_repair {
        let count = after.count();
        let is = if count == 1 { "is" } else { "are" };
        return format!("{} {is} left, which no repair mends: {why}", counted(count, "defect"));
    }
    let is_losing = |kind: &Kind| kind.severity != Severity::Accounting;
    let losing = after.counts.iter().filter(|(kind, _)| is_losing(kind));
    let losing: u64 = losing.map(|(_, count)| count).sum();
    let waiting = after.count().saturating_sub(losing);
    let (is, waits) =
        (if losing == 1 { "is" } else { "are" }, if waiting == 1 { "waits" } else { "wait" });
    let left =
        format!("{} {is} left, which --repair=all mends with losses", counted(losing, "defect"));
    match waiting {
        0 => left,
        _ => format!("{left}; {waiting} more {waits} for that"),
    }
}

fn document(name: &[u8], repair: &Repair, status: ExitStatus) -> json::Object {
    let plan = &repair.plan;
    let counts: json::Object =
        plan.steps.counts().map(|(kind, count)| (kind.code.to_owned(), count.into())).collect();
    let mut object = json::Object::new();
    json::insert_name(&mut object, "image", name);
    let rest = json!({
        "type": repair.format.to_string(),
        "status": status.code(),
        "repaired": status.contains(ExitStatus::REPAIRED),
        "refused": plan.is_refused,
        "cancelled": plan.after.cancelled,
        "steps": plan.steps.kept().iter().map(step).collect::<Vec<_>>(),
        "counts": counts,
        "bytes": plan.changes.bytes(),
        "left": plan.after.findings.iter().map(output::finding).collect::<Vec<_>>(),
    });
    if let Json::Object(rest) = rest {
        object.extend(rest);
    }
    object
}

fn step(step: &Step) -> Json {
    let loss = step.loss.as_ref().map(|loss| {
        let mut object = json::Object::new();
        json::insert_name(&mut object, "path", &loss.path);
        object.insert("what".into(), (*loss.what).into());
        Json::Object(object)
    });
    json!({
        "code": step.kind.code,
        "severity": step.kind.severity.name(),
        "place": output::place(&step.place),
        "repair": step.kind.repair,
        "loss": loss,
    })
}

/// Takes a repair back.
///
/// # Errors
/// The file is no whole undo file of the volume, or the volume has changed since.
pub(super) fn take_back(args: &Args, file: &Path) -> Outcome {
    let image = ImageSpec::parse(&args.image)?;
    let taken = cairn::take_back(&image, &args.devices, file);
    let bytes = taken.map_err(|error| told(args, uncheckable(error)))?;
    let name = image.to_os_string();
    with_stdout(|to| match args.json {
        true => {
            let mut object = json::Object::new();
            json::insert_name(&mut object, "image", name.as_bytes());
            object.insert("bytes".into(), bytes.into());
            writeln!(to, "{:#}", Json::Object(object))
        }
        false => {
            let shown = print::escaped(name.as_bytes());
            writeln!(to, "{shown}: {bytes} bytes are as they were before the repair")
        }
    })
}
