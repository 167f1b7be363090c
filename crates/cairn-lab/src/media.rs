//! [`OnMedium`]: a fast device with the timing of storage that people have.
//!
//! Requests of all threads wait in one queue. A thread has one request in it at a time, so a long
//! batch does not keep others out. A write is sequential if it begins where one of the last writes
//! has ended; how many of these count is the number of streams that the medium keeps apart.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::{Batch, BlockDevice, Completion, Geometry, Request};

use crate::clock::Clock;

/// Bytes that a time is given for.
const BLOCK: u64 = 4096;

/// What requests cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Medium {
    /// Id and title of its table.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// The first block of a write elsewhere.
    pub(crate) random: Duration,
    /// Each further block.
    pub(crate) sequential: Duration,
    /// Streams of writes that it keeps apart.
    pub(crate) streams: usize,
    /// A block that is read.
    pub(crate) read: Duration,
    /// A flush, a preflush, or forced unit access.
    pub(crate) flush: Duration,
}

/// From the slowest to the fastest.
pub(crate) const ALL: [Medium; 4] = [
    Medium {
        id: "sd-card",
        title: "SD card",
        random: Duration::from_millis(5),
        sequential: Duration::from_micros(200),
        streams: 2,
        read: Duration::from_micros(500),
        flush: Duration::from_millis(8),
    },
    Medium {
        id: "emmc",
        title: "eMMC",
        random: Duration::from_micros(400),
        sequential: Duration::from_micros(40),
        streams: 4,
        read: Duration::from_micros(150),
        flush: Duration::from_millis(3),
    },
    Medium {
        id: "sata-ssd",
        title: "SATA SSD",
        random: Duration::from_micros(50),
        sequential: Duration::from_micros(8),
        streams: 8,
        read: Duration::from_micros(80),
        flush: Duration::from_micros(1000),
    },
    Medium {
        id: "nvme",
        title: "NVMe",
        random: Duration::from_micros(15),
        sequential: Duration::from_micros(2),
        streams: 8,
        read: Duration::from_micros(60),
        flush: Duration::from_micros(300),
    },
];

/// What the device has done and promised.
struct Queue {
    /// Time at which everything so far is served.
    busy_until: Duration,
    /// Time spent serving.
    busy: Duration,
    /// Bytes written.
    written: u64,
    /// Where the last writes ended, newest last.
    ends: VecDeque<u64>,
}

/// A device that takes its time, by a clock.
pub(crate) struct OnMedium {
    inner: Arc<dyn BlockDevice>,
    medium: Medium,
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
    is_over: AtomicBool,
}

impl OnMedium {
    pub(crate) fn new(inner: Arc<dyn BlockDevice>, medium: Medium, clock: Arc<dyn Clock>) -> Self {
        let queue = Queue {
            busy_until: Duration::ZERO,
            busy: Duration::ZERO,
            written: 0,
            ends: VecDeque::new(),
        };
        let queue = Mutex::new(Rank::Leaf, queue);
        Self { inner, medium, clock, queue, is_over: AtomicBool::new(false) }
    }

    /// Takes no time any more: what follows is not measured.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Time that was spent serving requests.
    pub(crate) fn busy(&self) -> Duration {
        self.queue.lock().busy
    }

    /// Bytes that were written.
    pub(crate) fn written(&self) -> u64 {
        self.queue.lock().written
    }

    fn serve(&self, cost: impl FnOnce(&mut Queue) -> Duration) {
        if self.is_over.load(Relaxed) {
            return;
        }
        let served = {
            let mut queue = self.queue.lock();
            let cost = cost(&mut queue);
            queue.busy_until = queue.busy_until.max(self.clock.now()) + cost;
            queue.busy += cost;
            queue.busy_until
        };
        self.clock.sleep_until(served);
    }

    fn serve_flush(&self) {
        self.serve(|_| self.medium.flush);
    }
}

impl Medium {
    fn of(&self, request: &Request, queue: &mut Queue) -> Duration {
        match request {
            Request::Read { buf, .. } => self.read * blocks(buf.len() as u64),
            Request::Write { offset, bufs } => {
                let bytes: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
                let first = if queue.goes_on(*offset, *offset + bytes, self.streams) {
                    self.sequential
                } else {
                    self.random
                };
                queue.written += bytes;
                first + self.sequential * blocks(bytes).saturating_sub(1)
            }
            Request::Discard { .. } | Request::WriteZeroes { .. } => Duration::ZERO,
        }
    }
}

impl Queue {
    /// True if one of the last writes ended at `from`. The write to `to` takes its place.
    fn goes_on(&mut self, from: u64, to: u64, streams: usize) -> bool {
        let found = self.ends.iter().position(|end| *end == from);
        if let Some(at) = found {
            self.ends.remove(at);
        }
        self.ends.push_back(to);
        if self.ends.len() > streams {
            self.ends.pop_front();
        }
        found.is_some()
    }
}

fn blocks(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(BLOCK)).unwrap_or(u32::MAX)
}

impl BlockDevice for OnMedium {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        if batch.durability.preflush {
            self.serve_flush();
        }
        for request in &batch.requests {
            self.serve(|queue| self.medium.of(request, queue));
        }
        let is_read = |request: &Request| matches!(request, Request::Read { .. });
        if batch.durability.fua && !batch.requests.iter().all(is_read) {
            self.serve_flush();
        }
        self.inner.submit(batch)
    }

    fn flush(&self) -> cairn_block::Result<()> {
        self.serve_flush();
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Model;
    use cairn_block::memory::MemoryDevice;
    use cairn_block::{Bytes, Durability};

    #[test]
    fn a_write_that_goes_on_is_cheap() {
        let model = Model::new();
        let clock: Arc<dyn Clock> = model.clone();
        let _seated = model.seat().sit();
        let (card, memory) = (ALL[0], Arc::new(MemoryDevice::new(1 << 20)));
        let device = OnMedium::new(memory, card, clock);
        let ms = |time: u64| Duration::from_micros(100 * time);
        let took = |offset: u64, blocks: usize, preflush, fua| {
            let before = model.now();
            let bufs = vec![Bytes::from(vec![0; 4096 * blocks])];
            let requests = vec![Request::Write { offset, bufs }];
            device
                .submit(Batch { requests, durability: Durability { preflush, fua } })
                .wait()
                .unwrap();
            model.now() - before
        };
        assert_eq!(took(0, 1, false, false), ms(50));
        assert_eq!(took(4096, 2, false, false), ms(4), "it goes on");
        assert_eq!(took(65536, 3, false, false), ms(54), "another stream");
        assert_eq!(took(12288, 1, false, false), ms(2), "both are kept apart");
        assert_eq!(took(524_288, 1, true, true), ms(50 + 160), "with two flushes");
        assert_eq!(took(77824, 1, false, false), ms(50), "that stream is forgotten");
        assert_eq!(device.busy(), model.now());
        device.stop();
        assert_eq!(took(0, 1, true, true), Duration::ZERO);
    }
}
