//! One table of a result: rows and subjects, each with figures over the repetitions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::statistics::Spread;

/// Whether high or low values of a metric are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// A kind of figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Key in [`Row::values`].
    pub(crate) name: String,
    /// Heading in tables, with the unit.
    pub(crate) heading: String,
    /// Whether high or low values are good.
    pub(crate) better: Better,
}

impl Metric {
    /// A metric of which high values are good.
    #[must_use]
    pub(crate) fn higher(name: &str, heading: &str) -> Self {
        Self { name: name.into(), heading: heading.into(), better: Better::Higher }
    }

    /// A metric of which low values are good.
    #[must_use]
    pub(crate) fn lower(name: &str, heading: &str) -> Self {
        Self { name: name.into(), heading: heading.into(), better: Better::Lower }
    }
}

/// The figures of one subject in one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The work.
    pub(crate) row: String,
    /// The subject: a mount option or a program.
    pub(crate) subject: String,
    /// The section's primary metric relative to its baseline subject in the same row.
    pub(crate) ratio: Option<Spread>,
    /// Figures by the metric's name. A metric that does not apply is absent.
    pub(crate) values: BTreeMap<String, Spread>,
}

/// A known result to be shown in a chart of lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// Where on the axis.
    pub(crate) at: f64,
    /// The primary metric there.
    pub(crate) value: f64,
    /// The subject whose color it gets.
    pub(crate) subject: String,
    /// What it is.
    pub(crate) label: String,
}

/// A quantity that differs from row to row: the section's chart has lines instead of bars.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Axis {
    /// The quantity, with its unit.
    pub(crate) heading: String,
    /// Its value in each row.
    pub(crate) at: BTreeMap<String, f64>,
    /// Known results of others.
    pub(crate) marks: Vec<Mark>,
}

/// A table, whose figures were measured interleaved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Stable key.
    pub(crate) id: String,
    /// Heading.
    pub(crate) title: String,
    /// The metric of charts and ratios.
    pub(crate) primary: String,
    /// The subject that ratios refer to.
    pub(crate) baseline: String,
    /// Subjects in order.
    pub(crate) subjects: Vec<String>,
    /// The metrics, in the order of columns.
    pub(crate) metrics: Vec<Metric>,
    /// The rows, each with the subjects in order.
    pub(crate) rows: Vec<Row>,
    /// What differs from row to row, if it is a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) axis: Option<Axis>,
}

impl Section {
    /// The figures of a subject in a row.
    #[must_use]
    pub(crate) fn get(&self, row: &str, subject: &str) -> Option<&Row> {
        self.rows.iter().find(|line| line.row == row && line.subject == subject)
    }

    /// The median of a metric.
    #[must_use]
    pub(crate) fn median(&self, row: &str, subject: &str, metric: &str) -> Option<f64> {
        Some(self.get(row, subject)?.values.get(metric)?.median)
    }

    /// The median ratio of a subject's metric to another subject's in the same row.
    #[must_use]
    pub(crate) fn ratio(&self, row: &str, metric: &str, subject: &str, base: &str) -> Option<f64> {
        let own = self.get(row, subject)?.values.get(metric)?;
        Some(own.ratio_to(self.get(row, base)?.values.get(metric)?)?.median)
    }

    /// The medians of a subject over the axis, by rising position.
    #[must_use]
    pub(crate) fn line(&self, subject: &str, metric: &str) -> Vec<(f64, f64)> {
        let Some(axis) = &self.axis else { return Vec::new() };
        let mut points: Vec<(f64, f64)> = axis
            .at
            .iter()
            .filter_map(|(row, at)| Some((*at, self.median(row, subject, metric)?)))
            .collect();
        points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        points
    }

    /// Names of the rows, in order, each once.
    #[must_use]
    pub(crate) fn row_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !names.contains(&row.row.as_str()) {
                names.push(&row.row);
            }
        }
        names
    }
}

type Samples = BTreeMap<String, Vec<f64>>;

/// Collects the samples of a [`Section`].
#[derive(Debug)]
pub(crate) struct Builder {
    section: Section,
    rows: Vec<String>,
    samples: BTreeMap<(usize, usize), Samples>,
}

impl Builder {
    /// Creates an empty table. The first metric is the primary one, the first subject the baseline.
    ///
    /// # Panics
    /// If there are no subjects or no metrics.
    #[must_use]
    pub(crate) fn new(id: &str, title: &str, subjects: &[&str], metrics: Vec<Metric>) -> Self {
        let section = Section {
            id: id.into(),
            title: title.into(),
            primary: metrics.first().expect("a metric").name.clone(),
            baseline: (*subjects.first().expect("a subject")).into(),
            subjects: subjects.iter().map(ToString::to_string).collect(),
            metrics,
            rows: Vec::new(),
            axis: None,
        };
        Self { section, rows: Vec::new(), samples: BTreeMap::new() }
    }

    /// Adds one repetition of a subject in a row.
    ///
    /// # Panics
    /// If the subject or a metric was not declared.
    pub(crate) fn add(&mut self, row: &str, subject: &str, figures: &[(&str, f64)]) {
        let subjects = &self.section.subjects;
        let subject =
            subjects.iter().position(|known| known == subject).expect("a declared subject");
        let row = self.rows.iter().position(|known| known == row).unwrap_or_else(|| {
            self.rows.push(row.into());
            self.rows.len() - 1
        });
        let samples = self.samples.entry((row, subject)).or_default();
        for (metric, value) in figures {
            assert!(
                self.section.metrics.iter().any(|known| known.name == *metric),
                "undeclared metric {metric}"
            );
            samples.entry((*metric).into()).or_default().push(*value);
        }
    }

    /// The finished table.
    #[must_use]
    pub(crate) fn finish(self) -> Section {
        let Self { mut section, rows, samples } = self;
        for ((row, subject), samples) in samples {
            let values = samples
                .into_iter()
                .filter_map(|(name, samples)| Some((name, Spread::of(&samples)?)));
            section.rows.push(Row {
                row: rows[row].clone(),
                subject: section.subjects[subject].clone(),
                ratio: None,
                values: values.collect(),
            });
        }
        let ratios: Vec<Option<Spread>> =
            section.rows.iter().map(|row| ratio_of(&section, row)).collect();
        for (row, ratio) in section.rows.iter_mut().zip(ratios) {
            row.ratio = ratio;
        }
        section
    }
}

fn ratio_of(section: &Section, row: &Row) -> Option<Spread> {
    if row.subject == section.baseline {
        return None;
    }
    let base = section.get(&row.row, &section.baseline)?;
    row.values.get(&section.primary)?.ratio_to(base.values.get(&section.primary)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Section {
        let metrics = vec![Metric::higher("speed", "MiB/s"), Metric::lower("calls", "calls")];
        let mut builder = Builder::new("s", "S", &["off", "on"], metrics);
        for repetition in 1..=5 {
            let speed = f64::from(repetition);
            // The order of measurement changes, and the order of the table does not.
            builder.add("a", "on", &[("speed", 3.0 * speed), ("calls", 1.0)]);
            builder.add("a", "off", &[("speed", speed)]);
            builder.add("b", "on", &[("speed", 1.0)]);
        }
        builder.finish()
    }

    #[test]
    fn rows_and_subjects_keep_their_order() {
        let section = section();
        let lines: Vec<_> =
            section.rows.iter().map(|row| (row.row.as_str(), row.subject.as_str())).collect();
        assert_eq!(lines, [("a", "off"), ("a", "on"), ("b", "on")]);
        assert_eq!(section.row_names(), ["a", "b"]);
    }

    #[test]
    fn ratios_refer_to_the_baseline() {
        let section = section();
        assert_eq!(section.get("a", "on").unwrap().ratio.as_ref().unwrap().median, 3.0);
        assert_eq!(section.get("a", "off").unwrap().ratio, None);
        assert_eq!(section.get("b", "on").unwrap().ratio, None, "nothing to compare with");
        assert_eq!(section.ratio("a", "speed", "off", "on"), Some(1.0 / 3.0));
        assert_eq!(section.median("a", "off", "calls"), None);
    }

    #[test]
    #[should_panic(expected = "undeclared metric")]
    fn a_metric_must_be_declared() {
        Builder::new("s", "S", &["x"], vec![Metric::higher("speed", "")]).add(
            "a",
            "x",
            &[("sped", 1.0)],
        );
    }
}
