//! One module a command.

pub mod cat;
pub mod chmod;
pub mod chown;
pub mod get;
pub mod info;
pub mod lab;
pub mod ln;
pub mod ls;
pub mod mkdir;
pub mod mkfs;
pub mod mount;
pub mod mv;
pub mod put;
pub mod rm;
pub mod serve_nothing;
pub mod stat;
pub mod umount;
