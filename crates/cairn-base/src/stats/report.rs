//! [`Report`]: counters as an ordered tree of named sections and fields.
//!
//! Every layer puts its own counters into a report; the layers above put that under a name of their
//! choice. A report is a copy: it holds no lock and does not change. It serialises to a JSON object
//! with the names as keys, in order.

use std::fmt;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Counter, Gauge, Histogram, Summary};

/// The value of a name.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A count, or a quantity in the unit that the name ends with.
    U64(u64),
    /// A ratio.
    F64(f64),
    /// Words.
    Text(String),
    /// Yes or no.
    Bool(bool),
    /// Lines of text.
    List(Vec<String>),
    /// Names below this one.
    Section(Report),
}

/// An ordered tree of named values. Names have neither dots nor blanks;
/// `get("journal.transactions")` walks down.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report(Vec<(String, Value)>);

impl Report {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Puts a value under a name, in the place of what was there.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) -> &mut Self {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
        self
    }

    /// As [`Report::set`], for chains.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.set(name, value);
        self
    }

    /// The section of this name; made if there is none.
    pub fn section(&mut self, name: &str) -> &mut Self {
        let place = self
            .0
            .iter()
            .position(|(known, value)| known == name && matches!(value, Value::Section(_)));
        let place = place.unwrap_or_else(|| {
            self.0.retain(|(known, _)| known != name);
            self.0.push((name.to_owned(), Value::Section(Self::new())));
            self.0.len() - 1
        });
        match &mut self.0[place].1 {
            Value::Section(section) => section,
            _ => unreachable!("it was found or made as a section"),
        }
    }

    /// Takes in all values of another report: sections are merged, other values replaced.
    pub fn merge(&mut self, other: Self) {
        for (name, value) in other.0 {
            match value {
                Value::Section(section) => self.section(&name).merge(section),
                value => drop(self.set(&name, value)),
            }
        }
    }

    /// What stands at a path, its names separated by dots.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Value> {
        let (name, rest) =
            path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        match (rest, value) {
            (None, value) => Some(value),
            (Some(rest), Value::Section(section)) => section.get(rest),
            _ => None,
        }
    }

    /// The whole number at a path.
    #[must_use]
    pub fn u64(&self, path: &str) -> Option<u64> {
        match self.get(path)? {
            Value::U64(value) => Some(*value),
            _ => None,
        }
    }

    /// The number at a path.
    #[must_use]
    pub fn f64(&self, path: &str) -> Option<f64> {
        match self.get(path)? {
            Value::U64(value) => Some(*value as f64),
            Value::F64(value) => Some(*value),
            _ => None,
        }
    }

    /// The words at a path.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        match self.get(path)? {
            Value::Text(value) => Some(value),
            _ => None,
        }
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// True if it has no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::U64(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::U64(value.into())
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::U64(value as u64)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::F64(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<String>> for Value {
    fn from(value: Vec<String>) -> Self {
        Self::List(value)
    }
}

impl From<Report> for Value {
    fn from(value: Report) -> Self {
        Self::Section(value)
    }
}

impl From<&Counter> for Value {
    fn from(value: &Counter) -> Self {
        Self::U64(value.get())
    }
}

impl From<&Gauge> for Value {
    /// Two threads may be between their steps: below zero counts as zero.
    fn from(value: &Gauge) -> Self {
        Self::U64(value.get().try_into().unwrap_or(0))
    }
}

impl From<Summary> for Value {
    fn from(summary: Summary) -> Self {
        let Summary { count, total, p50, p99, max } = summary;
        let section = Report::new().with("count", count).with("total", total);
        section.with("p50", p50).with("p99", p99).with("max", max).into()
    }
}

impl From<&Histogram> for Value {
    /// A section with `count`, `total`, `p50`, `p99`, `max` and, for the difference of two reports,
    /// `buckets`: values by the next number of the form 2^n - 1, without the empty ones.
    fn from(histogram: &Histogram) -> Self {
        let powers = histogram.powers().into_iter();
        let buckets = powers.map(|(bound, count)| (bound.to_string(), Self::U64(count))).collect();
        match Self::from(histogram.summary()) {
            Self::Section(figures) => figures.with("buckets", Report(buckets)).into(),
            other => other,
        }
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::U64(value) => serializer.serialize_u64(*value),
            Self::F64(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::List(value) => value.serialize(serializer),
            Self::Section(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Report {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Section(report) => Ok(report),
            _ => Err(D::Error::custom("a report is an object")),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a string, a truth value, a list of strings or an object of them")
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::U64(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::F64(value))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut lines = Vec::new();
        while let Some(line) = list.next_element()? {
            lines.push(line);
        }
        Ok(Value::List(lines))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut report = Report::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            report.set(&name, value);
        }
        Ok(Value::Section(report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Report {
        let (counter, histogram) = (Counter::new(), Histogram::new());
        counter.add(3);
        histogram.record(7);
        let mut report = Report::new().with("format", "ext4");
        report.section("journal").set("transactions", &counter).set("commit_ns", &histogram);
        report.section("cache").set("hit_ratio", 0.5).set("mode", true);
        report
    }

    #[test]
    fn paths_lead_to_values() {
        let report = sample();
        assert_eq!(report.u64("journal.transactions"), Some(3));
        assert_eq!(report.u64("journal.commit_ns.max"), Some(7));
        assert_eq!(report.f64("cache.hit_ratio"), Some(0.5));
        assert_eq!(report.f64("journal.transactions"), Some(3.0));
        assert_eq!(report.text("format"), Some("ext4"));
        assert_eq!(report.get("format.x"), None);
        assert_eq!(report.get("none"), None);
        assert_eq!(report.u64("journal"), None);
    }

    #[test]
    fn merging_keeps_the_order_and_replaces_values() {
        let mut report = sample();
        let mut other = Report::new().with("format", "f2fs");
        other.section("journal").set("transactions", 4_u64).set("free_blocks", 9_u64);
        other.section("fuse").set("requests", 1_u64);
        report.merge(other);
        let names: Vec<&str> = report.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["format", "journal", "cache", "fuse"]);
        assert_eq!(report.u64("journal.transactions"), Some(4));
        assert_eq!(report.u64("journal.free_blocks"), Some(9));
        assert_eq!(report.u64("journal.commit_ns.count"), Some(1));
    }

    #[test]
    fn a_value_makes_way_for_a_section_and_back() {
        let mut report = Report::new().with("x", 1_u64);
        report.section("x").set("y", 2_u64);
        assert_eq!(report.u64("x.y"), Some(2));
        report.set("x", 3_u64);
        assert_eq!((report.u64("x"), report.get("x.y")), (Some(3), None));
    }

    #[test]
    fn a_gauge_between_two_steps_is_not_negative() {
        let gauge = Gauge::new();
        gauge.add(-1);
        assert_eq!(Value::from(&gauge), Value::U64(0));
    }
}
