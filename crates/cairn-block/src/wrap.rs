//! Devices around devices: they restrict ([`Partition`], [`ReadOnly`]), put together ([`Concat`]), observe ([`Stats`], [`Record`]) or disturb
//! ([`Latency`], [`Fault`]) the one inside.

mod concat;
mod fault;
mod latency;
mod partition;
mod read_only;
pub mod record;
mod stats;

pub use concat::Concat;
pub use fault::{Fault, Lasting, Operation};
pub use latency::{Latency, LatencyProfile};
pub use partition::Partition;
pub use read_only::ReadOnly;
pub use record::{Event, Record, RecordLog};
pub use stats::{Stats, StatsSnapshot};

#[cfg(test)]
mod tests;
