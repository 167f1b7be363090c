//! The journal from outside: what survives power cuts and failing devices, what other programs make of our logs and we
//! of theirs.

mod ahead;
mod contention;
mod crash;
mod damage;
mod fault;
mod fixture;
mod judges;
mod model;
mod revokes;
mod rules;
mod watch;
