//! The command line as a shell completes it: what users type, and nothing that the program tells
//! itself.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};

/// Values that the program reads itself: the command, the argument's name in it, and the values.
const VALUES: [(&str, &str, &[&str]); 4] = [
    ("mkfs", "kind", &["ext4", "ext3", "ext2", "f2fs"]),
    ("build", "format", &["ext4", "f2fs"]),
    (
        "build",
        "part",
        &[
            "type=",
            "size=",
            "name=",
            "uuid=",
            "file=",
            "source=",
            "fs=",
            "label=",
            "bootable",
            "read-only",
            "no-auto",
            "grow",
            "empty",
        ],
    ),
    (
        "mount",
        "options",
        &[
            "ro",
            "rw",
            "noatime",
            "relatime",
            "cache=",
            "max_folio=",
            "allow_other",
            "suid",
            "nosuid",
            "dev",
            "nodev",
            "exec",
            "noexec",
            "sync",
            "dirsync",
            "idmap",
            "threads=",
            "spin=",
            "loop",
            "transport=auto",
            "transport=ring",
            "transport=dev",
            "no_open",
            "noxattr",
            "private",
            "nowriteback_cache",
            "build",
            "commit=",
            "noload",
            "sb=",
            "discard",
            "async_checkpoint",
            "checkpoint_interval=",
            "norecovery",
            "mode=adaptive",
            "mode=lfs",
            "device=",
        ],
    ),
];

/// The commands and options of `program` that its help shows, and the experiments of `lab`.
#[must_use]
pub(super) fn shown(program: &Command) -> Command {
    let command = VALUES.iter().fold(visible(program), |whole, (command, argument, values)| {
        whole.mut_subcommand(command, |command| {
            command.mut_arg(argument, |argument| {
                argument.value_parser(PossibleValuesParser::new(values.iter().copied()))
            })
        })
    });
    let lab = program.find_subcommand("lab").map(options).unwrap_or_default();
    command.mut_subcommand("lab", |command| {
        // Shells show a command with what it does; of a value they show the name at most.
        let kinds =
            [("all", "Those of the improvements of the write path"), ("list", "Names them")];
        let experiments = cairn_lab::all().iter().map(|one| (one.name, one.question));
        let experiment =
            |(name, about): (&'static str, &'static str)| command_of(name, about, lab.clone());
        let mut whole = command_of("lab", "", lab.clone());
        if let Some(about) = command.get_about() {
            whole = whole.about(about.clone());
        }
        whole
            .subcommands(command.get_subcommands().cloned())
            .subcommands(kinds.into_iter().chain(experiments).map(experiment))
    })
}

fn command_of(name: &'static str, about: &'static str, arguments: Vec<Arg>) -> Command {
    Command::new(name).about(about).args(arguments)
}

/// The options that its help shows.
fn options(of: &Command) -> Vec<Arg> {
    let shown = of.get_arguments().filter(|argument| !argument.is_hide_set());
    shown.filter(|argument| !argument.is_positional()).cloned().collect()
}

/// As it is, without what is hidden.
fn visible(command: &Command) -> Command {
    let positional = command.get_positionals().filter(|argument| !argument.is_hide_set()).cloned();
    let below = command.get_subcommands().filter(|below| !below.is_hide_set()).map(visible);
    let mut visible = Command::new(command.get_name().to_owned())
        .disable_help_flag(command.is_disable_help_flag_set())
        .disable_help_subcommand(command.is_disable_help_subcommand_set())
        .disable_version_flag(command.is_disable_version_flag_set())
        .args(options(command))
        .args(positional)
        .subcommands(below);
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        visible = visible.version(version.to_owned());
    }
    visible
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command as Process;

    use clap::CommandFactory;
    use clap_complete::Shell;

    use super::*;
    use crate::args::Cli;

    /// What each shell is given.
    fn scripts() -> [String; 3] {
        [Shell::Bash, Shell::Zsh, Shell::Fish].map(|shell| {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut shown(&Cli::command()), "cairn", &mut script);
            String::from_utf8(script).unwrap()
        })
    }

    /// How bash and zsh write hidden options, and fish.
    fn hidden(of: &Command) -> Vec<[String; 2]> {
        let options = of.get_arguments().filter(|argument| argument.is_hide_set());
        let names = options.filter_map(Arg::get_long);
        let forms = names.map(|name| [format!("--{name}"), format!("-l {name}")]);
        forms.chain(of.get_subcommands().flat_map(hidden)).collect()
    }

    #[test]
    fn no_shell_offers_what_the_help_hides() {
        let hidden = hidden(&Cli::command());
        assert!(hidden.iter().any(|[option, _]| option == "--announce"), "{hidden:?}");
        for script in scripts() {
            // That of another command is visible.
            let is_offered = |form: &&String| script.contains(*form) && !form.ends_with("verbose");
            let offered: Vec<&String> = hidden.iter().flatten().filter(is_offered).collect();
            assert!(offered.is_empty(), "{offered:?}");
            assert!(!script.contains("run-stage") && !script.contains("serve-nothing"));
            for experiment in cairn_lab::all() {
                assert!(script.contains(experiment.name), "{}", experiment.name);
            }
        }
    }

    #[test]
    fn values_that_are_offered_are_understood() {
        for (command, argument, values) in VALUES {
            for value in values {
                let help = Cli::command().find_subcommand_mut(command).unwrap().render_long_help();
                let (help, name) = (help.to_string(), value.split('=').next().unwrap());
                assert!(help.contains(name), "{command} {argument} {value}");
            }
        }
    }

    /// What bash offers for the last of these words.
    fn offered(words: &[&str]) -> Vec<String> {
        let [script, ..] = scripts();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(script.as_bytes()).unwrap();
        let ask = ". \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
            _cairn cairn \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; \
            echo \"${COMPREPLY[@]}\"";
        let output =
            Process::new("bash").args(["-c", ask]).arg(file.path()).args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn bash_completes_commands_options_and_experiments() {
        assert_eq!(offered(&["cairn", "sta"]), ["stats", "stat"]);
        assert_eq!(offered(&["cairn", "mount", "--f"]), ["--foreground"]);
        assert_eq!(offered(&["cairn", "lab", "gc-v"]), ["gc-victim"]);
        assert!(offered(&["cairn", "lab", ""]).iter().any(|word| word == "crash"));
        assert_eq!(offered(&["cairn", "lab", "gc-victim", "--sca"]), ["--scale"]);
        assert_eq!(offered(&["cairn", "lab", "crash", "--modes"]), ["--modes"]);
        assert_eq!(offered(&["cairn", "mkfs", "-t", "ext"]), ["ext4", "ext3", "ext2"]);
        assert_eq!(offered(&["cairn", "build", "-t", ""]), ["ext4", "f2fs"]);
        assert_eq!(offered(&["cairn", "build", "--part", "s"]), ["size=", "source="]);
        assert_eq!(offered(&["cairn", "mount", "-o", "noa"]), ["noatime"]);
        assert_eq!(offered(&["cairn", "run-"]), [""; 0]);
        assert_eq!(offered(&["cairn", "gene"]), [""; 0]);
        assert_eq!(offered(&["cairn", "mount", "--ver"]), [""; 0]);
    }
}
