//! Every form contains the record's data; the page is well-formed and needs no other resource.

use crate::about::{Proposed, Shape};
use crate::goal::{Goal, Relation};
use crate::machine::Machine;
use crate::record::{Record, SCHEMA};
use crate::scale::Scale;
use crate::section::{Builder, Metric};

fn record() -> Record {
    let metrics =
        vec![Metric::higher("mib_per_s", "MiB/s"), Metric::lower("map_calls", "map calls/MiB")];
    let mut builder = Builder::new("writes", "Writes & <more>", &["off", "on"], metrics);
    for sample in [4000.0, 4321.0, 5000.0] {
        builder.add("append 1M", "off", &[("mib_per_s", 1000.0), ("map_calls", 256.0)]);
        builder.add("append 1M", "on", &[("mib_per_s", sample), ("map_calls", 0.25)]);
    }
    Record {
        schema: SCHEMA,
        experiment: "test".into(),
        question: "Is \"a\" < b?".into(),
        command: "cairn lab test".into(),
        version: "0.0.0".into(),
        build: "debug".into(),
        started: "2026-11-21T00:00:00Z".into(),
        seconds: 1.5,
        scale: Scale::Quick,
        repetitions: 3,
        machine: Machine {
            cpu: "C&A".into(),
            cores: 2,
            memory_bytes: 1 << 30,
            kernel: "6".into(),
            load: 0.0,
        },
        sections: vec![builder.finish()],
        goals: vec![
            Goal::judge("append ≥ 2.9 ×", Relation::AtLeast, 2.9, Some(4.321)),
            Goal::judge("calls", Relation::AtMost, 0.1, Some(0.25)),
            Goal::judge("mounted", Relation::AtLeast, 4.0, None),
        ],
        proposal: vec![Proposed::new("append, on ÷ off", 2.87, Some(4.321))],
        notes: vec!["no /dev/fuse <here>".into()],
    }
}

/// Parses tags as an XML parser does: names match, every element is closed, text has no bare `<` or
/// `&`. Returns the text.
fn parse(page: &str) -> Vec<String> {
    let mut rest = page.strip_prefix("<!DOCTYPE html>\n").expect("a document type");
    let (mut open, mut texts) = (Vec::new(), Vec::new());
    while let Some(at) = rest.find('<') {
        let (text, tag) = rest.split_at(at);
        check_entities(text);
        if !text.trim().is_empty() {
            assert!(!open.is_empty(), "text outside: {text}");
            texts.push(
                text.replace("&lt;", "<")
                    .replace("&gt;", ">")
                    .replace("&quot;", "\"")
                    .replace("&amp;", "&"),
            );
        }
        let end = tag.find('>').expect("an end of the tag");
        let inner = &tag[1..end];
        assert!(!inner.contains('<') && inner.matches('"').count() % 2 == 0, "{inner}");
        if let Some(name) = inner.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
        } else if !inner.ends_with('/') {
            open.push(inner.split(' ').next().unwrap().to_owned());
        }
        rest = &tag[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "left open: {open:?}");
    texts
}

fn check_entities(text: &str) {
    for (at, _) in text.match_indices('&') {
        let entity = &text[at..];
        assert!(
            ["&lt;", "&gt;", "&amp;", "&quot;"].iter().any(|known| entity.starts_with(known)),
            "{entity}"
        );
    }
}

#[test]
fn the_page_is_well_formed_and_complete() {
    let page = super::html(&[record()], None);
    let texts = parse(&page);
    let has = |wanted: &str| texts.iter().any(|text| text.contains(wanted));
    for wanted in [
        "Is \"a\" < b?",
        "C&A",
        "cairn lab test",
        "Writes & <more>",
        "no /dev/fuse <here>",
        "not measured",
    ] {
        assert!(has(wanted), "{wanted} is missing");
    }
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let page = super::html(&[record()], None);
    needs_nothing_from_outside(&page);
}

fn needs_nothing_from_outside(page: &str) {
    // Arrows refer to their heads, which are in the page.
    let references = page.replace("http://www.w3.org/2000/svg", "").replace("url(#", "");
    for outside in ["http:", "https:", "<script", "<link", "<img", "url("] {
        assert!(!references.contains(outside), "{outside}");
    }
}

#[test]
fn one_page_explains_all_improvements() {
    let records: Vec<Record> = crate::all()
        .iter()
        .filter(|experiment| experiment.is_of_the_write_path())
        .map(|experiment| Record { experiment: experiment.name.into(), ..record() })
        .collect();
    assert_eq!(records.len(), 5);
    let page = super::html(&records, None);
    let texts = parse(&page);
    needs_nothing_from_outside(&page);
    let has = |wanted: &str| texts.iter().any(|text| text.contains(wanted));
    for (experiment, record) in crate::all().iter().zip(&records) {
        assert_eq!(experiment.name, record.experiment);
        let about = experiment.about.unwrap();
        assert!(about.lines.iter().all(|line| has(line)), "{}", experiment.name);
        for shape in about.drawing.shapes {
            let (right, bottom) = match *shape {
                Shape::Box(x, y, width, height, ..) => (x + width, y + height),
                Shape::Arrow(from, to) => (from.0.max(to.0), from.1.max(to.1)),
                Shape::Text(x, y, _) => (x, y),
            };
            assert!(right <= 96 && bottom <= about.drawing.height, "{shape:?} is cut off");
        }
    }
    assert!(has("1 of 2") && has("2.87"), "goals met, and the proposal's figure");
    assert!(texts.iter().filter(|text| text.contains("C&A")).count() > 5, "the machine");
    assert_eq!(page.matches("<svg").count(), 10, "a drawing and a chart for each");
    // A quick run has no verdicts.
    let unjudged = |record: Record| Record {
        goals: record.goals.into_iter().map(Goal::without_verdict).collect(),
        ..record
    };
    let page = super::html(&records.into_iter().map(unjudged).collect::<Vec<_>>(), None);
    assert!(page.contains("no verdicts") && !page.contains("goals are met"));
}

#[test]
fn the_page_says_what_changed() {
    let (old, mut new) = (record(), record());
    let same = crate::compare::changes(&old, &new);
    let page = super::html(std::slice::from_ref(&old), Some(&same));
    assert!(parse(&page).iter().any(|text| text.contains("Nothing changed beyond noise")));
    for row in &mut new.sections[0].rows {
        for spread in row.values.values_mut() {
            let doubled: Vec<f64> = spread.samples.iter().map(|sample| 2.0 * sample).collect();
            *spread = crate::statistics::Spread::of(&doubled).unwrap();
        }
    }
    let changes = crate::compare::changes(&old, &new);
    let page = super::html(&[new], Some(&changes));
    let texts = parse(&page);
    let has = |wanted: &str| texts.iter().any(|text| text == wanted);
    assert!(has("Changed since the earlier result") && has("better") && has("worse"));
    assert!(has("8,642"), "{texts:?}");
}

#[test]
fn charts_hold_the_medians() {
    let record = record();
    let svg = super::chart::svg(&record.sections[0]);
    let texts = parse(&format!("<!DOCTYPE html>\n{svg}"));
    for wanted in ["append 1M", "1,000", "4,321", "MiB/s (more is better)", "off", "on"] {
        assert!(texts.iter().any(|text| text == wanted), "{wanted} is missing in {texts:?}");
    }
    assert_eq!(svg.matches("<line ").count(), 2, "a whisker a bar");
}

#[test]
fn the_text_shows_figures_ratios_and_verdicts() {
    let text = super::text(&record());
    let line = |needle: &str| {
        text.lines().find(|line| line.contains(needle)).unwrap_or_else(|| panic!("{text}"))
    };
    let on = line("| on ");
    for figure in ["4,321", "4,000–5,000", "4.32", "0.250"] {
        assert!(on.contains(figure), "{on}");
    }
    assert!(line("append ≥ 2.9").contains("| met"), "{text}");
    assert!(line("| calls").contains("not met"), "{text}");
    assert!(line("| mounted").contains("not measured"), "{text}");
    assert!(line("append, on ÷ off").contains("2.87"), "{text}");
}

#[test]
fn json_goes_both_ways() {
    let record = record();
    let json = serde_json::to_value(&record).unwrap();
    assert_eq!(json["sections"][0]["rows"][1]["values"]["mib_per_s"]["median"], 4321.0);
    assert_eq!(json["sections"][0]["metrics"][1]["better"], "lower");
    assert_eq!(json["goals"][1]["verdict"], "not_met");
    assert_eq!(json["scale"], "quick");
    assert_eq!(serde_json::from_value::<Record>(json).unwrap(), record);
}
