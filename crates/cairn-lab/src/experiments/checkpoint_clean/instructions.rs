//! The instructions of one commit by the number of listed transactions, counted in another process
//! ([`crate::stepping`]). They do not depend on other programs, nor on how much of the list the
//! processor's caches hold.

use std::process::Command;

use super::bench::Bench;
use super::subjects::{BAIL_OUT, COUNTED, SCAN, row};
use crate::error::{Error, Result};
use crate::experiment::Context;
use crate::scale::Scale;
use crate::section::Builder;
use crate::statistics::Spread;
use crate::stepping;

/// The metric.
pub(super) const INSTRUCTIONS: &str = "instructions_per_commit";
/// Counted commits of a mode. The median counts: some commits make a table grow.
const COMMITS: usize = 3;
/// `scan` looks at everything, so a longer list would be stepped through for minutes.
pub(super) const SCAN_MAX: u32 = 1000;

/// The modes that are counted with so many listed transactions.
fn modes(listed: u32) -> &'static [&'static str] {
    if listed <= SCAN_MAX { &[COUNTED, BAIL_OUT, SCAN] } else { &[COUNTED, BAIL_OUT] }
}

/// The lengths that are counted. A quick run counts the ends: what lies between takes most of the
/// time.
fn counted<'l>(context: &Context, lengths: &'l [u32]) -> Vec<&'l u32> {
    match (context.scale, lengths) {
        (Scale::Quick, [shortest, .., longest]) => vec![shortest, longest],
        _ => lengths.iter().collect(),
    }
}

/// Adds one repetition of each row.
pub(super) fn measure(context: &Context, lengths: &[u32], builder: &mut Builder) -> Result<()> {
    let missing = || Error::Program("this program was not found, so nothing was counted".into());
    let program = context.itself.as_deref().ok_or_else(missing)?;
    for listed in counted(context, lengths) {
        context.progress.show(&format!("instructions: {}", row(*listed)));
        let counted = stepping::count(Command::new(program).args([
            "lab",
            "--counted-commits",
            &listed.to_string(),
        ]))?;
        // The first piece is what counting itself costs.
        let own = counted.first().copied().unwrap_or(0);
        for (mode, pieces) in
            modes(*listed).iter().zip(counted.get(1..).unwrap_or(&[]).chunks(COMMITS))
        {
            let pieces: Vec<f64> =
                pieces.iter().map(|steps| steps.saturating_sub(own) as f64).collect();
            if let Some(pieces) = Spread::of(&pieces) {
                builder.add(&row(*listed), mode, &[(INSTRUCTIONS, pieces.median)]);
            }
        }
    }
    Ok(())
}

/// The work of the process whose instructions are counted.
pub(super) fn work(listed: u32) -> Result<()> {
    let more = modes(listed).len() * (COMMITS + 1) + 1;
    let more = u32::try_from(more).unwrap_or(u32::MAX);
    let bench = Bench::new(listed, more)?;
    // Memory that is touched first would be counted as well.
    bench.touch_log(listed, more)?;
    stepping::ready()?;
    stepping::mark()?;
    stepping::mark()?;
    for mode in modes(listed) {
        bench.begin(mode)?;
        for _ in 0..COMMITS {
            stepping::mark()?;
            bench.commit_again()?;
            stepping::mark()?;
        }
    }
    Ok(())
}
