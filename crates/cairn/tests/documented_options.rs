//! docs/options.md says which mount options the code takes, ignores and refuses, and README.md has
//! an example that compiles.

use cairn_base::options::{Meaning, Vocabulary};

const PAGE: &str = include_str!("../../../docs/options.md");

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The part of the page with this heading.
fn section(heading: &str) -> &'static str {
    let behind = PAGE
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("no section {heading}"))
        .1;
    behind.split("\n#").next().unwrap_or(behind)
}

fn verdict(meaning: Meaning) -> &'static str {
    match meaning {
        Meaning::Always => "taken",
        Meaning::Ignored(_) => "ignored",
        Meaning::Refused(_) => "refused",
    }
}

/// The words of a section with what becomes of them, in order.
fn documented(heading: &str) -> Vec<(&'static str, &'static str)> {
    let rows = section(&format!("### {heading}")).lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|line| line[2..].split_once(" | ").expect("two cells"));
    let mut words: Vec<_> = cells
        .flat_map(|(words, what)| {
            let verdict = what.split([':', ' ']).next().expect("a verdict");
            quoted(words).map(move |word| (word, verdict))
        })
        .collect();
    words.sort_unstable();
    words
}

fn known(vocabulary: &'static Vocabulary) -> Vec<(&'static str, &'static str)> {
    let each = |(words, meaning): &'static (&'static [&'static str], Meaning)| {
        words.iter().map(|word| (*word, verdict(*meaning)))
    };
    let mut words: Vec<_> = vocabulary.iter().flat_map(each).collect();
    words.sort_unstable();
    words
}

#[test]
fn every_word_of_linux_is_documented_with_what_becomes_of_it() {
    for (heading, vocabulary) in [
        ("ext4", cairn_ext4::MountOptions::TABLE.linux),
        ("F2FS", cairn_f2fs::MountOptions::TABLE.linux),
    ] {
        let (documented, known) = (documented(heading), known(vocabulary));
        let missing: Vec<_> = known.iter().filter(|word| !documented.contains(word)).collect();
        let wrong: Vec<_> = documented.iter().filter(|word| !known.contains(word)).collect();
        assert!(
            missing.is_empty() && wrong.is_empty(),
            "{heading}: not documented: {missing:?}; not so: {wrong:?}"
        );
    }
}

/// The options of the sections, each by its bare name.
fn documented_options(headings: &[&str]) -> Vec<&'static str> {
    let rows = headings
        .iter()
        .flat_map(|heading| section(heading).lines())
        .filter(|line| line.starts_with("| `"));
    let words = rows.flat_map(|row| quoted(row.split(" | ").next().unwrap_or(row)));
    words
        .map(|word| word.split(['=', '[', ':']).next().unwrap_or(word))
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn every_option_is_documented_and_there_is_no_other() {
    let ext4: Vec<String> = cairn_ext4::MountOptions::TABLE.settings().collect();
    let f2fs: Vec<String> = cairn_f2fs::MountOptions::TABLE.settings().collect();
    // Other names of an option, which Linux has, too.
    const ALIASES: &[&str] = &["norecovery", "bsdgroups", "sysvgroups", "disable_roll_forward"];
    for (heading, settings) in [("## ext4", &ext4), ("## F2FS", &f2fs)] {
        let documented = documented_options(&["## Every filesystem", "## FUSE", heading]);
        for setting in settings {
            let name = setting.split(['=', '[']).next().unwrap_or(setting);
            assert!(
                documented.contains(&name) || ALIASES.contains(&name),
                "{heading}: {name} is not documented"
            );
        }
        for name in documented_options(&[heading]) {
            let known =
                settings.iter().any(|setting| setting.split(['=', '[']).next() == Some(name));
            assert!(known, "{heading}: {name} is documented, and no option");
        }
    }
}

/// The example of README.md.
fn example() -> Result<(), Box<dyn std::error::Error>> {
    let volume = cairn::Volume::open_writable("disk.img#2")?;
    let hosts = volume.read_to_string("/etc/hosts")?;
    volume.write("/etc/hosts", hosts + "10.0.0.1 build\n")?;
    volume.close()?;
    Ok(())
}

/// The example of the library in README.md compiles: its lines are those of `example`.
#[test]
fn the_example_of_the_readme_compiles() {
    let readme = include_str!("../../../README.md");
    let (_, block) = readme.split_once("```rust\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let source = include_str!("documented_options.rs");
    for line in block.lines() {
        assert!(source.contains(&format!("    {line}\n")), "{line}");
    }
    assert!(block.lines().count() == 4 && example().is_err(), "there is no such image");
}
