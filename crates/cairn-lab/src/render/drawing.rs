//! Drawings of boxes and arrows as SVG.

use std::fmt::Write;

use super::markup::escape;
use crate::about::{Drawing, Shape, Tone};

const CELL: u32 = 10;
const WIDTH: u32 = 96;
/// Height of a line of text.
const LINE: u32 = 14;

/// Draws it. `id` is not used twice in a page.
pub(super) fn svg(drawing: &Drawing, id: &str) -> String {
    let (width, height) = (WIDTH * CELL, drawing.height * CELL);
    let head = format!("{}-head", escape(id));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<defs><marker id=\"{head}\" viewBox=\"0 0 8 \
         8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path \
         d=\"M0 0 L8 4 L0 8 z\" fill=\"#334155\"/></marker></defs>\n"
    );
    for shape in drawing.shapes {
        match *shape {
            Shape::Box(x, y, w, h, tone, text) => boxed(&mut svg, (x, y, w, h), tone, text),
            Shape::Arrow((x1, y1), (x2, y2)) => {
                let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(|at| at * CELL);
                let _ = writeln!(
                    svg,
                    "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"#334155\" \
                     marker-end=\"url(#{head})\"/>"
                );
            }
            Shape::Text(x, y, text) => {
                let (x, y, text) = (x * CELL, y * CELL, escape(text));
                let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"#475569\">{text}</text>");
            }
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn boxed(svg: &mut String, place: (u32, u32, u32, u32), tone: Tone, text: &str) {
    let (fill, stroke) = match tone {
        Tone::Plain => ("#eef2f6", "#94a3b8"),
        Tone::New => ("#dbeafe", "#2563eb"),
        Tone::Cost => ("#fee2e2", "#dc2626"),
    };
    let (x, y, w, h) = (place.0 * CELL, place.1 * CELL, place.2 * CELL, place.3 * CELL);
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"3\" fill=\"{fill}\" \
         stroke=\"{stroke}\"/>"
    );
    let lines = text.lines().count() as u32;
    let middle = x + w / 2;
    for (number, line) in (0..).zip(text.lines()) {
        let base = y + (h + LINE * number * 2 + 10).saturating_sub(LINE * (lines - 1)) / 2;
        let line = escape(line);
        let _ =
            writeln!(svg, "<text x=\"{middle}\" y=\"{base}\" text-anchor=\"middle\">{line}</text>");
    }
}
