//! `/metrics`: the figures of the program as OpenMetrics, read afresh for each scrape.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use engine::health::StoreHealth;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::{Admin, Health};
use crate::figures::{Cache, Class, Copies, Log, LogVolume, Memory, Series, Volume, Waits};
use crate::http::{self, Times};
use crate::{mqtt, resp};

/// The media type.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All figures, as text.
pub(super) fn text(admin: &Admin, health: Health) -> String {
    let figures = &admin.figures;
    let scrape = Scrape {
        uptime_seconds: figures.uptime().as_secs_f64(),
        health,
        memory: figures.memory(),
        volumes: figures.volumes(),
        cache: figures.cache(),
        copies: figures.copies(),
        log: figures.log(),
        resp: admin.resp.as_deref().map(|endpoint| Resp::of(&endpoint.stats)),
        series: figures.series(),
        http: admin.http.as_deref().map(|endpoint| Http::of(&endpoint.stats)),
        mqtt: admin.mqtt.as_deref().map(Mqtt::of),
    };
    let mut registry = Registry::with_prefix("plimsoll");
    registry.register_collector(Box::new(scrape));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("a string takes any text");
    out
}

/// The figures at one moment: a collector must own what it encodes.
#[derive(Debug)]
struct Scrape {
    uptime_seconds: f64,
    health: Health,
    memory: Memory,
    volumes: Vec<Volume>,
    cache: Option<Cache>,
    copies: Option<Copies>,
    log: Option<Log>,
    resp: Option<Resp>,
    series: Option<Series>,
    http: Option<Http>,
    mqtt: Option<Mqtt>,
}

#[derive(Debug)]
struct Resp {
    clients: u64,
    connections: u64,
    rejected: u64,
    shed: u64,
    bytes_in: u64,
    bytes_out: u64,
    buffered: u64,
    hits: u64,
    misses: u64,
    errors: u64,
    calls: Vec<(&'static str, u64)>,
}

impl Resp {
    fn of(stats: &resp::Stats) -> Self {
        Self {
            clients: stats.clients.get(),
            connections: stats.connections.get(),
            rejected: stats.rejected.get(),
            shed: stats.shed.get(),
            bytes_in: stats.bytes_in.get(),
            bytes_out: stats.bytes_out.get(),
            buffered: stats.buffered.get(),
            hits: stats.hits.get(),
            misses: stats.misses.get(),
            errors: stats.errors.get(),
            calls: stats.calls().collect(),
        }
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        page.gauge("uptime_seconds", "Time since the program started", self.uptime_seconds)?;
        self.health.encode(&mut page)?;
        page.gauge("memory_resident_bytes", "Memory of the process", self.memory.resident)?;
        page.gauge("store_memory_bytes", "Caches and buffers of the store", self.memory.store)?;
        page.gauge(
            "store_memory_max_bytes",
            "Limit of the store's caches and buffers",
            self.memory.store_max,
        )?;
        self.volumes(&mut page)?;
        self.classes(&mut page)?;
        self.cache.as_ref().map_or(Ok(()), |cache| cache.encode(&mut page))?;
        self.copies.as_ref().map_or(Ok(()), |copies| copies.encode(&mut page))?;
        self.log.as_ref().map_or(Ok(()), |log| log.encode(&mut page))?;
        self.resp.as_ref().map_or(Ok(()), |resp| resp.encode(&mut page))?;
        self.series.as_ref().map_or(Ok(()), |series| series.encode(&mut page))?;
        self.http.as_ref().map_or(Ok(()), |http| http.encode(&mut page))?;
        self.mqtt.as_ref().map_or(Ok(()), |mqtt| mqtt.encode(&mut page))
    }
}

impl Health {
    fn encode(&self, page: &mut Page<'_>) -> fmt::Result {
        page.gauge(
            "healthy",
            "Whether no volume and no store has a problem",
            u64::from(self.is_healthy()),
        )?;
        let stores = |figure: fn(&StoreHealth) -> u64| {
            let label = |name| vec![("store", name)];
            self.stores.iter().map(move |(name, store)| (label(name.as_str()), figure(store)))
        };
        page.gauges(
            "store_takes_writes",
            "Whether the store accepts users' writes",
            stores(|store| store.writes_refused.is_none().into()),
        )?;
        page.gauges(
            "store_serves_reads",
            "Whether the store serves all reads",
            stores(|store| store.reads_refused.is_none().into()),
        )?;
        page.gauges(
            "store_copies_short",
            "Objects with fewer copies than the pool's setting asks for",
            stores(|store| store.copies_short),
        )?;
        page.gauges(
            "store_damaged",
            "Damaged places that are not repaired",
            stores(|store| store.damaged),
        )?;
        page.gauges(
            "store_upkeep",
            "Whether all background tasks of the store run",
            stores(|store| store.upkeep_stopped.is_none().into()),
        )?;
        let volumes = self.volumes.iter();
        page.gauges(
            "volume_answers",
            "Whether the volume answers",
            volumes
                .map(|(name, wrong)| (vec![("volume", name.as_str())], u64::from(wrong.is_none()))),
        )
    }
}

/// The listener of time series.
#[derive(Debug)]
struct Http {
    connections: u64,
    accepted: u64,
    rejected: u64,
    shed: u64,
    requests: Vec<(&'static str, &'static str, u64)>,
    times: [(&'static str, Waits); 2],
    received: u64,
    sent: u64,
    statements: u64,
    rows: u64,
    points: u64,
    dropped: u64,
    repeated: u64,
    busy: u64,
}

impl Http {
    fn of(stats: &http::Stats) -> Self {
        let times =
            |times: &Times| Waits { total: times.total(), counts: times.octaves().collect() };
        Self {
            connections: stats.connections.open.load(Relaxed),
            accepted: stats.connections.accepted.load(Relaxed),
            rejected: stats.connections.rejected.load(Relaxed),
            shed: stats.connections.shed.load(Relaxed),
            requests: stats.requests().collect(),
            times: [("write", times(&stats.write_times)), ("query", times(&stats.query_times))],
            received: stats.bytes_in.load(Relaxed),
            sent: stats.bytes_out.load(Relaxed),
            statements: stats.queries.load(Relaxed),
            rows: stats.rows.load(Relaxed),
            points: stats.points.load(Relaxed),
            dropped: stats.dropped.load(Relaxed),
            repeated: stats.repeated.load(Relaxed),
            busy: stats.busy.load(Relaxed),
        }
    }

    fn encode(&self, page: &mut Page<'_>) -> fmt::Result {
        page.gauge("http_connections_open", "Connections open", self.connections)?;
        page.counter("http_connections", "Connections accepted", self.accepted)?;
        page.counter("http_rejected_connections", "Connections turned away", self.rejected)?;
        page.counter(
            "http_shed_connections",
            "Silent or idle connections closed for new ones",
            self.shed,
        )?;
        let requests = self.requests.iter();
        page.counters(
            "http_requests",
            "Requests answered, by kind and outcome",
            requests
                .map(|&(wanted, outcome, n)| (vec![("wanted", wanted), ("outcome", outcome)], n)),
        )?;
        let times = self.times.iter();
        page.family(
            "http_request_seconds",
            "How long requests took",
            times.map(|(wanted, times)| (vec![("wanted", *wanted)], Histogram(times))),
        )?;
        page.counter("http_received_bytes", "Bytes of request bodies, as received", self.received)?;
        page.counter("http_sent_bytes", "Bytes of answers to queries", self.sent)?;
        page.counter("http_statements", "Statements received", self.statements)?;
        page.counter("http_rows", "Rows stored", self.rows)?;
        page.counter("http_points", "Points in the stored rows", self.points)?;
        page.counter("http_dropped_rows", "Lines and rows refused", self.dropped)?;
        page.counter(
            "http_repeated_batches",
            "Batches sent again after they were stored",
            self.repeated,
        )?;
        page.counter("http_busy", "Writes refused for now, to be sent again", self.busy)
    }
}

/// The subscriber to a broker.
#[derive(Debug)]
struct Mqtt {
    connected: u64,
    connects: u64,
    messages: u64,
    received: u64,
    rows: u64,
    dropped: u64,
}

impl Mqtt {
    fn of(stats: &mqtt::Stats) -> Self {
        Self {
            connected: u64::from(stats.connected.load(Relaxed)),
            connects: stats.connects.load(Relaxed),
            messages: stats.messages.load(Relaxed),
            received: stats.bytes_in.load(Relaxed),
            rows: stats.rows.load(Relaxed),
            dropped: stats.dropped.load(Relaxed),
        }
    }

    fn encode(&self, page: &mut Page<'_>) -> fmt::Result {
        page.gauge("mqtt_connected", "Whether the broker is connected", self.connected)?;
        page.counter("mqtt_connections", "Connections to the broker", self.connects)?;
        page.counter("mqtt_messages", "Messages taken", self.messages)?;
        page.counter("mqtt_received_bytes", "Bytes of the messages' payloads", self.received)?;
        page.counter("mqtt_rows", "Rows stored", self.rows)?;
        page.counter("mqtt_dropped_rows", "Rows and messages refused", self.dropped)
    }
}

impl Series {
    fn encode(&self, page: &mut Page<'_>) -> fmt::Result {
        page.gauge("series_known", "Series known", self.series)?;
        page.gauge("series_sources", "Sources known: measurements with tags", self.sources)?;
        page.gauge("series_active_sources", "Sources with rows in a buffer", self.active)?;
        page.gauge(
            "series_catalogue_bytes",
            "Memory of the catalogue of series",
            self.catalogue_bytes,
        )?;
        page.gauge("series_buffer_bytes", "Memory of the buffers of points", self.buffer_bytes)?;
        page.gauge("series_room_ratio", "Free share of the buffers, 0 to 1", self.room)?;
        page.counter("series_points", "Points accepted", self.points)?;
        page.counter("series_blocks", "Blocks written", self.blocks)?;
        page.counter("series_block_bytes", "Bytes of blocks written", self.block_bytes)?;
        page.counter("series_regrouped", "Slots whose blocks were made into one", self.regrouped)?;
        page.counter("series_expired", "Blocks expired", self.expired)
    }
}

impl Scrape {
    fn volumes(&self, page: &mut Page<'_>) -> fmt::Result {
        let each = |figure: fn(&Volume) -> Option<u64>| {
            self.volumes.iter().filter_map(move |volume| {
                figure(volume).map(|value| (vec![("volume", volume.name.as_str())], value))
            })
        };
        page.gauges(
            "volume_paid_iops",
            "The line: paid operations a second",
            each(|v| v.paid_iops),
        )?;
        page.gauges(
            "volume_paid_bytes_per_second",
            "Paid bytes a second",
            each(|v| v.paid_bytes_per_sec),
        )?;
        let parts = |figure: fn(&Volume) -> Option<f64>| {
            self.volumes.iter().filter_map(move |volume| {
                figure(volume).map(|value| (vec![("volume", volume.name.as_str())], value))
            })
        };
        page.gauges(
            "volume_rho",
            "Share of the paid rates that may be used",
            parts(|v| Some(v.rho)),
        )?;
        page.gauges(
            "volume_beta",
            "Seconds of the paid rates that may be saved up",
            parts(|v| Some(v.beta)),
        )?;
        let findings = self.volumes.iter().flat_map(|volume| {
            volume.findings.iter().map(move |&(finding, holds)| {
                let labels = vec![("volume", volume.name.as_str()), ("finding", finding)];
                (labels, u64::from(holds))
            })
        });
        page.gauges(
            "volume_finding",
            "Why rho and beta are what they are: 1 for the reason that holds",
            findings,
        )?;
        page.gauges(
            "volume_used_ratio",
            "Load of the last second; 1 is the line",
            parts(|v| Some(v.used)),
        )?;
        page.gauges(
            "volume_available",
            "Estimated share of the contract that the provider gives, while it is below 1",
            parts(|v| v.available),
        )?;
        page.gauges("volume_credits", "Burst credits left, 0 to 1", parts(|v| v.credits))?;
        page.counters(
            "volume_ops",
            "Operations that the gate admitted, in tokens",
            each(|v| Some(v.ops)),
        )?;
        page.counters("volume_bytes", "Bytes that the gate admitted", each(|v| Some(v.bytes)))?;
        page.counters(
            "volume_kernel_ops",
            "Reads and writes of all programs that the kernel counted on the volume's device",
            each(|v| v.kernel_ops),
        )?;
        page.gauges(
            "volume_kernel_ratio",
            "Operations that the gate admitted for each that the kernel counted",
            parts(Volume::kernel_ratio),
        )?;
        page.counters(
            "volume_provider_ops",
            "Operations the simulated provider counted",
            each(|v| v.provider_ops),
        )?;
        page.counters(
            "volume_throttled",
            "Operations the simulated provider throttled",
            each(|v| v.throttled),
        )?;
        page.gauges(
            "volume_spare",
            "Whether the volume has operations to spare for prefetching",
            each(|v| v.spare.map(u64::from)),
        )?;
        page.gauges(
            "volume_weight",
            "Load by users' reads, logs and flushes, from the heat of the volume's tables; 1 is the line",
            parts(|v| v.weight),
        )?;
        page.gauges("volume_size_bytes", "Size", each(|v| v.space.map(|s| s.total)))?;
        page.gauges("volume_free_bytes", "Free space", each(|v| v.space.map(|s| s.free)))
    }

    fn classes(&self, page: &mut Page<'_>) -> fmt::Result {
        let each = || {
            self.volumes.iter().flat_map(|volume| {
                volume.classes.iter().map(move |class| {
                    (vec![("volume", volume.name.as_str()), ("class", class.name)], class)
                })
            })
        };
        let figure = |of: fn(&Class) -> u64| each().map(move |(labels, class)| (labels, of(class)));
        page.counters("gate_granted_tokens", "Tokens granted", figure(|c| c.granted))?;
        page.counters("gate_denied", "Requests refused", figure(|c| c.denied))?;
        page.gauges("gate_queued", "Requests waiting now", figure(|c| c.queued))?;
        page.family(
            "gate_wait_seconds",
            "How long requests waited for their tokens",
            each().map(|(labels, class)| (labels, Histogram(&class.waits))),
        )?;
        page.family(
            "device_answer_seconds",
            "How long the device took to answer, without the wait at the gate",
            each().map(|(labels, class)| (labels, Histogram(&class.answers))),
        )
    }
}

impl Cache {
    fn encode(&self, page: &mut Page<'_>) -> fmt::Result {
        let reads = self.reads.iter().map(|&(path, count)| (vec![("path", path)], count));
        page.counters("cache_reads", "Reads of blocks, by what answered them", reads)?;
        page.counter("cache_hit_bytes", "Bytes answered from memory", self.hit_bytes)?;
        page.gauge("cache_entries", "Single blocks kept", self.entries)?;
        page.gauge("cache_prefetched_blocks", "Prefetched blocks kept", self.blocks)?;
        page.counter("cache_prefetches", "Blocks read ahead", self.prefetches)?;
        page.counter("cache_rewarmed", "Blocks of new tables kept as written", self.rewarmed)?;
        page.counter(
            "cache_rewarmed_useful",
            "Blocks of new tables kept as written that answered a read",
            self.rewarmed_useful,
        )?;
        page.counter("cache_useful", "Blocks that answered a read", self.useful)?;
        page.counter("cache_wasted", "Blocks evicted before they answered a read", self.wasted)?;
        page.gauge("cache_bytes", "Bytes in the cache", self.bytes)?;
        page.gauge("cache_max_bytes", "Limit of the cache", self.bytes_max)
    }
}

impl Copies {
    fn encode(&self, page: &mut Page<'_>) -> fmt::Result {
        fn by_why(counts: &[(&'static str, u64)]) -> impl Iterator<Item = (Labels<'static>, u64)> {
            counts.iter().map(|&(why, count)| (vec![("why", why)], count))
        }
        page.counters("copies_made", "Copies of tables made, by purpose", by_why(&self.made))?;
        page.counter("copies_bytes", "Bytes of copies made", self.bytes)?;
        let times = std::iter::once((Labels::new(), Histogram(&self.times)));
        page.family("copy_seconds", "How long a copy took", times)?;
        page.counter("copies_born", "New tables that were created with an extra copy", self.born)?;
        page.counter(
            "pool_streamed_tables",
            "Tables streamed because no memory was left to hold them whole",
            self.streamed,
        )?;
        page.counters("copies_dropped", "Copies dropped, by reason", by_why(&self.dropped))?;
        page.counters("copies_failed", "Copies that failed, by reason", by_why(&self.failed))?;
        page.gauge("copies_planned", "Copies planned but not begun", self.planned)?;
        page.gauge("copies_in_flight", "Copies being made", self.in_flight)?;
        page.counters("copies_skipped", "Copies not planned, by reason", by_why(&self.skipped))?;
        page.gauge(
            "copies_promised",
            "Copies of each object that the pool's setting asks for",
            self.promised,
        )?;
        page.gauge(
            "copies_short_objects",
            "Objects with fewer copies than the setting asks for",
            self.short_objects,
        )?;
        page.gauge(
            "copies_short_bytes",
            "Bytes of the objects with too few copies",
            self.short_bytes,
        )?;
        page.gauge("unreadable_objects", "Objects without a readable copy", self.unreadable_objects)
    }
}

impl Log {
    fn each<N>(&self, figure: fn(&LogVolume) -> N) -> impl Iterator<Item = (Labels<'_>, N)> {
        self.volumes
            .iter()
            .map(move |volume| (vec![("volume", volume.name.as_str())], figure(volume)))
    }

    fn encode(&self, page: &mut Page<'_>) -> fmt::Result {
        page.gauge("log_keys", "Keys of the log store", self.keys)?;
        page.gauge("log_index_bytes", "Memory of the log store's index", self.index_bytes)?;
        page.gauges(
            "log_fill",
            "Used share of the space that the log store may use",
            self.each(|v| v.fill),
        )?;
        page.gauges(
            "log_hunger",
            "Space pressure: how far the fill is above its target on the way to full; none up to 0",
            self.each(|v| v.hunger),
        )?;
        page.gauges(
            "log_release_threshold",
            "Dead share that a file must have to be merged",
            self.each(|v| v.release_threshold),
        )?;
        page.gauges(
            "log_dead_fraction_eaten",
            "Dead share of the files merged lately",
            self.each(|v| v.dead_fraction_eaten),
        )?;
        page.gauges(
            "log_write_amplification",
            "Bytes written for each byte put",
            self.each(|v| v.write_amplification),
        )?;
        page.gauges(
            "log_put_delay_seconds",
            "How long a put waits now because the volume is nearly full",
            self.each(|v| v.put_delay.as_secs_f64()),
        )?;
        page.gauges("log_files", "Files", self.each(|v| v.files))?;
        page.gauges("log_live_bytes", "Bytes of live records", self.each(|v| v.live_bytes))?;
        page.counters("log_put_bytes", "Bytes of records put", self.each(|v| v.put_bytes))?;
        page.counters("log_copied_bytes", "Bytes copied by merges", self.each(|v| v.copied_bytes))?;
        page.counters(
            "log_files_died_whole",
            "Files removed unread: all of their records were dead",
            self.each(|v| v.died_whole),
        )?;
        page.counters("log_files_merged", "Files merged", self.each(|v| v.merged))?;
        page.counters(
            "log_records_damaged",
            "Damaged records that merges and reads found",
            self.each(|v| v.damaged),
        )?;
        page.counters(
            "log_puts_delayed",
            "Puts that waited because the volume was nearly full",
            self.each(|v| v.delayed),
        )?;
        page.counters(
            "log_puts_refused",
            "Puts refused because only the reserve was left",
            self.each(|v| v.refused),
        )
    }
}

impl Resp {
    fn encode(&self, page: &mut Page<'_>) -> fmt::Result {
        page.gauge("resp_clients", "Connections open", self.clients)?;
        page.gauge("resp_buffered_bytes", "Bytes of unfinished requests", self.buffered)?;
        page.counter("resp_connections", "Connections accepted", self.connections)?;
        page.counter("resp_rejected_connections", "Connections turned away", self.rejected)?;
        page.counter(
            "resp_shed_connections",
            "Silent or idle connections closed for new ones",
            self.shed,
        )?;
        page.counter("resp_received_bytes", "Bytes read from clients", self.bytes_in)?;
        page.counter("resp_sent_bytes", "Bytes written to clients", self.bytes_out)?;
        page.counter("resp_hits", "Keys that reads found", self.hits)?;
        page.counter("resp_misses", "Keys that reads did not find", self.misses)?;
        page.counter("resp_errors", "Error replies", self.errors)?;
        let calls = self.calls.iter().map(|&(name, calls)| (vec![("command", name)], calls));
        page.counters("resp_commands", "Commands executed", calls)
    }
}

/// Waits as a metric.
struct Histogram<'a>(&'a Waits);

impl EncodeMetric for Histogram<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Waits { total, counts } = self.0;
        let bound = |bound: Duration| match bound {
            Duration::MAX => f64::INFINITY,
            bound => bound.as_secs_f64(),
        };
        let buckets: Vec<_> = counts.iter().map(|&(at, count)| (bound(at), count)).collect();
        let requests = self.0.requests();
        encoder.encode_histogram::<NoLabelSet>(total.as_secs_f64(), requests, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Writes families of samples.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn counters<'l, N>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = (Labels<'l>, N)>,
    ) -> fmt::Result
    where
        ConstCounter<N>: EncodeMetric,
    {
        self.family(name, help, samples.map(|(labels, n)| (labels, ConstCounter::new(n))))
    }

    fn gauges<'l, N>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = (Labels<'l>, N)>,
    ) -> fmt::Result
    where
        ConstGauge<N>: EncodeMetric,
    {
        self.family(name, help, samples.map(|(labels, n)| (labels, ConstGauge::new(n))))
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.counters(name, help, std::iter::once((Labels::new(), value)))
    }

    fn gauge<N>(&mut self, name: &str, help: &str, value: N) -> fmt::Result
    where
        ConstGauge<N>: EncodeMetric,
    {
        self.gauges(name, help, std::iter::once((Labels::new(), value)))
    }

    /// A family without samples writes nothing, not even its heading.
    fn family<'l, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = (Labels<'l>, M)>,
    ) -> fmt::Result {
        let mut samples = samples.peekable();
        let Some((_, first)) = samples.peek() else { return Ok(()) };
        let mut family = self.0.encode_descriptor(name, help, None, first.metric_type())?;
        for (labels, metric) in samples {
            if labels.is_empty() {
                return metric.encode(family);
            }
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
