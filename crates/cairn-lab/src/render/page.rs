//! The HTML form: a page without external resources, well-formed as XML too.

use std::fmt::Write;

use super::markup::escape;
use super::table::{cells, goal_cells, proposal_cells};
use super::{chart, drawing, lines, table};
use crate::compare::Change;
use crate::experiments;
use crate::goal::Verdict;
use crate::record::Record;

const STYLE: &str = "\
body { font: 15px/1.5 sans-serif; max-width: 1080px; margin: 2em auto; padding: 0 1em; color: \
#16202a; }
h1 { margin-bottom: 0; } .origin { color: #5b6770; font-size: 13px; }
table { border-collapse: collapse; font-size: 13px; margin: 1em 0; }
th, td { padding: 2px 9px; border-bottom: 1px solid #dde3e8; text-align: right; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
.met { color: #047857; } .not-met { color: #b91c1c; } .not-measured { color: #6b7280; }
svg { width: 100%; height: auto; } code { background: #f1f4f6; padding: 1px 4px; }
";

/// Renders a page for a browser: of one result, or of several with a summary. `changes`: since an
/// earlier result.
#[must_use]
pub fn html(records: &[Record], changes: Option<&[Change]>) -> String {
    let title = match records {
        [record] => escape(&record.experiment),
        _ => "the improvements of the write path".to_owned(),
    };
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>cairn lab: \
         {title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n"
    );
    if records.len() > 1 {
        summary(&mut page, records);
    }
    if let Some(changes) = changes {
        changed(&mut page, changes);
    }
    records.iter().for_each(|record| one(&mut page, record));
    page.push_str("</body>\n</html>\n");
    page
}

/// What was measured where, and how many goals of each result are met.
fn summary(page: &mut String, records: &[Record]) {
    page.push_str("<h1>The improvements of the write path</h1>\n");
    page.push_str("<ul>\n");
    for record in records {
        let met = record.goals.iter().filter(|goal| goal.verdict == Verdict::Met).count();
        let judged = record
            .goals
            .iter()
            .filter(|goal| matches!(goal.verdict, Verdict::Met | Verdict::NotMet))
            .count();
        let verdict = match judged {
            0 => "no verdicts: this scale is too short for them".to_owned(),
            _ => format!("{met} of {judged} goals are met"),
        };
        let name = escape(&record.experiment);
        let _ = writeln!(
            page,
            "<li><a href=\"#{name}\">{name}</a>: {} {verdict}</li>",
            escape(&record.question)
        );
    }
    page.push_str("</ul>\n");
    if let Some(record) = records.first() {
        let _ = writeln!(page, "<p class=\"origin\">{}</p>", escape(&table::machine(record)));
    }
}

fn changed(page: &mut String, changes: &[Change]) {
    if changes.is_empty() {
        let _ = writeln!(page, "<p>{}</p>", table::UNCHANGED);
        return;
    }
    let _ = writeln!(page, "<h2>{}</h2>", table::CHANGED);
    rows(page, &table::change_cells(changes), |index| {
        let better = changes.get(index).is_some_and(|change| change.better);
        format!(" class=\"{}\"", if better { "met" } else { "not-met" })
    });
}

fn one(page: &mut String, record: &Record) {
    let name = escape(&record.experiment);
    let _ = write!(
        page,
        "<h1 id=\"{name}\">{name}</h1>\n<p>{}</p>\n<p class=\"origin\">{}</p>\n",
        escape(&record.question),
        escape(&table::origin(record)),
    );
    if let Some(about) = experiments::find(&record.experiment).and_then(|found| found.about) {
        page.push_str("<h2>How it works</h2>\n<ul>\n");
        for line in about.lines {
            let _ = writeln!(page, "<li>{}</li>", escape(line));
        }
        page.push_str("</ul>\n");
        page.push_str(&drawing::svg(&about.drawing, &record.experiment));
    }
    if !record.proposal.is_empty() {
        page.push_str("<h2>Beside the proposal for Linux</h2>\n");
        rows(page, &proposal_cells(&record.proposal), |_| String::new());
    }
    goals(page, record);
    for section in &record.sections {
        let _ = writeln!(
            page,
            "<h2 id=\"{name}-{}\">{}</h2>",
            escape(&section.id),
            escape(&section.title)
        );
        page.push_str(&match &section.axis {
            Some(axis) => lines::svg(section, axis),
            None => chart::svg(section),
        });
        let _ = writeln!(page, "<p>× is against <code>{}</code>.</p>", escape(&section.baseline));
        rows(page, &cells(section), |_| String::new());
    }
    notes(page, record);
}

fn goals(page: &mut String, record: &Record) {
    if record.goals.is_empty() {
        return;
    }
    page.push_str("<h2>Goals</h2>\n");
    rows(page, &goal_cells(&record.goals), |index| {
        let class = record.goals.get(index).map_or("", |goal| match goal.verdict {
            Verdict::Met => "met",
            Verdict::NotMet => "not-met",
            Verdict::NotMeasured | Verdict::NotJudged => "not-measured",
        });
        format!(" class=\"{class}\"")
    });
}

fn notes(page: &mut String, record: &Record) {
    if record.notes.is_empty() {
        return;
    }
    page.push_str("<h2>Notes</h2>\n<ul>\n");
    for note in &record.notes {
        let _ = writeln!(page, "<li>{}</li>", escape(note));
    }
    page.push_str("</ul>\n");
}

/// Renders rows of a table. `attributes` gives the attributes of a row.
fn rows(page: &mut String, cells: &[Vec<String>], attributes: impl Fn(usize) -> String) {
    page.push_str("<table>\n");
    for (index, line) in cells.iter().enumerate() {
        let tag = if index == 0 { "th" } else { "td" };
        let attributes = index.checked_sub(1).map_or(String::new(), &attributes);
        let _ = write!(page, "<tr{attributes}>");
        for cell in line {
            let _ = write!(page, "<{tag}>{}</{tag}>", escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}
