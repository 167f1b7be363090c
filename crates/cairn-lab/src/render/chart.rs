//! Bar charts as SVG: a group of bars for each row, a bar for each subject, the median as text,
//! minimum and maximum as a whisker.

use std::fmt::Write;

use super::figure::figure;
use super::markup::escape;
use crate::section::{Better, Section};
use crate::statistics::Spread;

const COLOURS: [&str; 6] = ["#9aa5b1", "#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626"];
pub(super) const WIDTH: f64 = 960.0;
const LABELS: f64 = 230.0;
/// Width of the text behind the longest bar.
const FIGURES: f64 = 90.0;
const BAR: f64 = 13.0;
const GAP: f64 = 9.0;
pub(super) const LEGEND: f64 = 26.0;

/// Draws the primary metric of a section.
pub(super) fn svg(section: &Section) -> String {
    let groups = section.row_names();
    let of = |row: &str, subject: &str| section.get(row, subject)?.values.get(&section.primary);
    let longest = section
        .rows
        .iter()
        .filter_map(|row| row.values.get(&section.primary))
        .map(|spread| spread.max);
    let longest = longest.fold(f64::MIN_POSITIVE, f64::max);
    let mut body = legend(section);
    let mut y = LEGEND;
    for row in groups {
        let bars: Vec<(usize, &Spread)> = section
            .subjects
            .iter()
            .enumerate()
            .filter_map(|(index, subject)| Some((index, of(row, subject)?)))
            .collect();
        let middle = y + bars.len() as f64 * BAR / 2.0 + 4.0;
        let (x, label) = (LABELS - 8.0, escape(row));
        let _ =
            writeln!(body, "<text x=\"{x}\" y=\"{middle:.1}\" text-anchor=\"end\">{label}</text>");
        for (index, spread) in bars {
            bar(&mut body, y, colour(index), spread, longest);
            y += BAR;
        }
        y += GAP;
    }
    let title = escape(&section.title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y:.0}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"11\"><title>{title}</title>\n{body}</svg>\n"
    )
}

pub(super) fn colour(subject: usize) -> &'static str {
    COLOURS[subject % COLOURS.len()]
}

pub(super) fn legend(section: &Section) -> String {
    let metric = section.metrics.iter().find(|metric| metric.name == section.primary);
    let better = match metric.map(|metric| metric.better) {
        Some(Better::Lower) => "less is better",
        _ => "more is better",
    };
    let heading = metric.map_or("", |metric| metric.heading.as_str());
    let mut text = format!("<text x=\"0\" y=\"12\">{} ({better})</text>\n", escape(heading));
    let mut x = LABELS;
    for (index, subject) in section.subjects.iter().enumerate() {
        let (fill, after, label) = (colour(index), x + 14.0, escape(subject));
        let _ = writeln!(
            text,
            "<rect x=\"{x:.0}\" y=\"3\" width=\"10\" height=\"10\" fill=\"{fill}\"/>"
        );
        let _ = writeln!(text, "<text x=\"{after:.0}\" y=\"12\">{label}</text>");
        x = after + 7.0 * subject.chars().count() as f64 + 14.0;
    }
    text
}

fn bar(text: &mut String, y: f64, fill: &str, spread: &Spread, longest: f64) {
    let at = |value: f64| LABELS + (WIDTH - LABELS - FIGURES) * (value / longest).clamp(0.0, 1.0);
    let (end, low, high) = (at(spread.median), at(spread.min), at(spread.max));
    let (width, height, middle) = (end - LABELS, BAR - 2.0, y + (BAR - 2.0) / 2.0);
    let _ = writeln!(
        text,
        "<rect x=\"{LABELS}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"{fill}\"/>"
    );
    let _ = writeln!(
        text,
        "<line x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" \
         stroke=\"#111\"/>"
    );
    let (x, baseline, value) = (high.max(end) + 5.0, y + BAR - 3.0, figure(spread.median));
    let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{baseline:.1}\">{value}</text>");
}
