//! Writers that were granted room and may not have copied their data into the kernel's cache yet.
//!
//! Between the answer to the question and the copy, a thread can wait for a processor for any time.
//! Its data is not among what a fetch finds, so its grant must outlive the fetch. Linux counts each
//! write(2) of a thread when the call ends (`syscw` in `/proc/TID/task/TID/io`): while that count
//! is as it was at the question, the call is under way.
//!
//! `/proc` is read without the guard's lock: it waits for a thread in execve(2), which may wait for
//! requests of its own.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;

/// A granted write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) node: u64,
    pub(super) reach: Range<u64>,
    pub(super) reserved: bool,
    /// Bytes that were granted.
    pub(super) need: u64,
}

/// A thread, and how many writes it has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    thread: u32,
    finished: u64,
}

impl Writer {
    /// The state of a thread now. `None` if it is gone or `/proc` does not show it.
    pub(super) fn look(thread: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{thread}/task/{thread}/io")).ok()?;
        let count = text.lines().find_map(|line| line.strip_prefix("syscw: "))?;
        Some(Self { thread, finished: count.trim().parse().ok()? })
    }

    fn has_finished(&self) -> bool {
        Self::look(self.thread) != Some(*self)
    }
}

/// The granted writes, by thread. A thread has one write at a time: its next question ends the
/// previous.
#[derive(Default)]
pub(super) struct UnderWay(HashMap<u32, (Writer, Write)>);

impl UnderWay {
    /// The thread waits for the answer to its question.
    pub(super) fn begin(&mut self, writer: Writer, write: Write) {
        self.0.insert(writer.thread, (writer, write));
    }

    /// The threads whose writes may be under way.
    pub(super) fn writers(&self) -> Vec<Writer> {
        self.0.values().map(|(writer, _)| *writer).collect()
    }

    /// Forgets writes that have ended.
    pub(super) fn end(&mut self, ended: &[Writer]) {
        for writer in ended {
            if self.0.get(&writer.thread).is_some_and(|(found, _)| found == writer) {
                self.0.remove(&writer.thread);
            }
        }
    }

    /// The writes that have not ended.
    pub(super) fn left(&self) -> impl Iterator<Item = &Write> {
        self.0.values().map(|(_, write)| write)
    }
}

/// Those of the threads whose writes have ended. Reads `/proc`.
pub(super) fn ended(mut writers: Vec<Writer>) -> Vec<Writer> {
    writers.retain(Writer::has_finished);
    writers
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const WRITE: Write = Write { node: 7, reach: 0..10, reserved: false, need: 10 };

    fn left_of(under_way: &mut UnderWay) -> Vec<Write> {
        let ended = ended(under_way.writers());
        under_way.end(&ended);
        under_way.left().cloned().collect()
    }

    #[test]
    fn a_write_is_under_way_until_the_call_has_ended() {
        let (to_thread, orders) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || {
            let mut sink = fs::File::create("/dev/null").unwrap();
            tell.send(rustix::thread::gettid().as_raw_pid().cast_unsigned()).unwrap();
            for () in orders {
                sink.write_all(b"x").unwrap();
                tell.send(0).unwrap();
            }
        });
        let thread = told.recv().unwrap();
        let mut under_way = UnderWay::default();
        under_way.begin(Writer::look(thread).unwrap(), WRITE);
        assert_eq!(left_of(&mut under_way), [WRITE]);
        to_thread.send(()).unwrap();
        told.recv().unwrap();
        assert_eq!(left_of(&mut under_way), []);
        // The end of the thread ends its write.
        under_way.begin(Writer::look(thread).unwrap(), WRITE);
        drop(to_thread);
        writer.join().unwrap();
        // The kernel lets the thread go a moment after the join.
        while fs::exists(format!("/proc/self/task/{thread}")).unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(left_of(&mut under_way), []);
    }

    #[test]
    fn the_next_question_of_a_thread_replaces_its_write() {
        let mut under_way = UnderWay::default();
        let writer = |finished| Writer { thread: 1, finished };
        under_way.begin(writer(5), WRITE);
        under_way.begin(writer(6), Write { need: 20, ..WRITE });
        // What was found about the earlier write says nothing of the later.
        under_way.end(&[writer(5)]);
        assert_eq!(under_way.left().collect::<Vec<_>>(), [&Write { need: 20, ..WRITE }]);
        under_way.end(&[writer(6)]);
        assert_eq!(under_way.left().count(), 0);
    }
}
