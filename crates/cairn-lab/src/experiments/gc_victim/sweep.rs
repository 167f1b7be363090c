//! `gc-sweep`: the blocks that each policy writes, over the dirty part of the file, over the
//! overprovision and over the size of sections.
//!
//! At full scale, the volume of the first table has as many sections as the proposal's. The reserve
//! and the open logs take the same share as there, and live nodes fill as many sections, which a
//! volume with fewer sections does not have. The sections are smaller, so the volume has a quarter
//! of the size.

use std::collections::BTreeMap;

use super::load::{Load, Pattern};
use super::setting::{OVERPROVISION, SEGMENT, Setting};
use super::subjects::POLICIES;
use super::{Job, OVERWRITES, measure_all, metrics};
use crate::error::Result;
use crate::experiment::{Context, Experiment, Findings};
use crate::goal::{Goal, Relation, worst};
use crate::scale::Scale;
use crate::section::{Axis, Builder, Mark, Section};

/// The entry in [`crate::experiments`].
pub(in super::super) const SWEEP: Experiment = Experiment {
    name: "gc-sweep",
    question: "How does what gc-victim measures depend on dirty pages, overprovision and sections?",
    run,
    about: None,
};

/// What the proposal measured with greedy, and with data before nodes.
const PROPOSED: [f64; 2] = [18.75, 13.3];
/// Dirty part of the file where it is not what differs.
const DIRTY: f64 = 0.01;
/// The same by the number of sections, where gc-victim's scales are compared.
const DIRTY_BY_SIZE: f64 = 0.005;

/// One table.
struct Table {
    id: &'static str,
    title: &'static str,
    heading: &'static str,
    points: Vec<Point>,
}

/// One row.
struct Point {
    at: f64,
    dirty: f64,
    setting: Setting,
    /// Blocks written, as a multiple of the file's.
    times: f64,
}

impl Point {
    fn row(&self) -> String {
        format!("{}", self.at)
    }
}

fn tables(scale: Scale) -> [Table; 4] {
    let (wide, small) = (scale.pick(254, 1017, 4068), scale.pick(254, 1017, 1017));
    let times = scale.pick(0.25, 1.0, 1.0);
    let setting = |zones: u32, overprovision, zone: u64| {
        Setting::shaped(zone * SEGMENT, zones / zone as u32, overprovision)
    };
    let percents: &[f64] =
        scale.pick(&[1.0, 5.0], &[0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0], &[1.0, 2.0, 3.0, 5.0]);
    let point = |at: f64, dirty: f64, setting: Setting| Point { at, dirty, setting, times };
    // What greedy writes grows with the time, so the proposal's figure needs its amount of work.
    let over_dirty = |at: &f64| Point {
        times: scale.pick(0.25, 2.0, OVERWRITES),
        ..point(*at, at / 100.0, setting(wide, OVERPROVISION, 1))
    };
    let over_provision = |at: &f64| point(*at, DIRTY, setting(small, *at, 1));
    let over_sections = |segments: &u64| {
        let size = ((segments * SEGMENT) >> 20) as f64;
        point(size, DIRTY, setting(wide, OVERPROVISION, *segments))
    };
    let over_number = |sections: &u32| Point {
        times: 2.0 * times,
        ..point(f64::from(*sections), DIRTY_BY_SIZE, setting(*sections, OVERPROVISION, 1))
    };
    let provisions: &[f64] = match scale {
        Scale::Quick => &[20.0],
        Scale::Default | Scale::Full => &[3.9, 5.0, 7.0, 10.0, 15.0, 20.0],
    };
    // Nearly half of 31 sections would be the reserve and the open logs, so those of 64 MiB need
    // the larger volume.
    let sections: &[u64] = scale.pick(&[2], &[1, 2, 4, 8, 16], &[1, 2, 4, 8, 16, 32]);
    let numbers: &[u32] = scale.pick(&[254], &[508, 1017, 2034], &[508, 1017, 2034, 4068]);
    [
        Table {
            id: "dirty",
            title: "WAF over the dirty part of the file",
            heading: "d: dirty part of the file, %",
            points: percents.iter().map(over_dirty).collect(),
        },
        Table {
            id: "overprovision",
            title: "WAF over the overprovision, d = 1 %",
            heading: "mkfs -o, %",
            points: provisions.iter().map(over_provision).collect(),
        },
        Table {
            id: "section",
            title: "WAF over the size of sections, d = 1 %",
            heading: "section, MiB",
            points: sections.iter().map(over_sections).collect(),
        },
        Table {
            id: "number",
            title: "WAF over the number of sections of 2 MiB, d = 0.5 %",
            heading: "sections",
            points: numbers.iter().map(over_number).collect(),
        },
    ]
}

fn run(context: &Context) -> Result<Findings> {
    let tables = tables(context.scale);
    let mut jobs = Vec::new();
    for table in &tables {
        for point in &table.points {
            let load = Load::Overwrite {
                pattern: Pattern::Uniform,
                times: point.times,
                dirty: point.dirty,
                fsync_every: None,
            };
            jobs.extend(POLICIES.map(|policy| Job {
                section: table.id,
                row: point.row(),
                policy,
                load,
                fill: None,
                setting: point.setting,
            }));
        }
    }
    context.progress.expect(jobs.len());
    let mut builders: BTreeMap<&str, Builder> = tables
        .iter()
        .map(|table| (table.id, Builder::new(table.id, table.title, &POLICIES, metrics())))
        .collect();
    for (job, figures) in measure_all(context, jobs)? {
        if let Some(builder) = builders.get_mut(job.section) {
            builder.add(&job.row, job.policy, &figures.values());
        }
    }
    let sections: Vec<Section> = tables
        .iter()
        .filter_map(|table| Some(with_axis(builders.remove(table.id)?.finish(), table)))
        .collect();
    let notes = notes(&tables, &sections);
    Ok(Findings { goals: goals(&sections), sections, notes })
}

/// Adds the axis, and to the table over d the proposal's points: d was not published, so they are
/// placed where greedy writes as much as there.
fn with_axis(section: Section, table: &Table) -> Section {
    let at = table.points.iter().map(|point| (point.row(), point.at)).collect();
    let mut section = Section {
        axis: Some(Axis { heading: table.heading.to_owned(), at, marks: Vec::new() }),
        ..section
    };
    if let Some(at) = where_greedy_is_the_proposals(&section) {
        let marks = POLICIES.iter().zip(PROPOSED).map(|(policy, value)| Mark {
            at,
            value,
            subject: (*policy).to_owned(),
            label: format!("proposal {value}"),
        });
        if let Some(axis) = &mut section.axis {
            axis.marks = marks.collect();
        }
    }
    section
}

/// The largest d at which greedy writes what the proposal measured with it. Only in the table over
/// d.
fn where_greedy_is_the_proposals(section: &Section) -> Option<f64> {
    let line = section.line(POLICIES[0], "waf");
    (section.id == "dirty").then(|| crossing(&line, PROPOSED[0])).flatten()
}

/// The largest position at which a line has this value, between its points by straight lines.
fn crossing(line: &[(f64, f64)], wanted: f64) -> Option<f64> {
    line.windows(2).rev().find_map(|pair| {
        let [(from, first), (to, last)] = *pair else { return None };
        let within = (first.min(last)..=first.max(last)).contains(&wanted) && first != last;
        within.then(|| from + (to - from) * (wanted - first) / (last - first))
    })
}

/// The value of a line at a position, between its points by straight lines.
fn value_at(line: &[(f64, f64)], at: f64) -> Option<f64> {
    line.windows(2).find_map(|pair| {
        let [(from, first), (to, last)] = *pair else { return None };
        let within = (from..=to).contains(&at) && from != to;
        within.then(|| first + (last - first) * (at - from) / (to - from))
    })
}

/// The figures where greedy writes what the proposal measured.
struct Calibrated {
    dirty: f64,
    waf: [f64; 2],
    /// Nodes moved: data_first and adaptive against greedy.
    nodes: [f64; 2],
}

fn calibrated(sections: &[Section]) -> Option<Calibrated> {
    let section = sections.iter().find(|section| section.id == "dirty")?;
    let dirty = where_greedy_is_the_proposals(section)?;
    let figure = |policy: usize, metric| value_at(&section.line(POLICIES[policy], metric), dirty);
    let greedy = figure(0, "nodes_moved")?;
    Some(Calibrated {
        dirty,
        waf: [figure(1, "waf")?, figure(2, "waf")?],
        nodes: [figure(1, "nodes_moved")? / greedy, figure(2, "nodes_moved")? / greedy],
    })
}

fn goals(sections: &[Section]) -> Vec<Goal> {
    let found = calibrated(sections);
    let found = found.as_ref();
    let all = sections.iter().flat_map(|section| {
        let names: Vec<String> = section.row_names().into_iter().map(str::to_owned).collect();
        names.into_iter().map(move |row| section.ratio(&row, "waf", POLICIES[2], POLICIES[0]))
    });
    let plenty = sections.iter().find(|section| section.id == "dirty").map(|section| {
        let line = section.line(POLICIES[2], "waf");
        line.into_iter().filter(|(at, _)| *at >= 2.0).map(|(_, waf)| waf).fold(0.0, f64::max)
    });
    vec![
        Goal::judge(
            "WAF with data_first where greedy has 18.75",
            Relation::AtMost,
            PROPOSED[1],
            found.map(|found| found.waf[0]),
        ),
        Goal::judge(
            "node blocks moved there, data_first ÷ greedy",
            Relation::AtMost,
            0.306,
            found.map(|found| found.nodes[0]),
        ),
        Goal::judge(
            "WAF with adaptive there",
            Relation::AtMost,
            PROPOSED[1],
            found.map(|found| found.waf[1]),
        ),
        Goal::judge("WAF with adaptive, d of 2 % or more", Relation::AtMost, 11.5, plenty),
        Goal::judge(
            "WAF, adaptive ÷ greedy, worst row",
            Relation::AtMost,
            1.02,
            worst(Relation::AtMost, all),
        ),
    ]
}

fn notes(tables: &[Table], sections: &[Section]) -> Vec<String> {
    let mut notes: Vec<String> = tables
        .iter()
        .filter_map(|table| {
            Some(format!(
                "{}: first row: {}",
                table.title,
                table.points.first()?.setting.describe()
            ))
        })
        .collect();
    if let Some(found) = calibrated(sections) {
        notes.push(format!(
            "Greedy has the proposal's WAF of {} at d = {:.2} % (straight lines between the rows). \
             There, data_first has {:.2} (proposal: {}) and moves {:.1} % of greedy's node blocks \
             (proposal: 30.6 %); adaptive has {:.2} and moves {:.1} %.",
            PROPOSED[0],
            found.dirty,
            found.waf[0],
            PROPOSED[1],
            100.0 * found.nodes[0],
            found.waf[1],
            100.0 * found.nodes[1],
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_between_their_points() {
        let line = [(0.0, 30.0), (1.0, 40.0), (2.0, 20.0), (4.0, 10.0)];
        assert_eq!(crossing(&line, 35.0), Some(1.25), "the largest position");
        assert_eq!(crossing(&line, 15.0), Some(3.0));
        assert_eq!(crossing(&line, 50.0), None);
        assert_eq!(value_at(&line, 3.0), Some(15.0));
        assert_eq!(value_at(&line, 5.0), None);
    }

    #[test]
    fn the_proposal_is_placed_where_greedy_has_its_figure() {
        let table = &tables(Scale::Quick)[0];
        let mut builder = Builder::new(table.id, "", &POLICIES, metrics());
        for (row, waf) in [("1", [20.0, 14.0, 12.0]), ("5", [10.0, 9.0, 8.0])] {
            for ((policy, waf), nodes) in POLICIES.iter().zip(waf).zip([8.0, 2.0, 1.0]) {
                builder.add(row, policy, &[("waf", waf), ("nodes_moved", nodes)]);
            }
        }
        let section = with_axis(builder.finish(), table);
        let marks = &section.axis.as_ref().unwrap().marks;
        assert_eq!(
            marks.iter().map(|mark| (mark.at, mark.value)).collect::<Vec<_>>(),
            [(1.5, 18.75), (1.5, 13.3)]
        );
        let found = calibrated(&[section]).unwrap();
        assert_eq!((found.waf, found.nodes), ([13.375, 11.5], [0.25, 0.125]));
    }

    #[test]
    fn the_full_sweep_has_as_many_sections_as_the_proposal() {
        let point = &tables(Scale::Full)[0].points[0];
        let (here, full) = (point.setting.utilisation(), Setting::of(Scale::Full).utilisation());
        assert!((here - full).abs() < 1e-3, "{here} {full}");
    }
}
