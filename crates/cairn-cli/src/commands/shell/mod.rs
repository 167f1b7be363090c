//! `cairn shell`: many commands on a volume that is opened once.
//!
//! The commands are those of the program ([`VolumeCommand`]), without the image. Invariant: even if
//! a command fails, the changes of those before it are on the disk when the shell ends.

mod signals;
mod words;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;

use cairn::Volume;
use cairn_base::names::Escaped;
use cairn_base::nearest::did_you_mean;
use clap::{CommandFactory, Parser};

use super::volume_command::VolumeCommand;
use crate::failure::{Failure, Outcome, Status};
use crate::output::{Output, complain, with_stdout};
use crate::session::{Access, ImageArg, check_access, with_opened};
use crate::{option_order, protection, usage};
use signals::Commands;
use words::Words;

/// Arguments of `shell`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn shell root.img <<EOF
  mkdir -p /etc/network
  put interfaces /etc/network
  chown -R 0:0 /etc/network
  EOF
  cairn shell -r -c 'ls -l /etc' -c 'df -h' root.img

The commands are those of cairn that work without a mount (help lists them), without IMAGE: ls -l \
/etc. Words are quoted as in sh ('…', \"…\", \\); # begins a comment; a backslash at the end of a \
line, or an open quotation, continues the command on the next line. There are no variables, pipes, \
redirections (get and put copy) and no cd: paths start at the root. The commands expand patterns, \
also quoted ones; a backslash quotes a character (rm /\\*). exit ends the shell, sync writes \
everything to the image at once.
The shell ends at the first command that fails, with its status. With -k it goes on, and its \
status is that of the first failure. What was done before is in the image when the shell ends, \
also by SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 or SIGUSR2: the running command is completed, \
and the status is 128 and the signal's number.")]
pub struct Args {
    /// Go on after a command that fails.
    #[arg(short = 'k', long)]
    pub keep_going: bool,
    /// Write nothing: commands that change the volume are refused.
    #[arg(short = 'r', long)]
    pub read_only: bool,
    /// Run this command; may be given more than once.
    #[arg(short = 'c', long = "command", value_name = "COMMAND", conflicts_with = "file")]
    pub commands: Vec<OsString>,
    /// Read commands from this file instead of standard input.
    #[arg(short = 'f', long, value_name = "SCRIPT")]
    pub file: Option<PathBuf>,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
}

/// One line of a script, as `clap` sees it.
#[derive(Debug, Parser)]
#[command(name = "", no_binary_name = true, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    command: VolumeCommand,
}

/// Runs the commands.
///
/// # Errors
/// The image or the script cannot be opened, or a command failed.
pub fn run(args: &Args) -> Outcome {
    let mut script = Script::open(args)?;
    let access = if args.read_only { Access::Read } else { Access::Write };
    with_stdout(|output| {
        with_opened(&args.image, access, |volume| {
            let commands = Commands::default();
            let handled = commands.end_on_signal(Arc::clone(volume.filesystem()));
            handled.map_err(|error| Failure::start("signals", &error, "try again"))?;
            let done = Shell { args, volume, commands: &commands }.run(&mut script, output);
            // The caller unmounts, and not the thread for signals.
            std::mem::forget(commands.begin());
            done
        })
    })
}

struct Shell<'a> {
    args: &'a Args,
    volume: &'a Volume,
    commands: &'a Commands,
}

impl Shell<'_> {
    fn run(&self, script: &mut Script, output: &mut Output<'_>) -> Outcome {
        let mut first = None;
        while let Some((number, line)) = script.next(output)? {
            let _running = self.commands.begin();
            let done = line.map_err(Failure::usage).and_then(|words| self.line(words, output));
            // The output of a command is printed before an error of the next.
            match done.and_then(|on| output.flush().map(|()| on)) {
                Ok(true) => {}
                Ok(false) => break,
                // A script that changes the volume continues without a reader of its output.
                Err(failure) if failure.status == Status::Success => output.discard(),
                Err(failure) => {
                    let failure = protection::explain(&**self.volume.filesystem(), failure);
                    for line in failure.lines().filter(|line| !line.is_told()) {
                        complain(format_args!(
                            "{}: line {number}: {line}",
                            self.args.image.image.escaped()
                        ));
                    }
                    first = first.or(Some(failure.status));
                    if !self.args.keep_going && !script.interactive {
                        break;
                    }
                }
            }
        }
        first
            .filter(|_| !script.interactive)
            .map_or(Ok(()), |status| Err(Failure::told(i32::from(status as u8))))
    }

    /// False if it was the last.
    fn line(&self, words: Vec<OsString>, output: &mut Output<'_>) -> Outcome<bool> {
        let Some(name) = words.first() else { return Ok(true) };
        match name.to_str() {
            Some("exit" | "quit") => return Ok(false),
            Some("help") => {
                return help(words.get(1).map(OsString::as_os_str), output).map(|()| true);
            }
            Some("sync") => {
                let synced = self.volume.filesystem().sync();
                return synced.map_err(|error| Failure::volume("sync", &error)).map(|()| true);
            }
            _ => {}
        }
        // As on the command line, where the image is the first operand.
        let image = self.args.image.image.clone();
        let words = words[..1].iter().cloned().chain([image]).chain(words[1..].iter().cloned());
        let words = option_order::options_first(&Line::command(), words.collect(), 0);
        let line = match Line::try_parse_from(words) {
            Ok(line) => line,
            // --help.
            Err(error) if !error.use_stderr() => return help(Some(name), output).map(|()| true),
            Err(error) => return Err(misused(&error, name)),
        };
        let command = line.command.command();
        if self.args.read_only && command.access() == Access::Write {
            return Err(Failure::usage(format!(
                "{}: this changes the volume: leave out -r",
                name.escaped()
            )));
        }
        check_access(self.volume, command.access())?;
        command.run(&**self.volume.filesystem(), output).map(|()| true)
    }
}

fn misused(error: &clap::Error, name: &OsStr) -> Failure {
    let known = name.to_str().filter(|name| Line::command().find_subcommand(name).is_some());
    let help = known.map_or("type help".to_owned(), |name| format!("type help {name}"));
    usage::explain(error, known, &help)
}

fn unknown(name: &str) -> String {
    let commands = Line::command();
    let meant = did_you_mean(name, commands.get_subcommands().map(clap::Command::get_name));
    format!("no command `{name}`{meant}: type help")
}

/// The help of a command in the shell: without IMAGE, and without the program's name and the image
/// in the examples.
fn without_image(help: &str, name: &str) -> String {
    let mut text = String::new();
    let mut lines = help.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("<IMAGE>") {
            // Its description follows, up to the next argument.
            while lines.next_if(|line| !line.trim().is_empty()).is_some() {}
            lines.next_if(|line| line.is_empty());
            continue;
        }
        let example = line.replace(&format!("cairn {name} "), &format!("{name} "));
        let line = if example == line {
            line.replace(" <IMAGE>", "")
        } else {
            example.replace(" disk.img", "")
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn help(of: Option<&OsStr>, output: &mut Output<'_>) -> Outcome {
    let mut commands = Line::command();
    match of.and_then(OsStr::to_str) {
        Some(name) => {
            let found = commands.find_subcommand_mut(name);
            let found = found.ok_or_else(|| Failure::usage(unknown(name)))?;
            let text = found.render_long_help().to_string();
            output.bytes(without_image(&text, name).as_bytes())
        }
        None => {
            for command in commands.get_subcommands() {
                let about = command.get_about().map(ToString::to_string).unwrap_or_default();
                writeln!(output, "{:<10} {about}", command.get_name())?;
            }
            writeln!(
                output,
                "{:<10} Write everything to the image.\n{:<10} Show the help of a command.\n{:<10} \
                 End the shell.",
                "sync", "help", "exit"
            )
        }
    }
}

/// Where the commands come from.
struct Script {
    source: Source,
    /// Input is a terminal: a prompt is shown, and a failed command does not end the shell.
    interactive: bool,
    number: usize,
}

enum Source {
    Words(std::vec::IntoIter<OsString>),
    File(PathBuf, BufReader<File>),
    Standard,
}

/// The words of a line, or what is wrong with it.
type Parsed = Result<Vec<OsString>, String>;

impl Script {
    fn open(args: &Args) -> Outcome<Self> {
        let source = match &args.file {
            Some(path) => {
                let file = File::open(path).map_err(|error| Failure::host(path, &error))?;
                Source::File(path.clone(), BufReader::new(file))
            }
            None if !args.commands.is_empty() => Source::Words(args.commands.clone().into_iter()),
            None => Source::Standard,
        };
        let interactive = matches!(source, Source::Standard) && io::stdin().is_terminal();
        Ok(Self { source, interactive, number: 0 })
    }

    /// The next command and the number of its first line; none at the end.
    fn next(&mut self, output: &mut Output<'_>) -> Outcome<Option<(usize, Parsed)>> {
        let mut words = Words::default();
        let mut prompt = "cairn> ";
        let first = self.number + 1;
        loop {
            if self.interactive {
                output.bytes(prompt.as_bytes())?;
                output.flush()?;
            }
            let Some(line) = self.read()? else {
                let open = words
                    .is_open()
                    .then(|| "the script ends inside a quotation: close it".to_owned());
                return Ok(open.map(|why| (first, Err(why))));
            };
            self.number += 1;
            match words.take(&line) {
                true => return Ok(Some((first, words.end()))),
                false => prompt = "> ",
            }
        }
    }

    /// A line without its newline.
    fn read(&mut self) -> Outcome<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let (name, read) = match &mut self.source {
            Source::Words(words) => return Ok(words.next().map(OsString::into_encoded_bytes)),
            Source::File(path, file) => (path.clone(), file.read_until(b'\n', &mut line)),
            // Not locked between lines, because `put -` reads from it, too.
            Source::Standard => {
                ("standard input".into(), io::stdin().lock().read_until(b'\n', &mut line))
            }
        };
        if read.map_err(|error| Failure::host(&name, &error))? == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        Ok(Some(line))
    }
}
