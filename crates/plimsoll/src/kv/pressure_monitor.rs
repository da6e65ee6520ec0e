//! The pressure monitor: tells the gates how near a store's writers are to waiting, and the store how much room is left. Counts of
//! reads are halved here, too.
//!
//! RocksDB notifies it of changes; between notifications it polls, for pending bytes fall without an event. Polling
//! takes RocksDB's mutex briefly, so it does not poll more often.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use policy::pressure::Gauge;
use policy::purpose::Pressure;
use rocks::Notify;
use volume::heartbeat::{Heartbeat, SILENCE_MAX, TaskHealth};

use super::Db;
use super::halving::Halving;
use crate::volumes::{Devices, Pool};

/// The longest time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The thread. Dropping this ends it.
pub(super) struct PressureMonitor {
    notify: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
    heartbeat: Heartbeat,
}

impl PressureMonitor {
    pub(super) fn start(db: &Arc<Db>, pool: &Arc<Pool>) -> Self {
        let notify = Arc::clone(db.shim().notify());
        let heartbeat = Heartbeat::new("watching the pressure", SILENCE_MAX, db.inner().clock());
        let beating = heartbeat.clone();
        let mut halving = Halving::of(db, pool);
        let (db, notified) = (Arc::downgrade(db), Arc::clone(&notify));
        let devices = pool.devices().clone();
        let thread = std::thread::Builder::new()
            .name("pressure".into())
            .spawn(move || {
                beating.supervise(|| watch(&db, &devices, &mut halving, &notified, &beating));
            })
            .expect("the system has room for one more thread");
        Self { notify, thread: Some(thread), heartbeat }
    }
}

impl PressureMonitor {
    pub(super) fn health(&self) -> TaskHealth {
        self.heartbeat.health()
    }
}

impl Drop for PressureMonitor {
    fn drop(&mut self) {
        self.notify.end();
        if let Some(thread) = self.thread.take() {
            // The thread fails only by a panic, which was reported.
            let _ = thread.join();
        }
    }
}

fn watch(
    db: &Weak<Db>,
    devices: &Devices,
    halving: &mut Option<Halving>,
    notify: &Notify,
    heartbeat: &Heartbeat,
) {
    let mut gauge = Gauge::default();
    let mut told = (Pressure::default(), 0);
    while notify.wait(LOOK_EVERY) {
        let Some(db) = db.upgrade() else { return };
        let pressure = gauge.see(db.pressure());
        db.inner().look_at_room();
        drop(db);
        halving.iter_mut().for_each(Halving::look);
        // A new volume has no pressure yet.
        let news = (pressure, devices.changes());
        if news != told {
            devices.here().iter().for_each(|device| device.gate().set_pressure(pressure));
            told = news;
        }
        heartbeat.completed();
    }
}
