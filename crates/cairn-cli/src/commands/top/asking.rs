//! Asks the daemon of one mount again and again, in a thread: one that does not answer holds up no
//! key.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use cairn_base::stats::Report;
use cairn_base::thread::spawn;

use crate::commands::{live_mount, stats};
use crate::failure::{Failure, Status};

/// What such a thread tells.
#[derive(Debug)]
pub(super) enum Told {
    /// The daemon is asked, from then on.
    Asked(Instant),
    /// It has answered, so many seconds after the answer before.
    Report(Box<Report>, f64),
    /// It does not answer, and why.
    Trouble(String),
    /// It is not mounted any more.
    Gone,
    /// It will not answer.
    Failed(Failure),
}

/// The byte that a thread sends when it has told something.
pub(super) const TOLD: u8 = 0;

/// A thread that asks. It ends, after its question, when this is dropped.
#[derive(Debug)]
pub(super) struct Asking {
    told: Receiver<Told>,
    _goes_on: Sender<()>,
}

impl Asking {
    /// Asks at once, and after each interval. Writes [`TOLD`] to `waker` when an answer is there.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(super) fn start(point: &Path, interval: Duration, waker: &UnixStream) -> io::Result<Self> {
        let (tell, told) = mpsc::channel();
        let (goes_on, ended) = mpsc::channel();
        let (point, waker) = (point.to_owned(), waker.try_clone()?);
        spawn("asks", move || ask_again_and_again(&point, interval, &ended, &tell, waker))?;
        Ok(Self { told, _goes_on: goes_on })
    }

    /// What it has told since, if anything; waits so long for it.
    pub(super) fn next(&self, patience: Duration) -> Option<Told> {
        self.told.recv_timeout(patience).ok()
    }
}

fn ask_again_and_again(
    point: &Path,
    interval: Duration,
    ended: &Receiver<()>,
    tell: &Sender<Told>,
    mut waker: UnixStream,
) {
    let (mut last, mut has_answered) = (Instant::now(), false);
    loop {
        if tell.send(Told::Asked(Instant::now())).is_err() {
            return;
        }
        let found = match stats::ask(point) {
            Ok(report) => {
                let seconds = last.elapsed().as_secs_f64();
                (last, has_answered) = (Instant::now(), true);
                Told::Report(Box::new(report), seconds)
            }
            Err(_) if live_mount::find(point).is_err() => Told::Gone,
            Err(failure) if failure.status == Status::Io => Told::Trouble(failure.to_string()),
            // It did answer, so this passes: the questions that it has not answered while it was
            // stopped, for example, are more than it takes at once.
            Err(failure) if has_answered && !live_mount::is_dead(point) => {
                Told::Trouble(failure.to_string())
            }
            Err(failure) => Told::Failed(failure),
        };
        if tell.send(found).is_err() || waker.write_all(&[TOLD]).is_err() {
            return;
        }
        match ended.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Those of the mounts that answer, or do not yet: they are asked at the same time, for so long.
/// And the reason of the first that refuses.
///
/// # Errors
/// The system refuses a thread.
pub(super) fn willing(
    points: Vec<PathBuf>,
    patience: Duration,
) -> io::Result<(Vec<PathBuf>, Option<Failure>)> {
    let (tell, told) = mpsc::channel();
    for (at, point) in points.iter().cloned().enumerate() {
        let tell = tell.clone();
        spawn("asks", move || tell.send((at, stats::ask(&point).err())))?;
    }
    drop(tell);
    let mut refused: Vec<(usize, Failure)> = Vec::new();
    let until = Instant::now() + patience;
    // Ends early when all have answered.
    while let Ok((at, answer)) = told.recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        refused.extend(answer.filter(|why| why.status != Status::Io).map(|why| (at, why)));
    }
    refused.sort_by_key(|(at, _)| *at);
    let is_refused = |at: usize| refused.iter().any(|(which, _)| *which == at);
    let left = points.into_iter().enumerate().filter(|(at, _)| !is_refused(*at));
    let left = left.map(|(_, point)| point).collect();
    Ok((left, refused.into_iter().next().map(|(_, why)| why)))
}
