//! `cairn top`: what a mount does, on a terminal.

mod frame;
mod rates;
mod screen;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use cairn_base::stats::Report;
use cairn_base::thread::spawn;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;
use signal_hook::consts::{SIGTSTP, SIGWINCH};

use self::frame::View;
use self::rates::History;
use self::screen::{Screen, is_unicode};
use super::{live_mount, stats};
use crate::failure::{Failure, Outcome, Status};
use crate::output::with_stdout;
use crate::{json, signals};

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn top /mnt
  cairn top --once --json --interval 0.2 /mnt

Keys: q ends, n and p show the next and the previous mount. Latencies are of the time since the \
last look. The JSON objects are described in docs/control.md.")]
pub struct Args {
    /// Print one frame, after one interval, and end.
    #[arg(long)]
    pub once: bool,
    /// As JSON: an object on each line, one after each interval, until the volume is unmounted.
    #[arg(long)]
    pub json: bool,
    /// Time between two looks.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = stats::seconds)]
    pub interval: Duration,
    /// Where the image is mounted. Without it: all mounts that answer, one after the other; --once
    /// and --json take one.
    pub mountpoint: Option<PathBuf>,
}

/// Shows what a mount does, until a key or a signal ends it, or the volume is unmounted.
///
/// # Errors
/// No Cairn mount is there, its daemon cannot be reached, or there is no terminal.
pub fn run(args: &Args) -> Outcome {
    if !args.once && !args.json {
        return watch(args);
    }
    let printed = print(args);
    match printed {
        Err(failure) if args.json => {
            with_stdout(|output| json::failure(output, &failure))?;
            Err(failure)
        }
        printed => printed,
    }
}

/// The mount points to look at: the given one, or all whose daemons answer.
fn points(args: &Args) -> Outcome<Vec<PathBuf>> {
    if let Some(point) = &args.mountpoint {
        return Ok(vec![point.clone()]);
    }
    let (mut points, mut refused) = (Vec::new(), None);
    for mount in live_mount::all()? {
        match stats::ask(&mount.point) {
            Ok(_) => points.push(mount.point),
            Err(failure) => refused = refused.or(Some(failure)),
        }
    }
    match refused {
        _ if !points.is_empty() => Ok(points),
        Some(failure) => Err(failure),
        None => Err(Failure::new(
            Status::Failed,
            "top: nothing is mounted: mount an image first (cairn mount IMAGE DIRECTORY)",
        )),
    }
}

/// For programs.
fn print(args: &Args) -> Outcome {
    let points = points(args)?;
    let [point] = points.as_slice() else {
        let first = points.first().map(|point| point.display().to_string()).unwrap_or_default();
        let text = format!("top: there are several mounts: give one of them, such as {first}");
        return Err(Failure::usage(text));
    };
    let mut history = History::default();
    let mut last = Instant::now();
    history.push(stats::ask(point)?, 0.0);
    loop {
        thread::sleep(args.interval);
        let report = match stats::ask(point) {
            Ok(report) => report,
            Err(_) if !args.once && live_mount::find(point).is_err() => return Ok(()),
            Err(failure) => return Err(failure),
        };
        let seconds = last.elapsed().as_secs_f64();
        last = Instant::now();
        history.push(report, seconds);
        match args.json {
            true => with_stdout(|output| {
                output.write_fmt(format_args!("{}\n", object(&history, seconds)))
            })?,
            false => print_frame(&history, point)?,
        }
        if args.once {
            return Ok(());
        }
    }
}

fn print_frame(history: &History, point: &Path) -> Outcome {
    let mountpoint = &*point.to_string_lossy();
    let unicode = is_unicode();
    let view = View { history, mountpoint, trouble: None, unicode };
    let lines = frame::lines(&view, 80, usize::MAX);
    let lines = lines.iter().map(|(_, line)| format!("{}\n", line.trim_end()));
    let text: String = lines.collect();
    with_stdout(|output| output.bytes(text.as_bytes()))
}

/// What the mount did in the last interval.
fn object(history: &History, seconds: f64) -> Value {
    let mut object = json::Object::new();
    let text = |path| history.newest().and_then(|report: &Report| report.text(path));
    object.insert("mountpoint".into(), text("mount.mountpoint").into());
    object.insert("format".into(), text("state.format").into());
    object.insert("interval_s".into(), seconds.into());
    for series in history.series() {
        object.insert(series.figure.key.into(), series.now().into());
    }
    Value::Object(object)
}

/// What the thread that asks the daemon has found.
enum Found {
    Report(Report, f64),
    Trouble(String),
    /// It is not mounted any more.
    Gone,
    /// Its daemon is not there.
    Failed(Failure),
}

/// Bytes on the stream that wakes the screen: this one, or the number of a signal.
const FOUND: u8 = 0;

/// The live screen. Threads ask the daemon and take signals, so that a daemon that does not answer
/// holds up no key.
fn watch(args: &Args) -> Outcome {
    let points = points(args)?;
    // Before the screen, so that the error is on the usual page.
    stats::ask(&points[0])?;
    let failed = |error: io::Error| Failure::start("top", &error, "end other programs");
    let (mut woken, waker) = UnixStream::pair().map_err(failed)?;
    take_signals(waker.try_clone().map_err(failed)?).map_err(failed)?;
    let (found, finds) = mpsc::channel();
    let (asks, asked) = mpsc::channel();
    let (first, interval) = (points[0].clone(), args.interval);
    spawn("asks", move || ask_again_and_again(first, interval, &asked, &found, waker))
        .map_err(failed)?;
    let screen = Screen::enter()?;
    let mut shown = Shown { points: &points, at: 0, history: History::default(), trouble: None };
    let ended = shown.until_end(&screen, &mut woken, &finds, &asks);
    drop(screen);
    match ended? {
        End::Key => Ok(()),
        End::Signal(number) => std::process::exit(128 + i32::from(number)),
        End::Gone => {
            screen::tell(&format!("{}: unmounted", points[shown.at].display()));
            Ok(())
        }
    }
}

/// Sends each signal's number.
fn take_signals(mut to: UnixStream) -> io::Result<()> {
    let mut signals = signals::ending()?;
    signals.add_signal(SIGWINCH)?;
    if !signals::is_ignored(SIGTSTP) {
        signals.add_signal(SIGTSTP)?;
    }
    spawn("signals", move || {
        for signal in signals.forever() {
            let _ = to.write_all(&[u8::try_from(signal).unwrap_or(u8::MAX)]);
        }
    })?;
    Ok(())
}

/// Asks for the report of a mount after each interval, and at once for that of another.
fn ask_again_and_again(
    mut point: PathBuf,
    interval: Duration,
    asked: &Receiver<PathBuf>,
    found: &Sender<(PathBuf, Found)>,
    mut waker: UnixStream,
) {
    let mut last = Instant::now();
    loop {
        let find = match stats::ask(&point) {
            Ok(report) => {
                let seconds = last.elapsed().as_secs_f64();
                last = Instant::now();
                Found::Report(report, seconds)
            }
            Err(_) if live_mount::find(&point).is_err() => Found::Gone,
            Err(failure) if failure.status == Status::Io => Found::Trouble(failure.to_string()),
            Err(failure) => Found::Failed(failure),
        };
        if found.send((point.clone(), find)).is_err() || waker.write_all(&[FOUND]).is_err() {
            return;
        }
        match asked.recv_timeout(interval) {
            Ok(other) => point = other,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

enum End {
    Key,
    Signal(u8),
    Gone,
}

/// What the screen shows.
struct Shown<'a> {
    points: &'a [PathBuf],
    at: usize,
    history: History,
    trouble: Option<String>,
}

impl Shown<'_> {
    fn until_end(
        &mut self,
        screen: &Screen,
        woken: &mut UnixStream,
        finds: &Receiver<(PathBuf, Found)>,
        asks: &Sender<PathBuf>,
    ) -> Outcome<End> {
        let lost = |error: io::Error| Failure::start("top", &error, "start it again");
        loop {
            self.draw(screen)?;
            let stdin = io::stdin();
            let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&*woken, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(lost(error.into())),
            }
            let [has_key, is_woken] = fds.map(|fd| !fd.revents().is_empty());
            if has_key && let Some(end) = self.key(asks)? {
                return Ok(end);
            }
            if !is_woken {
                continue;
            }
            let mut byte = [0];
            woken.read_exact(&mut byte).map_err(lost)?;
            match i32::from(byte[0]) {
                0 => {
                    if let Some(end) = self.take(finds)? {
                        return Ok(end);
                    }
                }
                SIGWINCH => {}
                SIGTSTP => {
                    screen.lend();
                    let _ = kill_process(getpid(), Signal::STOP);
                    screen.take()?;
                }
                _ => return Ok(End::Signal(byte[0])),
            }
        }
    }

    fn draw(&self, screen: &Screen) -> Outcome {
        let (width, height) = screen.size();
        let position = (self.at + 1, self.points.len());
        let mountpoint = &*self.points[self.at].to_string_lossy();
        let (history, trouble) = (&self.history, self.trouble.as_deref());
        let view = View { history, mountpoint, trouble, unicode: is_unicode() };
        let mut lines = frame::lines(&view, width, height.saturating_sub(1));
        lines.push(frame::keys(position, width));
        screen.show(&lines)
    }

    fn key(&mut self, asks: &Sender<PathBuf>) -> Outcome<Option<End>> {
        let mut keys = [0; 16];
        let count = match rustix::io::read(io::stdin(), &mut keys) {
            // The terminal has gone.
            Ok(0) | Err(rustix::io::Errno::IO) => return Ok(Some(End::Key)),
            Ok(count) => count,
            Err(_) => return Ok(None),
        };
        let step = match keys[..count] {
            [b'q' | b'Q', ..] => return Ok(Some(End::Key)),
            [b'n' | b'\t', ..] => 1,
            [b'p', ..] => self.points.len() - 1,
            _ => 0,
        };
        if step % self.points.len() != 0 {
            self.at = (self.at + step) % self.points.len();
            (self.history, self.trouble) = (History::default(), None);
            let _ = asks.send(self.points[self.at].clone());
        }
        Ok(None)
    }

    fn take(&mut self, finds: &Receiver<(PathBuf, Found)>) -> Outcome<Option<End>> {
        let Ok((point, found)) = finds.try_recv() else { return Ok(None) };
        if point != self.points[self.at] {
            return Ok(None);
        }
        match found {
            Found::Report(report, seconds) => {
                self.history.push(report, seconds);
                self.trouble = None;
            }
            Found::Trouble(why) => self.trouble = Some(why),
            Found::Gone => return Ok(Some(End::Gone)),
            Found::Failed(failure) => return Err(failure),
        }
        Ok(None)
    }
}
