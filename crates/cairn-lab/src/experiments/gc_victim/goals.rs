//! The goals of the choice of victims.

use super::subjects::{BUFFERED, DIRECT, OTHERS, POLICIES, PROPOSAL};
use crate::goal::{Goal, Relation, worst};
use crate::section::Section;

const GREEDY: &str = POLICIES[0];
const DATA_FIRST: &str = POLICIES[1];
const ADAPTIVE: &str = POLICIES[2];

/// All of them.
pub(super) fn all(sections: &[Section]) -> Vec<Goal> {
    let find = |id: &str| sections.iter().find(|section| section.id == id);
    let proposal = find(PROPOSAL);
    let ratio = |metric: &str| proposal?.ratio(BUFFERED, metric, DATA_FIRST, GREEDY);
    let waf = |row: &str| proposal?.median(row, ADAPTIVE, "waf");
    let mut goals = vec![
        Goal::judge("d = 0.5 %: WAF, data_first ÷ greedy", Relation::AtMost, 0.8, ratio("waf")),
        Goal::judge(
            "d = 0.5 %: node blocks moved, data_first ÷ greedy",
            Relation::AtMost,
            0.31,
            ratio("nodes_moved"),
        ),
        Goal::judge("d = 0.5 %: WAF with adaptive", Relation::AtMost, 12.9, waf(BUFFERED)),
        Goal::judge("d = 0: WAF with adaptive", Relation::AtMost, 17.0, waf(DIRECT)),
    ];
    let rows = [PROPOSAL, OTHERS].into_iter().filter_map(find).flat_map(|section| {
        let names: Vec<String> = section.row_names().into_iter().map(str::to_owned).collect();
        names.into_iter().map(move |row| section.ratio(&row, "waf", ADAPTIVE, GREEDY))
    });
    let text = "WAF, adaptive ÷ greedy, worst row";
    goals.push(Goal::judge(text, Relation::AtMost, 1.02, worst(Relation::AtMost, rows)));
    let speed = POLICIES.map(|policy| proposal?.median(BUFFERED, policy, "kblocks_per_s"));
    let text = "d = 0.5 %: 1000 blocks for each second of a processor, slowest policy";
    goals.push(Goal::judge(text, Relation::AtLeast, 700.0, worst(Relation::AtLeast, speed)));
    goals
}
