//! What `cairn check` prints.

use cairn::Checked;
use cairn_check::{Finding, Place, Report, Severity, Value};
use serde_json::{Value as Json, json};

use crate::failure::Outcome;
use crate::json;
use crate::output::Output;

/// A line for each finding, and a summary in the words of e2fsck.
pub(super) fn text(output: &mut Output<'_>, name: &str, checked: &Checked) -> Outcome {
    let Report { findings, counts, usage, recovered, cancelled, .. } = &checked.report;
    for what in recovered {
        writeln!(output, "{name}: not unmounted cleanly; the {what} was replayed in memory")?;
    }
    for finding in findings {
        writeln!(output, "{finding}")?;
    }
    for (kind, count) in counts {
        let shown = findings.iter().filter(|finding| finding.kind.code == kind.code).count();
        let hidden = count.saturating_sub(shown as u64);
        if hidden > 0 {
            writeln!(output, "{}: {hidden} more", kind.code)?;
        }
    }
    let share = usage.fragmented as f64 * 100.0 / usage.files.max(1) as f64;
    writeln!(
        output,
        "{name}: {}/{} files ({share:.1}% non-contiguous), {}/{} blocks",
        usage.files, usage.files_most, usage.blocks, usage.blocks_most
    )?;
    if let Some(user) = &checked.report.in_use {
        writeln!(output, "{name}: {user} uses it, or went down while it did (mmp)")?;
    }
    match checked.report.count() {
        _ if *cancelled => writeln!(output, "{name}: ended before everything was checked"),
        0 => writeln!(output, "{name}: clean"),
        1 => writeln!(output, "{name}: 1 finding: {}", advice(&checked.report)),
        count => writeln!(output, "{name}: {count} findings: {}", advice(&checked.report)),
    }
}

/// What is said of a volume with a fatal finding.
pub(super) const NOT_REPAIRABLE: &str =
    "nothing is left to repair it from: copy what can be read (cairn rescue)";

/// What can be done about findings.
fn advice(report: &Report) -> String {
    let has = |severity| report.counts.iter().any(|(kind, _)| kind.severity == severity);
    if let Some(why) = &report.no_repair {
        return format!("--repair does not mend this volume: {why}");
    }
    if has(Severity::Fatal) {
        return NOT_REPAIRABLE.into();
    }
    let losing = report.counts.iter().filter(|(kind, _)| kind.severity == Severity::Losing);
    let losing: u64 = losing.map(|(_, count)| count).sum();
    let lists = "and lists each loss before it asks";
    match (losing, report.count().saturating_sub(losing)) {
        (0, _) => "--repair mends what loses nothing".into(),
        (_, 0) => format!(
            "--repair=all mends what may lose something, {lists}; try --repair first: it mends \
             what only seems lost (--repair -n lists it)"
        ),
        // Which others depend on these, the plan of a repair finds out.
        (_, others) => format!(
            "--repair=all mends all, {lists}; {losing} of them may lose something, {others} lose \
             nothing; try --repair first: it mends what does not depend on a loss, and what only \
             seems lost (--repair -n lists it)"
        ),
    }
}

pub(super) fn document(name: &[u8], checked: &Checked) -> Json {
    let Report { findings, counts, usage, recovered, cancelled, no_repair, in_use } =
        &checked.report;
    let counts: json::Object =
        counts.iter().map(|(kind, count)| (kind.code.to_owned(), (*count).into())).collect();
    let mut object = json::Object::new();
    json::insert_name(&mut object, "image", name);
    let rest = json!({
        "type": checked.format.to_string(),
        "clean": checked.report.count() == 0,
        "status": checked.report.exit_status().code(),
        "cancelled": cancelled,
        "recovered": recovered,
        "no_repair": no_repair,
        "in_use": in_use,
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
        "counts": counts,
        "files": usage.files,
        "files_most": usage.files_most,
        "directories": usage.directories,
        "fragmented": usage.fragmented,
        "blocks": usage.blocks,
        "blocks_most": usage.blocks_most,
        "block_size": usage.block_size,
    });
    if let Json::Object(rest) = rest {
        object.extend(rest);
    }
    Json::Object(object)
}

pub(super) fn finding(finding: &Finding) -> Json {
    json!({
        "code": finding.kind.code,
        "severity": finding.kind.severity.name(),
        "place": place(&finding.place),
        "stored": finding.stored.as_ref().map(value),
        "computed": finding.computed.as_ref().map(value),
        "meaning": finding.kind.meaning,
        "repair": finding.kind.repair,
    })
}

fn value(value: &Value) -> Json {
    match value {
        Value::Number(number) => (*number).into(),
        other => other.to_string().into(),
    }
}

/// The known parts of a place.
pub(super) fn place(place: &Place) -> Json {
    let mut object = json::Object::new();
    let numbers = [
        ("group", place.group),
        ("segment", place.segment),
        ("inode", place.inode),
        ("node", place.node),
        ("file_block", place.file_block),
        ("block", place.block),
        ("offset", place.offset),
        ("owner", place.owner),
    ];
    for (key, number) in numbers {
        if let Some(number) = number {
            object.insert(key.into(), number.into());
        }
    }
    if let Some(field) = place.field {
        object.insert("field".into(), field.into());
    }
    for (key, name) in [("name", &place.name), ("path", &place.path)] {
        if let Some(name) = name {
            json::insert_name(&mut object, key, name);
        }
    }
    Json::Object(object)
}
