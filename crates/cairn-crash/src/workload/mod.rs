//! Seeded workloads: operations on a recorded volume, a model of its files, and what was promised
//! after each of them; and the search through the crash states of a run.

mod expect;
mod op;
mod pattern;
mod search;
mod shrink;
mod worker;

pub use expect::{Expect, FILLER, Found, Tail, read_all};
pub use op::Op;
pub use search::{
    Churn, Crashed, IsWhole, Judged, Judging, Open, Promised, Recorded, Seen, Target, Verdict,
    Wrong, search,
};
pub use shrink::shrink;
pub use worker::Worker;
