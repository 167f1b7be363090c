//! Devices around devices: they restrict ([`Partition`], [`ReadOnly`]), put together ([`Concat`]),
//! keep changes in memory ([`Overlay`]), read ahead ([`ReadAhead`]), observe ([`Stats`],
//! [`Record`]) or disturb ([`Latency`], [`Hold`], [`Fault`]) the inner device.

mod concat;
mod fault;
mod hold;
mod latency;
mod overlay;
mod partition;
mod read_ahead;
mod read_only;
pub mod record;
mod stats;

pub use concat::Concat;
pub use fault::{Fault, Lasting, Operation};
pub use hold::{Flushing, Hold};
pub use latency::{Latency, LatencyProfile};
pub use overlay::Overlay;
pub use partition::Partition;
pub use read_ahead::ReadAhead;
pub use read_only::ReadOnly;
pub use record::{Event, Record, RecordLog};
pub use stats::Stats;

#[cfg(test)]
mod tests;
