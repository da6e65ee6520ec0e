//! Looks at how near the writers of a store are to waiting, and tells the gates below it; at the room
//! that is left; and at what each volume carries, and tells placement.
//!
//! RocksDB rings when something changed; between rings it is asked now and then, for bytes owed fall
//! without an event. Asking takes its mutex for a moment, so it is not done more often than that.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use policy::pressure::Gauge;
use policy::purpose::Pressure;
use rocks::Bell;

use super::Db;
use super::scales::Scales;
use crate::volumes::Devices;

/// The longest time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A thread that watches until this is dropped.
pub(super) struct Watch {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(db: &Arc<Db>, devices: Devices, scales: Scales) -> Self {
        let bell = Arc::clone(db.shim().bell());
        let (db, rings) = (Arc::downgrade(db), Arc::clone(&bell));
        let thread = std::thread::Builder::new()
            .name("pressure".into())
            .spawn(move || watch(&db, &devices, scales, &rings))
            .expect("the system has room for one more thread");
        Self { bell, thread: Some(thread) }
    }
}

impl Watch {
    /// Whether the thread still runs: it ends early only where it panicked.
    pub(super) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bell.end();
        if let Some(thread) = self.thread.take() {
            // It only fails where it panicked, and then it said so.
            let _ = thread.join();
        }
    }
}

fn watch(db: &Weak<Db>, devices: &Devices, mut scales: Scales, bell: &Bell) {
    let mut gauge = Gauge::default();
    let mut told = (Pressure::default(), 0);
    while bell.wait(LOOK_EVERY) {
        scales.look();
        let Some(db) = db.upgrade() else { return };
        let pressure = gauge.see(db.pressure());
        db.inner().look_at_room();
        drop(db);
        // A volume that has just come knows nothing.
        let news = (pressure, devices.changes());
        if news != told {
            devices.here().iter().for_each(|device| device.gate().set_pressure(pressure));
            told = news;
        }
    }
}
