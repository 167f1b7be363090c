//! Runs the unmodified fs_mark on a directory.

use std::path::Path;

use super::Load;
use crate::error::{Error, Result};
use crate::mounted::{command, run};

/// Files a second, as the program calculates them.
pub(crate) fn files_per_s(mount: &Path, control: &Path, load: &Load) -> Result<f64> {
    let number = |value: usize| value.to_string();
    let mut program = command("fs_mark");
    // fs_mark does not accept long directory names.
    program.current_dir(mount).args(["-d", "mark", "-k", "-l"]).arg(control.join("fs_mark.log"));
    program.args([
        "-t",
        &number(load.threads),
        "-n",
        &number(load.files),
        "-s",
        &number(load.size),
    ]);
    program.args(["-D", &number(load.directories), "-N", &number(load.per_directory)]);
    program.args(["-S", &number(load.sync as usize)]);
    let output = run(&mut program)?;
    parse(&output).ok_or_else(|| {
        Error::Program(format!("fs_mark: no figures in its output: {}", output.trim()))
    })
}

/// The rate in the last line of figures: `FSUse% Count Size Files/sec Overhead`.
fn parse(output: &str) -> Option<f64> {
    let figures = |line: &str| {
        let numbers: Option<Vec<f64>> =
            line.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() >= 5).map(|numbers| numbers[3])
    };
    output.lines().rev().find_map(figures)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_rate_is_found() {
        let output = "#  fs_mark  -d  mark  -t  2\n#\tVersion 3.3\n\nFSUse%        Count         \
            Size    Files/sec     App Overhead\n     1         2000         4096       \
            5421.3           110337\n";
        assert_eq!(parse(output), Some(5421.3));
        assert_eq!(parse("fs_mark: no space"), None);
    }
}
