//! The command line: one module a command, each a thin layer over the facade ([`cairn`]) or over
//! `&dyn FileSystem`.
//!
//! Private to the `cairn` program (a library only so that its tests can call it). Rules: results go
//! to standard output, progress and errors to standard error, an error is one line `cairn: IMAGE:
//! what happened: what to do`, and the exit status gives its kind ([`failure::Status`]).

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
// These panic on a closed pipe. Use `output` instead.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod args;
pub mod commands;
pub mod confirm;
pub mod date;
pub mod failure;
pub mod fields;
pub mod habits;
pub mod json;
pub mod limits;
mod log;
mod log_line;
pub mod log_ring;
pub mod operand_order;
pub mod operands;
pub mod option_order;
pub mod output;
pub mod passphrase;
pub mod pattern;
pub mod print;
pub mod progress;
pub mod protection;
pub mod session;
pub mod signals;
pub mod tree;
pub mod usage;
pub mod version;
mod wording;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::args::Cli;
use crate::failure::{Failure, Status};

/// The program: parses the arguments, runs the command, reports.
#[must_use]
pub fn main() -> ExitCode {
    limits::let_large_writes_fail();
    match commands::run::prepare_threads(std::env::args_os().skip(1)) {
        Ok(commands::run::Threads::First) => return run(std::env::args_os().collect()),
        Ok(commands::run::Threads::Several) => {}
        Err(failure) => {
            output::report(&failure);
            return failure.status.into();
        }
    }
    limits::with_stack(|| run(std::env::args_os().collect()))
}

/// The exit status of the program, called by this name: helpers of mount(8) and umount(8) have the
/// statuses of these, 1 for wrong usage and 32 for what failed.
fn helper_status(program: Option<&OsStr>, status: Status) -> ExitCode {
    let is_helper = program.is_some_and(|name| {
        commands::mount::helper::is_helper(name) || commands::umount::helper::is_helper(name)
    });
    match status {
        Status::Success => ExitCode::SUCCESS,
        _ if !is_helper => status.into(),
        Status::Usage => ExitCode::from(1),
        _ => ExitCode::from(32),
    }
}

/// As [`main`], with these arguments (the first is the program's name).
#[must_use]
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    if let Some(status) = commands::mkfs_names::run(&arguments) {
        return status.into();
    }
    let help = commands::mount::helper::help(&arguments);
    if let Some(help) = help.or_else(|| commands::umount::helper::help(&arguments)) {
        // A closed pipe is no error.
        let _ = output::with_stdout(|stdout| stdout.write_fmt(format_args!("{help}")));
        return if arguments.len() > 1 { Status::Success } else { Status::Usage }.into();
    }
    let status = {
        let called = arguments.first().cloned();
        move |status| helper_status(called.as_deref(), status)
    };
    let arguments = commands::umount::helper::rewrite(&arguments)
        .unwrap_or_else(|| commands::mount::helper::rewrite(arguments));
    let words = arguments.clone();
    let arguments = option_order::options_first(&Cli::command(), arguments, 1);
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        // Help that cannot be printed (a closed pipe) is no error.
        Err(error) if is_help(&error) => {
            let _ = error.print();
            return if error.use_stderr() { Status::Usage } else { Status::Success }.into();
        }
        Err(error) => {
            let failure = operand_order::of_parse_error(&error, &words)
                .unwrap_or_else(|| misused(&error, &words));
            output::report(&failure);
            return match commands::check::usage_status(&words) {
                Some(code) => code.into(),
                None => status(failure.status),
            };
        }
    };
    // A daemon's starter has said what is wrong with it.
    let is_daemon = matches!(&cli.command, args::Command::Mount(mount) if mount.announce);
    let shows = match &cli.command {
        args::Command::Mount(_) | args::Command::RunStage(_) => log::Shown::Repeated,
        args::Command::Lab(lab) if lab.damages_volumes() => log::Shown::Nothing,
        _ => log::Shown::Warnings,
    };
    log::start(!is_daemon, shows);
    cairn::ask_with(passphrase::ask);
    let done = cli.command.run();
    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let failure =
                operand_order::of_failure(&failure, &cli.command, &words).unwrap_or(failure);
            output::report(&failure);
            failure.code().map_or_else(|| status(failure.status), ExitCode::from)
        }
    };
    // Last: what looks for the reason of a failure may open the image again, and asks nobody twice.
    cairn::forget_passphrases();
    code
}

/// Help or the version, requested or shown because there are no arguments.
fn is_help(error: &clap::Error) -> bool {
    !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

fn misused(error: &clap::Error, words: &[OsString]) -> Failure {
    let command = words.get(1).and_then(|word| word.to_str());
    match command.filter(|name| Cli::command().find_subcommand(name).is_some()) {
        Some(name) => usage::explain(error, Some(name), &format!("see cairn {name} --help")),
        None => usage::explain(error, None, "see cairn --help"),
    }
}
