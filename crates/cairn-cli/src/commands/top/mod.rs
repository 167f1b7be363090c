//! `cairn top`: what a mount does, on a terminal.

mod asking;
mod frame;
mod rates;
mod screen;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cairn_base::stats::Report;
use cairn_base::thread::spawn;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;
use signal_hook::consts::{SIGTSTP, SIGWINCH};

use self::asking::{Asking, TOLD, Told, willing};
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
    /// Where the image is mounted. Without it: all mounts that you may ask, one after the other;
    /// --once and --json take one.
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

/// The mount points to look at: the given one, or all whose daemons do not refuse.
fn points(args: &Args) -> Outcome<Vec<PathBuf>> {
    if let Some(point) = &args.mountpoint {
        live_mount::find(point)?;
        return Ok(vec![point.clone()]);
    }
    let all = live_mount::all()?.into_iter().map(|mount| mount.point).collect();
    let (points, refused) = willing(all, FIRST).map_err(not_started)?;
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
    let view = View { history, mountpoint, silence: None, trouble: None, unicode };
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

/// How long an answer may take before `top` says that there is none.
const SOON: Duration = Duration::from_secs(2);
/// How long `top` waits for the first answer before it takes the terminal: a refusal is printed.
const FIRST: Duration = Duration::from_millis(300);
/// How often the screen is drawn at least.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// The live screen. Threads ask the daemon and take signals, so that a daemon that does not answer
/// holds up no key.
fn watch(args: &Args) -> Outcome {
    let points = points(args)?;
    let (mut woken, waker) = UnixStream::pair().map_err(not_started)?;
    take_signals(waker.try_clone().map_err(not_started)?).map_err(not_started)?;
    let mut shown = Shown::start(points, args.interval, waker)?;
    if let Some(End::Gone) = shown.await_answer(FIRST)? {
        return shown.tell_gone();
    }
    let screen = Screen::enter()?;
    let ended = shown.until_end(&screen, &mut woken);
    drop(screen);
    match ended? {
        End::Key => Ok(()),
        End::Signal(number) => std::process::exit(128 + i32::from(number)),
        End::Gone => shown.tell_gone(),
    }
}

fn not_started(error: io::Error) -> Failure {
    Failure::start("top", &error, "end other programs")
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

enum End {
    Key,
    Signal(u8),
    Gone,
}

/// What the screen shows.
struct Shown {
    points: Vec<PathBuf>,
    at: usize,
    interval: Duration,
    waker: UnixStream,
    asking: Asking,
    history: History,
    /// Since when the daemon owes an answer, and why it gives none, if it has told.
    asked: Option<Instant>,
    trouble: Option<String>,
}

impl Shown {
    fn start(points: Vec<PathBuf>, interval: Duration, waker: UnixStream) -> Outcome<Self> {
        let asking = Asking::start(&points[0], interval, &waker).map_err(not_started)?;
        let history = History::default();
        let (at, asked, trouble) = (0, None, None);
        Ok(Self { points, at, interval, waker, asking, history, asked, trouble })
    }

    /// Shows another mount.
    fn turn_to(&mut self, at: usize) -> Outcome {
        self.asking =
            Asking::start(&self.points[at], self.interval, &self.waker).map_err(not_started)?;
        (self.at, self.history, self.asked, self.trouble) = (at, History::default(), None, None);
        Ok(())
    }

    fn tell_gone(&self) -> Outcome {
        screen::tell(&format!("{}: unmounted", self.points[self.at].display()));
        Ok(())
    }

    /// Takes what has been told, until there is an answer or the time is over.
    fn await_answer(&mut self, patience: Duration) -> Outcome<Option<End>> {
        let until = Instant::now() + patience;
        while self.history.newest().is_none() {
            let left = until.saturating_duration_since(Instant::now());
            let Some(told) = self.asking.next(left) else { break };
            if let Some(end) = self.take(told)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn until_end(&mut self, screen: &Screen, woken: &mut UnixStream) -> Outcome<End> {
        let lost = |error: io::Error| Failure::start("top", &error, "start it again");
        loop {
            while let Some(told) = self.asking.next(Duration::ZERO) {
                if let Some(end) = self.take(told)? {
                    return Ok(end);
                }
            }
            self.draw(screen)?;
            let stdin = io::stdin();
            let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&*woken, PollFlags::IN)];
            match poll(&mut fds, Some(&TICK)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(lost(error.into())),
            }
            let [has_key, is_woken] = fds.map(|fd| !fd.revents().is_empty());
            if has_key && let Some(end) = self.key()? {
                return Ok(end);
            }
            let mut byte = [TOLD];
            if is_woken {
                woken.read_exact(&mut byte).map_err(lost)?;
            }
            if byte == [TOLD] {
                continue;
            }
            match i32::from(byte[0]) {
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
        let view = View {
            history: &self.history,
            mountpoint: &self.points[self.at].to_string_lossy(),
            silence: self.asked.map(|asked| asked.elapsed()).filter(|silence| *silence >= SOON),
            trouble: self.trouble.as_deref(),
            unicode: is_unicode(),
        };
        let mut lines = frame::lines(&view, width, height.saturating_sub(1));
        lines.push(frame::keys(position, width));
        screen.show(&lines)
    }

    fn key(&mut self) -> Outcome<Option<End>> {
        let mut keys = [0; 16];
        let count = match rustix::io::read(io::stdin(), &mut keys) {
            // The terminal has gone.
            Ok(0) | Err(rustix::io::Errno::IO) => return Ok(Some(End::Key)),
            Ok(count) => count,
            Err(_) => return Ok(None),
        };
        for key in &keys[..count] {
            let step = match key {
                b'q' | b'Q' => return Ok(Some(End::Key)),
                b'n' | b'\t' => 1,
                b'p' => self.points.len() - 1,
                _ => 0,
            };
            if step % self.points.len() != 0 {
                self.turn_to((self.at + step) % self.points.len())?;
            }
        }
        Ok(None)
    }

    fn take(&mut self, told: Told) -> Outcome<Option<End>> {
        match told {
            Told::Asked(when) => self.asked = self.asked.or(Some(when)),
            Told::Report(report, seconds) => {
                self.history.push(*report, seconds);
                (self.asked, self.trouble) = (None, None);
            }
            Told::Trouble(why) => self.trouble = Some(why),
            // The others go on.
            Told::Gone | Told::Failed(_) if self.points.len() > 1 => {
                self.points.remove(self.at);
                self.turn_to(self.at % self.points.len())?;
            }
            Told::Gone => return Ok(Some(End::Gone)),
            Told::Failed(failure) => return Err(failure),
        }
        Ok(None)
    }
}
