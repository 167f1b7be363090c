//! Runs fio: each row is a job, and the jobs of one run follow each other.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use super::{command, run};
use crate::error::{Error, Result};

/// The figures of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Throughput {
    pub(crate) mib_per_s: f64,
    pub(crate) iops: f64,
}

/// A job: its name and its own lines.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) lines: Vec<String>,
}

/// Runs jobs on the files of `directory`. The results are in the order of the jobs. fio's own files
/// go to `control`.
pub(crate) fn jobs(
    directory: &Path,
    control: &Path,
    global: &[String],
    jobs: &[Job],
) -> Result<Vec<Throughput>> {
    let mut text = format!(
        "[global]\nioengine=psync\nfallocate=none\nthread=1\nnorandommap=0\ndirectory={}\n",
        directory.display()
    );
    global.iter().for_each(|line| text.push_str(&format!("{line}\n")));
    for job in jobs {
        let _ = write!(text, "[{}]\nstonewall\n{}\n", job.name, job.lines.join("\n"));
    }
    let file = control.join("jobs.fio");
    std::fs::write(&file, text).map_err(Error::host(&file))?;
    let output = run(command("fio").arg("--output-format=json").arg(&file).current_dir(control))?;
    parse(&output, jobs)
}

fn parse(output: &str, jobs: &[Job]) -> Result<Vec<Throughput>> {
    let wrong = |what: &str| Error::Program(format!("fio: {what} in its output"));
    // Warnings may precede the object.
    let json = output.find('{').map_or("", |start| &output[start..]);
    let json: Value = serde_json::from_str(json).map_err(|_| wrong("no JSON"))?;
    let found = json["jobs"].as_array().ok_or_else(|| wrong("no jobs"))?;
    let one = |job: &Job| {
        let entry = found.iter().find(|entry| entry["jobname"] == job.name.as_str());
        let entry = entry.ok_or_else(|| wrong(&job.name))?;
        let direction =
            if entry["read"]["total_ios"].as_u64() > Some(0) { "read" } else { "write" };
        let figure = |key: &str| entry[direction][key].as_f64().ok_or_else(|| wrong(key));
        Ok(Throughput {
            mib_per_s: figure("bw_bytes")? / f64::from(1 << 20),
            iops: figure("iops")?,
        })
    };
    jobs.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_is_read_by_name() {
        let output = "note: both iodepth >= 1 and synchronous I/O engine\n{\"jobs\": \
            [{\"jobname\": \"w\", \"read\": {\"total_ios\": 0}, \"write\": {\"bw_bytes\": 2097152, \
            \"iops\": 2.5}},{\"jobname\": \"r\", \"read\": {\"total_ios\": 9, \"bw_bytes\": \
            1048576, \"iops\": 1}}]}";
        let job = |name: &str| Job { name: name.into(), lines: Vec::new() };
        let found = parse(output, &[job("r"), job("w")]).unwrap();
        assert_eq!(found[0], Throughput { mib_per_s: 1.0, iops: 1.0 });
        assert_eq!(found[1], Throughput { mib_per_s: 2.0, iops: 2.5 });
        assert!(parse(output, &[job("x")]).is_err());
        assert!(parse("fio: error", &[]).is_err());
    }
}
