//! The text form: a table for each section, then goals and notes.

use std::fmt::Write;

use super::figure::figure;
use crate::about::Proposed;
use crate::compare::Change;
use crate::goal::Goal;
use crate::record::Record;
use crate::section::{Row, Section};

/// Renders a result for a terminal or a file. The tables are valid Markdown.
#[must_use]
pub fn text(record: &Record) -> String {
    let mut text = format!("{}: {}\n{}\n", record.experiment, record.question, origin(record));
    for section in &record.sections {
        let _ = write!(
            text,
            "\n{} (× is against {})\n\n{}",
            section.title,
            section.baseline,
            grid(&cells(section))
        );
    }
    if !record.proposal.is_empty() {
        let lines = proposal_cells(&record.proposal);
        let _ = write!(text, "\nBeside the proposal for Linux\n\n{}", grid(&lines));
    }
    if !record.goals.is_empty() {
        let _ = write!(text, "\nGoals\n\n{}", grid(&goal_cells(&record.goals)));
    }
    if !record.notes.is_empty() {
        text.push_str("\nNotes\n");
        for note in &record.notes {
            let _ = writeln!(text, "- {note}");
        }
    }
    text
}

/// The machine, the version and the command.
pub(super) fn origin(record: &Record) -> String {
    format!(
        "{}; {}; {} repetitions, {:.0} s; {}",
        machine(record),
        record.started,
        record.repetitions,
        record.seconds,
        record.command,
    )
}

/// The machine and the version.
pub(super) fn machine(record: &Record) -> String {
    let machine = &record.machine;
    format!(
        "{}, {} cores, {} MiB, Linux {}, load {:.1}; cairn {} ({} build)",
        machine.cpu,
        machine.cores,
        machine.memory_bytes >> 20,
        machine.kernel,
        machine.load,
        record.version,
        record.build,
    )
}

/// The headings, then a line for each row and subject.
pub(super) fn cells(section: &Section) -> Vec<Vec<String>> {
    let primary = section.metrics.iter().position(|metric| metric.name == section.primary);
    let mut headings = vec!["work".to_owned(), "subject".to_owned()];
    for (index, metric) in section.metrics.iter().enumerate() {
        headings.push(metric.heading.clone());
        if Some(index) == primary {
            headings.extend(["min–max".to_owned(), "×".to_owned()]);
        }
    }
    let mut lines = vec![headings];
    let mut last = "";
    for row in &section.rows {
        let name = if row.row == last { "" } else { row.row.as_str() };
        lines.push(line(section, row, name, primary));
        last = &row.row;
    }
    lines
}

fn line(section: &Section, row: &Row, name: &str, primary: Option<usize>) -> Vec<String> {
    let mut line = vec![name.to_owned(), row.subject.clone()];
    for (index, metric) in section.metrics.iter().enumerate() {
        let value = row.values.get(&metric.name);
        line.push(value.map_or(String::new(), |value| figure(value.median)));
        if Some(index) == primary {
            line.push(value.map_or(String::new(), |value| {
                format!("{}–{}", figure(value.min), figure(value.max))
            }));
            line.push(row.ratio.as_ref().map_or(String::new(), |ratio| figure(ratio.median)));
        }
    }
    line
}

/// The columns verdict, goal, target and measured.
pub(super) fn goal_cells(goals: &[Goal]) -> Vec<Vec<String>> {
    let mut lines = vec![["goal", "target", "measured", "verdict"].map(str::to_owned).to_vec()];
    for goal in goals {
        lines.push(vec![
            goal.text.clone(),
            format!("{} {}", goal.relation.sign(), figure(goal.target)),
            goal.measured.map_or("-".to_owned(), figure),
            goal.verdict.words().to_owned(),
        ]);
    }
    lines
}

/// The proposal's figures and the measured ones.
pub(super) fn proposal_cells(proposal: &[Proposed]) -> Vec<Vec<String>> {
    let mut lines = vec![["figure", "proposal", "measured"].map(str::to_owned).to_vec()];
    for one in proposal {
        let measured = one.measured.map_or("-".to_owned(), figure);
        lines.push(vec![one.text.clone(), figure(one.proposed), measured]);
    }
    lines
}

/// Renders what changed since an earlier result.
#[must_use]
pub fn changes(found: &[Change]) -> String {
    if found.is_empty() {
        return format!("\n{UNCHANGED}\n");
    }
    format!("\n{CHANGED}\n\n{}", grid(&change_cells(found)))
}

pub(super) const UNCHANGED: &str = "Nothing changed beyond noise.";
pub(super) const CHANGED: &str = "Changed since the earlier result";

/// The columns of a list of changes.
pub(super) fn change_cells(found: &[Change]) -> Vec<Vec<String>> {
    let headings =
        ["experiment", "work", "subject", "figure", "before", "after", "÷", "99 % of noise", ""];
    let mut lines = vec![headings.map(str::to_owned).to_vec()];
    for change in found {
        let interval = change.interval.map_or("one sample".to_owned(), |(low, high)| {
            format!("{}–{}", figure(low), figure(high))
        });
        lines.push(vec![
            change.experiment.clone(),
            change.row.clone(),
            change.subject.clone(),
            change.metric.clone(),
            figure(change.before),
            figure(change.after),
            figure(change.ratio),
            interval,
            if change.better { "better" } else { "worse" }.to_owned(),
        ]);
    }
    lines
}

/// A Markdown table with aligned columns. The first line is the heading; numbers are flush right.
fn grid(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0).max(1)).collect();
    let right: Vec<bool> = (0..columns).map(|column| is_numeric(lines, column)).collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        for ((cell, width), right) in line.iter().zip(&widths).zip(&right) {
            let _ = if *right {
                write!(text, "| {cell:>width$} ")
            } else {
                write!(text, "| {cell:<width$} ")
            };
        }
        text.push_str("|\n");
        if index == 0 {
            for (width, right) in widths.iter().zip(&right) {
                let _ =
                    write!(text, "|{}{}", "-".repeat(width + 1), if *right { ":" } else { "-" });
            }
            text.push_str("|\n");
        }
    }
    text
}

fn is_numeric(lines: &[Vec<String>], column: usize) -> bool {
    let mut cells =
        lines.iter().skip(1).filter_map(|line| line.get(column)).filter(|cell| !cell.is_empty());
    cells.all(|cell| cell.chars().all(|c| c.is_ascii_digit() || ".,-–≥≤< ".contains(c)))
}
