//! Tests of the journal through its public interface.
//!
//! | file | promise | judged by |
//! |---|---|---|
//! | `crash` | a prefix of the operations survives a power cut | `model` |
//! | `fault` | the first write error aborts the journal; a prefix survives | `model` |
//! | `contention` | threads share transactions and lose nothing | counters in blocks |
//! | `rules` | a crash is harmless, and a full log does not deadlock | contents of blocks |
//! | `parts` | what leaving out a part of checkpointing changes | counters |
//! | `age` | the commit daemon commits by age, and is not woken without need | a virtual clock |
//! | `ahead` | the checkpoint daemon keeps its promises | counters and contents |
//! | `as_needed` | under load it frees what is needed | counters and contents |
//! | `damage` | a damaged log gives an error or a prefix | contents of blocks |
//! | `judges` | logs are replayed as by e2fsprogs, and e2fsprogs replays ours | e2fsck, debugfs |
//! | `revokes` | a million revoke records cost three passes over the log | e2fsck |

mod age;
mod ahead;
mod as_needed;
mod contention;
mod crash;
mod damage;
mod fault;
mod fixture;
mod judges;
mod model;
mod observed;
mod parts;
mod revokes;
mod rules;
mod watch;
