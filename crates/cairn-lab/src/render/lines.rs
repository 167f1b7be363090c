//! Charts of lines as SVG: the primary metric of each subject over the section's axis, and known
//! results of others as rings.

use std::fmt::Write;

use super::chart::{LEGEND, WIDTH, colour, legend};
use super::figure::figure;
use super::markup::escape;
use crate::section::{Axis, Section};

const HEIGHT: f64 = 380.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 90.0;
const BOTTOM: f64 = 40.0;
/// Horizontal lines of the grid.
const GRID: u32 = 5;

/// The place of positions and values in the drawing.
struct Frame {
    low: f64,
    high: f64,
    top: f64,
}

impl Frame {
    fn x(&self, at: f64) -> f64 {
        let width = WIDTH - LEFT - RIGHT;
        let span = self.high - self.low;
        if span > 0.0 { LEFT + width * (at - self.low) / span } else { LEFT + width / 2.0 }
    }

    fn y(&self, value: f64) -> f64 {
        let height = HEIGHT - LEGEND - BOTTOM;
        HEIGHT - BOTTOM - height * value / self.top
    }
}

/// Draws the primary metric of a section over its axis.
pub(super) fn svg(section: &Section, axis: &Axis) -> String {
    let lines: Vec<Vec<(f64, f64)>> =
        section.subjects.iter().map(|subject| section.line(subject, &section.primary)).collect();
    let marks = axis.marks.iter().map(|mark| (mark.at, mark.value));
    let all: Vec<(f64, f64)> = lines.iter().flatten().copied().chain(marks).collect();
    let positions = || all.iter().map(|(at, _)| *at);
    let frame = Frame {
        low: positions().fold(f64::INFINITY, f64::min),
        high: positions().fold(f64::NEG_INFINITY, f64::max),
        top: 1.05 * all.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max),
    };
    let mut body = legend(section);
    if !all.is_empty() {
        grid(&mut body, &frame, axis);
        for (index, points) in lines.iter().enumerate() {
            line(&mut body, &frame, colour(index), points);
        }
        marked(&mut body, &frame, section, axis);
    }
    let title = escape(&section.title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"11\"><title>{title}</title>\n{body}</svg>\n"
    )
}

fn grid(text: &mut String, frame: &Frame, axis: &Axis) {
    let (left, right) = (LEFT, WIDTH - RIGHT);
    for step in 0..=GRID {
        let value = frame.top * f64::from(step) / f64::from(GRID);
        let (y, label) = (frame.y(value), figure(value));
        let _ = writeln!(
            text,
            "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
        );
        let (x, y) = (left - 6.0, y + 4.0);
        let _ = writeln!(text, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>");
    }
    let y = HEIGHT - BOTTOM + 16.0;
    for at in axis.at.values() {
        let (x, label) = (frame.x(*at), figure(*at));
        let _ =
            writeln!(text, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>");
    }
    let (x, y, heading) = (f64::midpoint(left, right), HEIGHT - 6.0, escape(&axis.heading));
    let _ = writeln!(text, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{heading}</text>");
}

fn line(text: &mut String, frame: &Frame, color: &str, points: &[(f64, f64)]) {
    let places: Vec<String> = points
        .iter()
        .map(|(at, value)| format!("{:.1},{:.1}", frame.x(*at), frame.y(*value)))
        .collect();
    let places = places.join(" ");
    let _ = writeln!(
        text,
        "<polyline points=\"{places}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>"
    );
    for (at, value) in points {
        let (x, y, label) = (frame.x(*at), frame.y(*value), figure(*value));
        let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>");
        let (x, y) = (x + 5.0, y - 4.0);
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{color}\">{label}</text>");
    }
}

fn marked(text: &mut String, frame: &Frame, section: &Section, axis: &Axis) {
    for mark in &axis.marks {
        let subject = section.subjects.iter().position(|subject| *subject == mark.subject);
        let color = colour(subject.unwrap_or_default());
        let (x, y, label) = (frame.x(mark.at), frame.y(mark.value), escape(&mark.label));
        let _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" fill=\"none\" stroke=\"{color}\" \
             stroke-width=\"2\"/>"
        );
        let (x, y) = (x + 10.0, y + 4.0);
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\">{label}</text>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::{Builder, Mark, Metric};

    fn section() -> Section {
        let mut builder = Builder::new("s", "S", &["off", "on"], vec![Metric::lower("waf", "WAF")]);
        for (row, off, on) in [("10", 20.0, 10.0), ("2", 40.0, 30.0), ("0", 80.0, 60.0)] {
            builder.add(row, "off", &[("waf", off)]);
            builder.add(row, "on", &[("waf", on)]);
        }
        let at = [("0", 0.0), ("2", 2.0), ("10", 10.0)].map(|(row, at)| (row.to_owned(), at));
        let mark = Mark { at: 2.0, value: 40.0, subject: "off".into(), label: "theirs".into() };
        let axis = Axis { heading: "d %".into(), at: at.into(), marks: vec![mark] };
        Section { axis: Some(axis), ..builder.finish() }
    }

    #[test]
    fn a_line_connects_its_points_by_position() {
        let section = section();
        assert_eq!(section.line("off", "waf"), [(0.0, 80.0), (2.0, 40.0), (10.0, 20.0)]);
        let svg = svg(&section, section.axis.as_ref().unwrap());
        assert_eq!((svg.matches("<polyline ").count(), svg.matches("<circle ").count()), (2, 7));
        // The mark lies on the point of its subject with the same figures.
        let ring = svg.lines().find(|line| line.contains("r=\"6\"")).unwrap();
        let place = ring.split(" r=").next().unwrap();
        assert_eq!(svg.matches(place).count(), 2, "{svg}");
        assert!(svg.contains(">theirs<") && svg.contains(">d %<"));
    }

    #[test]
    fn a_chart_without_figures_has_no_lines() {
        let section = Section { rows: Vec::new(), ..section() };
        let axis = Axis { heading: "d".into(), at: [].into(), marks: Vec::new() };
        assert!(!svg(&Section { axis: Some(axis.clone()), ..section }, &axis).contains("NaN"));
    }
}
