//! The guard's thread: it follows the room on the volume, and answers the questions whose answer
//! must wait for the kernel.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cairn_base::system_error::with_remedy;
use cairn_base::thread::spawn;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::bound::Bound;
use super::{Ask, under_way};
use crate::core::Core;

/// A volume is near full when its room is below twice the kernel's bound plus this, which covers
/// writes that the kernel takes before it is told.
const SLACK: u64 = 32 << 20;
/// How long a granted write usually takes to reach the kernel's cache.
const UNDER_WAY: Duration = Duration::from_millis(20);
/// How often the kernel's data is fetched for one question while other writes are under way: for a
/// second.
const FETCHES: u32 = 50;
/// How many times the kernel's bound may arrive while the kernel is being told to ask.
const UNASKED: u64 = 4;
/// How many inodes are told to the kernel between two looks for inodes that are being written.
const BATCH: usize = 256;

/// The kernel's side of the mount.
pub(crate) struct Mounted {
    pub(crate) point: PathBuf,
    /// `major:minor`.
    pub(crate) device: Option<String>,
    pub(crate) root: bool,
}

/// The guard's thread, which ends when this is dropped.
pub(crate) struct Keeper {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread for a mount whose first request has not been served yet.
    pub(crate) fn start(core: Arc<Core>, mounted: Mounted) -> Self {
        let keeping = Keeping {
            bound: Bound::new(mounted.device.as_deref(), mounted.root),
            mounted,
            core: core.clone(),
        };
        if !core.guard.on {
            return Self { core, thread: None };
        }
        keeping.look(true);
        let spawned = spawn("cairn-fuse-room", move || keeping.run());
        if let Err(error) = &spawned {
            // Without the thread, questions would get no answer.
            core.counters.room.near_full.store(false, Ordering::Release);
            tracing::warn!(
                "no thread to watch the room on the volume: a full volume is reported only at \
                 fsync: {}",
                with_remedy(error, "mount again")
            );
        }
        Self { core, thread: spawned.ok() }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.core.guard.end();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// What the thread works with.
struct Keeping {
    core: Arc<Core>,
    bound: Bound,
    mounted: Mounted,
}

impl Keeping {
    fn run(&self) {
        let core = self.core.clone();
        loop {
            let (look, settle, asked) = {
                let mut state = core.guard.state.lock();
                while !state.look && !state.settle && state.asked.is_empty() && !state.ended {
                    core.guard.wake.wait(&mut state);
                }
                if state.ended {
                    return;
                }
                (
                    std::mem::take(&mut state.look),
                    std::mem::take(&mut state.settle),
                    std::mem::take(&mut state.asked),
                )
            };
            if settle {
                self.fetch();
            }
            if look {
                self.look(false);
            }
            self.answer(asked);
        }
    }

    /// Sets the bound and the marks for the present room. When the volume becomes near full, makes
    /// the kernel ask before it writes.
    fn look(&self, first: bool) {
        let guard = &self.core.guard;
        let room = self.core.fs().room(false);
        let bound = self.bound.follow(room);
        let begins = bound.saturating_mul(2).saturating_add(SLACK);
        let was = guard.is_near();
        let near = room < if was { begins.saturating_mul(2) } else { begins };
        let (low, high) = match near {
            true => (0, begins.saturating_mul(2)),
            false if self.bound.can_shrink(bound) => {
                (begins.max(bound.saturating_mul(8)), bound.saturating_mul(32))
            }
            false => (begins, u64::MAX),
        };
        guard.low.store(low, Ordering::Relaxed);
        guard.high.store(high, Ordering::Relaxed);
        if near && !was && !first {
            // Set before `near_full`, because data that arrives afterwards is compared with the
            // grants.
            guard.state.lock().expect_unasked(bound.saturating_mul(UNASKED));
        }
        guard.counters.room.near_full.store(near, Ordering::Release);
        if near && !was && !first {
            self.tell(bound);
            if self.core.fs().reserved_for().is_some() {
                // Fetched while there is room. From then on all grants are known, so pages of
                // shared mappings are recognised and kept from root-reserved blocks.
                self.fetch();
            }
        }
    }

    /// Makes all attributes stale that the kernel has, so that it asks. Until then it may have
    /// taken as much data as its bound allows.
    fn tell(&self, bound: u64) {
        let guard = &self.core.guard;
        guard.telling.store(true, Ordering::Release);
        guard.state.lock().grant_anywhere(bound);
        // Twice, because requests that began before `near_full` was set may have sent valid
        // attributes after the first round.
        for _ in 0..2 {
            for inodes in self.core.fs().referenced().chunks(BATCH) {
                let written = std::mem::take(&mut guard.state.lock().written);
                let nodes =
                    written.into_iter().chain(inodes.iter().map(|ino| self.core.node(*ino)));
                nodes.for_each(|node| self.core.kernel.attributes_changed(node));
            }
        }
        guard.telling.store(false, Ordering::Release);
        guard.state.lock().grant_anywhere(bound);
    }

    /// Answers questions of writes that did not fit beside the granted writes.
    fn answer(&self, asked: Vec<Ask>) {
        let (guard, fs) = (&self.core.guard, self.core.fs());
        if asked.is_empty() {
            return;
        }
        // `statfs` releases reservations that no data uses.
        let _ = fs.statfs();
        for ask in asked {
            if guard.admits(fs, &ask) {
                ask.grant();
                continue;
            }
            let admitted = || self.fetch_for(&ask).then_some(()).ok_or(Errno::NOSPC);
            match self.core.removals.taking_space(admitted) {
                Ok(()) => ask.grant(),
                Err(error) => {
                    guard.counters.room.refused.add(1);
                    ask.reply.error(error);
                }
            }
        }
    }

    /// Makes the kernel send its dirty data until the write is admitted, or it is known that there
    /// is no room. While other granted writes are on their way to the kernel's cache, that is not
    /// known.
    fn fetch_for(&self, ask: &Ask) -> bool {
        let guard = &self.core.guard;
        for _ in 0..FETCHES {
            self.fetch();
            if guard.admits(self.core.fs(), ask) {
                return true;
            }
            if guard.state.lock().left == 0 {
                return false;
            }
            thread::sleep(UNDER_WAY);
        }
        false
    }

    /// Makes the kernel send its dirty data.
    fn fetch(&self) {
        let (guard, fs) = (&self.core.guard, self.core.fs());
        let last = guard.state.lock().last;
        // A write that was just granted has not reached the kernel's cache yet.
        if let Some(left) = last.and_then(|last| UNDER_WAY.checked_sub(last.elapsed())) {
            thread::sleep(left);
        }
        let writers = guard.state.lock().under_way.writers();
        let ended = under_way::ended(writers);
        let (granted, places, anywhere) = {
            let mut state = guard.state.lock();
            let granted = state.end_grants(&ended);
            let grants = &state.earlier_grants;
            (granted, grants.places().collect::<Vec<_>>(), grants.anywhere)
        };
        if granted == 0 && places.is_empty() && !anywhere {
            return;
        }
        guard.counters.room.fetched.add(1);
        // `syncfs` starts the transfer, in large pieces. Since Linux 6.16 it does not wait for a
        // FUSE server.
        if let Some(root) = self.open_root()
            && let Err(error) = rustix::fs::syncfs(&root)
        {
            tracing::debug!("not all dirty pages of the kernel were written: {error}");
        }
        if anywhere {
            fs.referenced()
                .iter()
                .for_each(|ino| self.core.kernel.collect_dirty_pages(self.core.node(*ino)));
        }
        for (node, range) in places {
            self.core.kernel.collect_dirty_range(node, range);
        }
        guard.state.lock().granted -= granted;
        let _ = fs.statfs();
    }

    /// The root of the mount, seen as a process sees it.
    fn open_root(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.mounted.point, flags, Mode::empty()).ok()?;
        let device = rustix::fs::fstat(&root).ok()?.st_dev;
        let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        (Some(device) == self.mounted.device).then_some(root)
    }
}
