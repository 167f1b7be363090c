//! A runtime that counts running daemons and the notifications of each.

use std::sync::{Arc, Mutex};

use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::{Daemon, DaemonHandle, Event, NoThread, Runtime, RuntimeOver};

/// A daemon that was started.
struct Started {
    name: String,
    wake: Arc<Event>,
    running: bool,
}

pub struct Observed {
    inner: Arc<Simulated>,
    daemons: Arc<Mutex<Vec<Started>>>,
}

impl Observed {
    pub fn new(inner: Arc<Simulated>) -> Arc<Self> {
        Arc::new(Self { inner, daemons: Arc::default() })
    }

    /// Running daemons of this name.
    pub fn running(&self, name: &str) -> usize {
        let daemons = self.daemons.lock().unwrap();
        daemons.iter().filter(|daemon| daemon.running && daemon.name == name).count()
    }

    /// How often the daemons of this name were notified.
    pub fn notified(&self, name: &str) -> u64 {
        let daemons = self.daemons.lock().unwrap();
        daemons.iter().filter(|daemon| daemon.name == name).map(|one| one.wake.generation()).sum()
    }
}

impl RuntimeOver for Observed {
    fn inner(&self) -> &dyn Runtime {
        &*self.inner
    }

    fn spawn(
        &self,
        name: &str,
        wake: Arc<Event>,
        daemon: Arc<dyn Daemon>,
    ) -> Result<DaemonHandle, NoThread> {
        let inner = self.inner.spawn(name, wake.clone(), daemon)?;
        let mut daemons = self.daemons.lock().unwrap();
        let place = daemons.len();
        daemons.push(Started { name: name.to_owned(), wake, running: true });
        let daemons = self.daemons.clone();
        Ok(DaemonHandle::new(move || {
            inner.stop();
            daemons.lock().unwrap()[place].running = false;
        }))
    }
}
