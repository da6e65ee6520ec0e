//! A store of time series and everything below it, built in a few lines.
//!
//! ```text
//! Store: engine::series::store (write-ahead log, buffers, blocks) -> engine::log -> devices: gate -> directory
//! ```
//!
//! ```no_run
#![doc = include_str!("../examples/sensors.rs")]
//! ```

use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;
use std::thread::JoinHandle;

use engine::log::StoreId;
pub use engine::series::store::{Figures, Options, Report, Store as Engine};
pub use engine::series::{
    Batch, Database, Durability, Info, Points, Predicate, Scalar, Scan, Selector, SeriesId, Span,
    Test, Value, Written,
};
use engine::series::{Cursor, Series};
use volume::Clock;
use volume::task::block_on;

use crate::volumes::{Device, Devices, Volume};
use crate::{Error, Result};

/// A store of points and its volumes. It dereferences to [`Engine`], which has all calls and does not block: use it
/// with the trait [`engine::series::Series`] and an executor. The calls defined here block the thread.
///
/// Its own threads write blocks, merge, sync and expire. Dropping it closes the store; [`Store::close`] also reports
/// errors.
pub struct Store {
    engine: Engine,
    devices: Devices,
    report: Report,
    clock: Clock,
    threads: Vec<JoinHandle<()>>,
}

/// Builds a store.
#[derive(Default)]
pub struct Builder {
    volumes: Vec<Volume>,
    options: Option<Options>,
    clock: Option<Clock>,
}

impl Store {
    /// Starts to build a store.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The store itself, for protocol servers. A clone does not keep it open.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The findings of the opening: where a crash cut its logs short, and damage.
    #[must_use]
    pub const fn report(&self) -> &Report {
        &self.report
    }

    /// The volumes it is on.
    #[must_use]
    pub const fn devices(&self) -> &Devices {
        &self.devices
    }

    /// The clock of all parts.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Creates a database, or changes how long it keeps points. Durable on return.
    ///
    /// # Errors
    /// `Invalid`: the name, or too many databases; otherwise as the kind says.
    pub fn create_database(&self, database: Database) -> Result<()> {
        Ok(block_on(Series::create_database(&self.engine, database))?)
    }

    /// Stores the valid rows of a batch; [`Written`] names the others. An answered write survives what
    /// [`Options::durability`] says.
    ///
    /// # Errors
    /// `Busy`: try later; `OutOfSpace`: nothing was done; otherwise as the kind says.
    pub fn write(&self, batch: Batch) -> Result<Written> {
        Ok(block_on(Series::write(&self.engine, batch, None))?)
    }

    /// The points of a series in an interval of times, earliest first, piece by piece.
    #[must_use]
    pub fn points(&self, series: SeriesId, span: Span) -> Pieces {
        Pieces(Series::read(&self.engine, series, Scan::of(span)))
    }

    /// The selected series, each with its source and field.
    ///
    /// # Errors
    /// `NotFound`: there is no such database.
    pub fn find(&self, selector: &Selector) -> Result<Vec<Info>> {
        Ok(Series::find(&self.engine, selector, None, usize::MAX)?)
    }

    /// Deletes points that were answered before the call; gives the number of series. As durable as a write.
    ///
    /// # Errors
    /// As the kind says. It needs no room.
    pub fn delete(&self, selector: Selector, span: Span) -> Result<u64> {
        Ok(block_on(Series::delete(&self.engine, selector, span))?)
    }

    /// Writes buffered rows as blocks, and closes store and gates: on return everything is durable.
    ///
    /// # Errors
    /// As the kind says; answered writes stay as durable as they were.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let closed = block_on(self.engine.close());
        for thread in self.threads.drain(..) {
            // The thread fails only by a panic, which was reported.
            let _ = thread.join();
        }
        self.devices.close();
        Ok(closed?)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // After `close` no thread is left.
        if !self.threads.is_empty()
            && let Err(error) = self.end()
        {
            tracing::error!(%error, "closing a store of time series failed");
        }
    }
}

impl Deref for Store {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

/// The points of a series, piece by piece, read on demand.
pub struct Pieces(Box<dyn Cursor>);

impl Iterator for Pieces {
    type Item = Result<Points>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(self.0.next()).map_err(Error::from).transpose()
    }
}

impl Builder {
    /// Adds a volume.
    #[must_use]
    pub fn volume(mut self, volume: Volume) -> Self {
        self.volumes.push(volume);
        self
    }

    /// Adds volumes.
    #[must_use]
    pub fn volumes(mut self, volumes: impl IntoIterator<Item = Volume>) -> Self {
        self.volumes.extend(volumes);
        self
    }

    /// Sets the options of the store. Default: [`Options::new`] for its volumes.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = Some(options);
        self
    }

    /// Uses an existing clock. By default it starts one.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens volumes and store, or creates the store on blank volumes. Blocks for as long as a recovery takes.
    ///
    /// # Errors
    /// `Away`: a volume is unavailable, and the store needs all of them. The message names the volume, and what to do.
    pub fn open(self) -> Result<Store> {
        let Self { volumes, options, clock } = self;
        let clock = clock.unwrap_or_else(Clock::real);
        let devices = Devices::open(&volumes, &clock)?;
        if let Some(away) = devices.away().first() {
            return Err(Error::Away(away.to_string()));
        }
        let options = options
            .unwrap_or_else(|| Options::new(u16::try_from(volumes.len()).unwrap_or(u16::MAX)));
        let member = |device: &Arc<Device>| (device.name().to_owned(), device.volume());
        let members = devices.here().iter().map(member).collect();
        // Differs from store to store.
        let any = || u128::from(RandomState::new().hash_one(0));
        let id = StoreId((any() << 64 | any()).to_le_bytes());
        let (engine, report) = block_on(Engine::open(members, options, clock.clone(), Some(id)))?;
        let tending = engine.tasks().into_iter().enumerate().map(|(number, task)| {
            std::thread::Builder::new()
                .name(format!("series {number}"))
                .spawn(move || block_on(task))
                .expect("the system has room for one more thread")
        });
        let threads = tending.collect();
        Ok(Store { engine, devices, report, clock, threads })
    }
}

#[cfg(test)]
mod tests;
