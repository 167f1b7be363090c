//! One module a command.

pub mod cat;
pub mod chmod;
pub mod chown;
pub mod freeze;
pub mod generate;
pub mod get;
pub mod info;
pub mod lab;
pub mod live_mount;
pub mod ln;
pub mod ls;
pub mod mkdir;
pub mod mkfs;
pub mod mount;
pub mod mv;
pub mod on_volume;
pub mod put;
pub mod remount;
pub mod rm;
pub mod serve_nothing;
pub mod stat;
pub mod stats;
pub mod umount;
