//! Metrics of live mounts, read by the parsers of Prometheus' client for Python.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cairn_cli::commands::metrics::{FAMILIES, Kind};
use cairn_testkit::judge;

use super::{SIZE, cairn, refused};
use crate::fixture::{CAIRN, Volume};
use crate::object_volumes;

/// Prints the families that the parser finds, with type and number of samples. The parser of
/// OpenMetrics also checks order, units and buckets.
const PARSE: &str = r#"
import sys
from prometheus_client import openmetrics, parser
from prometheus_client.openmetrics import parser as strict
parse = {"prometheus": parser, "openmetrics": strict}[sys.argv[1]].text_string_to_metric_families
for family in parse(open(sys.argv[2]).read()):
    print(family.name, family.type, len(family.samples))
"#;

fn metrics(form: &str, point: &Path) -> String {
    let output = cairn(&["stats", form], point);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The lines of [`PARSE`].
fn parsed(volume: &Volume, form: &str) -> Vec<String> {
    let file = volume.outside(form);
    fs::write(&file, metrics(&format!("--{form}"), &volume.root())).unwrap();
    let arguments = ["-c", PARSE, form, file.to_str().unwrap()].map(Path::new);
    let text = judge::run("/usr/bin/python3", arguments);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn both_formats_of_metrics_are_read_and_every_family_occurs() {
    let mut found = Vec::new();
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        fs::write(volume.path("file"), vec![1; 100_000]).unwrap();
        fs::File::open(volume.root()).unwrap().sync_all().unwrap();
        let families = parsed(&volume, "prometheus");
        assert_eq!(families, parsed(&volume, "openmetrics"));
        found.extend(families);
        volume.unmount();
    }
    let (volume, address, point) = object_volumes::made();
    let address = format!("{address}?log={}", volume.outside("log").display());
    let daemon = object_volumes::Daemon::start(&address, &point);
    found.extend(parsed(&volume, "prometheus"));
    drop(daemon);
    for family in FAMILIES {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let line = format!("cairn_{} {kind} ", family.name);
        assert!(found.iter().any(|one| one.starts_with(&line)), "{line} in {found:#?}");
    }
}

#[test]
fn every_family_is_documented() {
    let page = include_str!("../../../../../docs/control.md");
    for family in FAMILIES {
        let name = match family.kind {
            Kind::Counter => format!("`cairn_{}_total`", family.name),
            _ => format!("`cairn_{}`", family.name),
        };
        assert!(page.contains(&name), "{name} is not in docs/control.md");
    }
}

#[test]
fn a_file_of_metrics_follows_its_mount_to_the_end() {
    let mut volume = Volume::mounted(SIZE, "");
    let file = volume.outside("cairn.prom");
    let mut command = Command::new(CAIRN);
    command.args(["stats", "--prometheus", "--watch=0.02", "--output"]).arg(&file);
    let mut watcher = command.arg(volume.root()).stdout(Stdio::null()).spawn().unwrap();
    let requests = |text: &str| -> Option<u64> {
        let mut lines = text.lines();
        let line = lines.find(|line| line.contains("operation=\"create\""))?;
        line.rsplit(' ').next()?.parse().ok()
    };
    fs::write(volume.path("first"), "x").unwrap();
    let mut seen = 0;
    while seen < 2 {
        // Whenever it is read, it is whole.
        if let Ok(text) = fs::read_to_string(&file) {
            assert!(text.ends_with('\n') && text.contains("cairn_log_messages_total"), "{text}");
            if requests(&text) == Some(seen + 1) {
                seen += 1;
                fs::write(volume.path(&format!("next {seen}")), "x").unwrap();
            }
        }
        assert!(watcher.try_wait().unwrap().is_none(), "the watcher ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    volume.unmount();
    assert!(watcher.wait().unwrap().success());
    assert!(!file.exists(), "the metrics of a volume that is gone");
}

#[test]
fn a_signal_that_ends_the_watcher_removes_the_file_of_metrics() {
    let mut volume = Volume::mounted(SIZE, "");
    let file = volume.outside("cairn.prom");
    for signal in ["TERM", "INT"] {
        // A shell that runs the tests in the background ignores SIGINT for all of them.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", CAIRN]);
        command.args(["stats", "--prometheus", "--watch=0.02", "--output"]).arg(&file);
        let mut watcher = command.arg(volume.root()).stdout(Stdio::null()).spawn().unwrap();
        while !file.exists() {
            assert!(watcher.try_wait().unwrap().is_none(), "the watcher ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        judge::run("kill", ["-s", signal, &watcher.id().to_string()].map(Path::new));
        assert!(matches!(watcher.wait().unwrap().code(), Some(143 | 130)));
        assert!(!file.exists(), "the metrics that nobody renews");
    }
    volume.unmount();
}

#[test]
fn a_file_of_metrics_says_that_the_daemon_has_died() {
    let mut volume = Volume::mounted(SIZE, "");
    let file = volume.outside("cairn.prom");
    let mut command = Command::new(CAIRN);
    command.args(["stats", "--prometheus", "--watch=0.02", "--output"]).arg(&file);
    let mut watcher = command.arg(volume.root()).stdout(Stdio::null()).spawn().unwrap();
    for up in [1, 0] {
        let line = format!("cairn_up{{mountpoint=\"{}\"}} {up}\n", volume.root().display());
        while !fs::read_to_string(&file).is_ok_and(|text| text.contains(&line)) {
            assert!(watcher.try_wait().unwrap().is_none(), "the watcher ended before {line}");
            std::thread::sleep(Duration::from_millis(5));
        }
        if up == 1 {
            volume.kill();
        }
    }
    volume.clear();
    assert!(watcher.wait().unwrap().success());
    assert!(!file.exists(), "the metrics of a mount that is gone");
}

#[test]
fn missing_names_and_attributes_are_no_failed_requests() {
    let mut volume = Volume::mounted(SIZE, "");
    assert!(fs::metadata(volume.path("missing")).is_err());
    // The kernel asks for the capabilities of what is written.
    fs::write(volume.path("file"), "x").unwrap();
    let text = metrics("--prometheus", &volume.root());
    assert!(
        text.lines()
            .any(|line| line.starts_with("cairn_request_errors_total{") && line.ends_with(" 0")),
        "{text}"
    );
    volume.unmount();
}

#[test]
fn only_a_regular_file_is_replaced_and_it_keeps_its_mode() {
    let mut volume = Volume::mounted(SIZE, "");
    let (file, link) = (volume.outside("cairn.prom"), volume.outside("link"));
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let into = |path: &Path| {
        let path = path.to_str().unwrap();
        cairn(&["stats", "--prometheus", "--output", path], &volume.root())
    };
    refused(&into(Path::new("/dev/null")), &["not a regular file", "give a new file"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    // The file that a link leads to is replaced, and the link stays.
    assert!(into(&link).status.success());
    assert_eq!(fs::read_link(&link).unwrap(), file);
    assert!(fs::read_to_string(&file).unwrap().contains("cairn_up"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    volume.unmount();
}

#[test]
fn all_mounts_are_told_and_a_dead_one_is_down() {
    let mut live = Volume::mounted(SIZE, "");
    let mut dead = Volume::mounted(SIZE, "");
    dead.kill();
    let output = Command::new(CAIRN).args(["stats", "--openmetrics", "--all"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for (volume, up) in [(&live, 1), (&dead, 0)] {
        let line = format!("cairn_up{{mountpoint=\"{}\"}} {up}\n", volume.root().display());
        assert!(text.contains(&line), "{line} in {text}");
    }
    // A dead mount hides no other.
    let output =
        Command::new(CAIRN).args(["top", "--once", "--interval", "0.01"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() || said.contains("several mounts"), "{said}");
    refused(&cairn(&["stats", "--all", "--prometheus"], &live.root()), &["exclude each other"]);
    refused(&cairn(&["stats", "--output", "file"], &live.root()), &["--prometheus"]);
    dead.clear();
    live.unmount();
}
