//! `/metrics`: the figures of the program as OpenMetrics, read afresh for each scrape that a store does not hold up.
//!
//! Each figure is declared once here: its kind, name and help, and how it is read from its subject.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use engine::health::TaskHealth;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge, Histogram};
use prometheus_client::registry::Registry;

use super::{Admin, Health};
use crate::figures::{
    Block, Cache, Class, Copies, FLUSH_MODES, Log, Memory, POLICIES, PurposeLoad, Scrub, Series,
    StoreLoad, Tier, Volume, Waits,
};
use crate::http::{self, Times};
use crate::{mqtt, nbd, resp};

/// The media type.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All figures, as text.
pub(super) fn text(admin: &Admin, found: &Health) -> String {
    let figures = &admin.figures;
    let mut page = Page::default();
    let uptime = figures.uptime().as_secs_f64();
    page.one(&uptime).gauge("uptime_seconds", "Time since the program started", |up| *up);
    health(&mut page, found);
    memory(&mut page, &figures.memory());
    volumes(&mut page, &figures.volumes());
    cache(&mut page, figures.cache().as_ref());
    copies(&mut page, &figures.copies());
    tiers(&mut page, &figures.tiers());
    scrub(&mut page, &figures.scrub());
    log(&mut page, figures.log().as_ref());
    resp(&mut page, admin.resp.get().map(|endpoint| &endpoint.stats));
    block(&mut page, figures.block().as_ref());
    series(&mut page, figures.series().as_ref());
    http(&mut page, admin.http.get().map(|endpoint| &endpoint.stats));
    mqtt(&mut page, admin.mqtt.get().map(|stats| &**stats));
    nbd(&mut page, admin.nbd.get().map(|endpoint| &endpoint.stats));
    let mut registry = Registry::with_prefix("plimsoll");
    registry.register_collector(Box::new(page));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("a string takes any text");
    out
}

/// The text with the time since it was made.
pub(super) fn with_age(mut text: String, age: Duration) -> String {
    let end = text.rfind("# EOF").unwrap_or(text.len());
    text.truncate(end);
    text.push_str(
        "# HELP plimsoll_sample_age_seconds Time since these figures were read, in whole seconds\n",
    );
    text.push_str("# TYPE plimsoll_sample_age_seconds gauge\n");
    text.push_str(&format!("plimsoll_sample_age_seconds {}\n# EOF\n", age.as_secs()));
    text
}

fn health(page: &mut Page, health: &Health) {
    page.one(health)
        .gauge("healthy", "Whether no volume and no store has a problem", |all| all.is_healthy());
    let mut of = page.each("store", &health.stores);
    of.gauge("store_takes_writes", "Whether the store accepts users' writes", |s| {
        s.writes_refused.is_none()
    });
    of.gauge("store_serves_reads", "Whether the store serves all reads", |s| {
        s.reads_refused.is_none()
    });
    of.gauge(
        "store_copies_short",
        "Objects with fewer copies or fragments than the pool's setting asks for",
        |s| s.copies_short,
    );
    of.gauge("store_damaged", "Damaged places that are not repaired", |s| s.damaged);
    of.gauge("store_upkeep", "Whether all background tasks of the store work", |s| {
        s.upkeep_works()
    });
    let tasks = health.stores.iter().flat_map(|(name, store)| {
        let labels = |task: &TaskHealth| vec![("store", name.clone()), ("task", task.task.clone())];
        store.tasks.iter().map(move |task| (labels(task), task))
    });
    let mut of = page.of(tasks);
    of.gauge("task_works", "Whether the background task has no problem", |t| t.problem.is_none());
    of.gauge(
        "task_since_completed_seconds",
        "Time since the background task completed a round",
        |t| t.since_completed.as_secs_f64(),
    );
    of.gauge("task_failures", "Rounds of the background task that failed in a row", |t| t.failures);
    let mut of = page.each("volume", &health.volumes);
    of.gauge("volume_answers", "Whether the volume answers", |v| v.is_none());
}

fn memory(page: &mut Page, memory: &Memory) {
    let mut of = page.one(memory);
    of.gauge("memory_resident_bytes", "Memory of the process", |m| m.resident);
    of.gauge("store_memory_bytes", "Caches and buffers of the store", |m| m.store);
    of.gauge("store_memory_max_bytes", "Limit of the store's caches and buffers", |m| m.store_max);
}

fn volumes(page: &mut Page, volumes: &[Volume]) {
    let mut of = page.each("volume", volumes.iter().map(|volume| (&volume.name, volume)));
    of.gauge("volume_paid_iops", "The line: paid operations a second", |v| v.paid_iops);
    of.gauge("volume_paid_bytes_per_second", "Paid bytes a second", |v| v.paid_bytes_per_sec);
    of.gauge("volume_rho", "Share of the paid rates that may be used", |v| v.rho);
    of.gauge("volume_beta", "Seconds of the paid rates that may be saved up", |v| v.beta);
    of.family(
        Gauge,
        "volume_finding",
        "Why rho and beta are what they are: 1 for the reason that holds",
        |v| by("finding", v.findings.clone()),
    );
    of.gauge("volume_used_ratio", "Load of the last second; 1 is the line", |v| v.used);
    of.gauge(
        "volume_available",
        "Estimated share of the contract that the provider gives, while it is below 1",
        |v| v.available,
    );
    of.gauge("volume_credits", "Burst credits left, 0 to 1", |v| v.credits);
    of.counter("volume_ops", "Operations that the gate admitted, in tokens", |v| v.ops);
    of.counter("volume_bytes", "Bytes that the gate admitted", |v| v.bytes);
    of.gauge(
        "volume_journal_ops",
        "Operations charged for the file system's journal at each sync of a changed length",
        |v| v.journal_ops,
    );
    of.counter(
        "volume_kernel_ops",
        "Reads and writes of all programs that the kernel counted on the volume's device",
        |v| v.kernel_ops,
    );
    of.gauge(
        "volume_kernel_ratio",
        "Operations that the gate admitted for each that the kernel counted",
        Volume::kernel_ratio,
    );
    of.counter("volume_provider_ops", "Operations the simulated provider counted", |v| {
        v.provider_ops
    });
    of.counter("volume_throttled", "Operations the simulated provider throttled", |v| v.throttled);
    of.gauge("volume_spare", "Whether the volume has operations to spare for prefetching", |v| {
        v.spare
    });
    of.gauge("volume_weight", "Load by users' reads, logs and flushes, from the heat of the volume's tables; 1 is the line", |v| v.weight);
    of.gauge("volume_size_bytes", "Size", |v| v.space.map(|s| s.total));
    of.gauge("volume_free_bytes", "Free space", |v| v.space.map(|s| s.free));

    let purposes = volumes.iter().flat_map(|volume| {
        let labels = |purpose: &PurposeLoad| {
            vec![("volume", volume.name.clone()), ("purpose", purpose.name.into())]
        };
        volume.purposes.iter().map(move |purpose| (labels(purpose), purpose))
    });
    let mut of = page.of(purposes);
    of.counter(
        "volume_purpose_ops",
        "Operations that the gate admitted, by what they were for",
        |p| p.ops,
    );
    of.counter(
        "volume_purpose_bytes",
        "Bytes that the gate admitted, by what they were for",
        |p| p.bytes,
    );

    let stores = volumes.iter().flat_map(|volume| {
        let labels = |store: &StoreLoad| {
            vec![("volume", volume.name.clone()), ("store", store.name.clone())]
        };
        volume.stores.iter().map(move |store| (labels(store), store))
    });
    let mut of = page.of(stores);
    of.counter("volume_store_ops", "Operations that the gate admitted of a store", |s| s.ops);
    of.counter("volume_store_bytes", "Bytes that the gate admitted of a store", |s| s.bytes);
    of.gauge("volume_store_queued", "Requests of a store that wait now", |s| s.queued);

    let classes = volumes.iter().flat_map(|volume| {
        let labels =
            |class: &Class| vec![("volume", volume.name.clone()), ("class", class.name.into())];
        volume.classes.iter().map(move |class| (labels(class), class))
    });
    let mut of = page.of(classes);
    of.counter("gate_granted_tokens", "Tokens granted", |c| c.granted);
    of.counter("gate_denied", "Requests refused", |c| c.denied);
    of.gauge("gate_queued", "Requests waiting now", |c| c.queued);
    of.histogram("gate_wait_seconds", "How long requests waited for their tokens", |c| &c.waits);
    of.histogram(
        "device_answer_seconds",
        "How long the device took to answer, without the wait at the gate",
        |c| &c.answers,
    );
}

fn cache(page: &mut Page, cache: Option<&Cache>) {
    let mut of = page.one(cache);
    of.family(Counter, "cache_reads", "Reads of blocks, by what answered them", |c| {
        by("path", c.reads)
    });
    of.counter("cache_hit_bytes", "Bytes answered from memory", |c| c.hit_bytes);
    of.gauge("cache_entries", "Single blocks kept", |c| c.entries);
    of.gauge("cache_prefetched_blocks", "Prefetched blocks kept", |c| c.blocks);
    of.counter("cache_prefetches", "Blocks read ahead", |c| c.prefetches);
    of.counter("cache_rewarmed", "Blocks of new tables kept as written", |c| c.rewarmed);
    of.counter(
        "cache_rewarmed_useful",
        "Blocks of new tables kept as written that answered a read",
        |c| c.rewarmed_useful,
    );
    of.counter("cache_useful", "Blocks that answered a read", |c| c.useful);
    of.counter("cache_wasted", "Blocks evicted before they answered a read", |c| c.wasted);
    of.gauge("cache_bytes", "Bytes in the cache", |c| c.bytes);
    of.gauge("cache_max_bytes", "Limit of the cache", |c| c.bytes_max);
}

fn copies(page: &mut Page, copies: &[Copies]) {
    let mut of = page.each("pool", copies.iter().map(|of| (&of.pool, of)));
    of.family(Counter, "copies_made", "Copies of tables made, by purpose", |c| {
        by("why", c.made.clone())
    });
    of.counter("copies_bytes", "Bytes of copies made", |c| c.bytes);
    of.histogram("copy_seconds", "How long a copy took", |c| &c.times);
    of.counter("copies_born", "New tables that were created with an extra copy", |c| c.born);
    of.counter(
        "pool_streamed_tables",
        "Tables streamed because no memory was left to hold them whole",
        |c| c.streamed,
    );
    of.family(Counter, "copies_dropped", "Copies dropped, by reason", |c| {
        by("why", c.dropped.clone())
    });
    of.family(Counter, "copies_failed", "Copies that failed, by reason", |c| {
        by("why", c.failed.clone())
    });
    of.gauge("copies_planned", "Copies planned but not begun", |c| c.planned);
    of.gauge("copies_in_flight", "Copies being made", |c| c.in_flight);
    of.family(Counter, "copies_skipped", "Copies not planned, by reason", |c| {
        by("why", c.skipped.clone())
    });
    of.gauge("copies_promised", "Copies of each object that the pool's setting asks for", |c| {
        c.promised
    });
    of.gauge(
        "copies_short_objects",
        "Objects with fewer copies or fragments than the setting asks for",
        |c| c.short_objects,
    );
    of.gauge("copies_short_bytes", "Bytes of the objects with too few copies", |c| c.short_bytes);
    of.gauge(
        "unreadable_objects",
        "Objects without a readable copy, or with too few fragments",
        |c| c.unreadable_objects,
    );
    of.counter("decoded_reads", "Ranges that reads computed from other fragments", |c| c.decoded);
    of.counter("recoded_objects", "Objects cut into fragments that had copies", |c| c.recoded);
    of.gauge("write_log_bytes", "Bytes of the log of objects in place, each copy once", |c| {
        c.write_log_bytes
    });
    of.gauge("write_log_blocks", "Blocks newer in the log than in their places", |c| {
        c.write_log_blocks
    });
    of.counter("write_log_recycled_blocks", "Blocks brought in place from the log", |c| {
        c.write_log_recycled
    });
    of.counter(
        "write_log_moved_blocks",
        "Blocks appended to the log again, so that its oldest files could go",
        |c| c.write_log_moved,
    );
    of.counter(
        "write_log_waits",
        "Times that writes waited because the log was full or nearly so",
        |c| c.write_log_waits,
    );
}

fn tiers(page: &mut Page, tiers: &[Tier]) {
    let labels = |tier: &Tier| vec![("pool", tier.pool.clone()), ("tier", tier.name.clone())];
    let mut of = page.of(tiers.iter().map(|tier| (labels(tier), tier)));
    of.gauge("tier_attached", "Whether the fast side is in use", |t| t.attached);
    of.counter("tier_hit_bytes", "Bytes of reads that the fast side gave", |t| t.hit_bytes);
    of.counter("tier_missed_bytes", "Bytes of reads that the slow side gave", |t| t.missed_bytes);
    of.counter("tier_promotions", "Installs on the fast side", |t| t.promotions);
    of.counter("tier_promoted_bytes", "Bytes installed on the fast side", |t| t.promoted_bytes);
    of.counter(
        "tier_inherited_bytes",
        "Bytes of new tables installed as they were written, because their records were read before",
        |t| t.inherited_bytes,
    );
    of.counter(
        "tier_promotions_dropped",
        "Installs given up: a write came, the queue was full, or too little room was free",
        |t| t.promotions_dropped,
    );
    of.counter("tier_evictions", "Units that left the fast side", |t| t.evictions);
    of.family(Gauge, "tier_policy", "1 for the policy that chooses which unit leaves, now", |t| {
        by("policy", POLICIES.map(|policy| (policy, t.policy == policy)))
    });
    of.counter("tier_trims", "Units that lost pages read seldom, and kept others", |t| t.trims);
    of.counter(
        "tier_deferred_pages",
        "Pages whose places waited for a record before they were free",
        |t| t.deferred_pages,
    );
    of.counter("tier_doubts", "Records that a unit is not as the checkpoint says", |t| t.doubts);
    of.counter("tier_doubt_appends", "Durable appends that carried these records", |t| t.appends);
    of.counter("tier_checkpoints", "Checkpoints of what is cached", |t| t.checkpoints);
    of.counter("tier_detaches", "How often the fast side was given up", |t| t.detached);
    of.gauge("tier_cached_bytes", "Bytes cached", |t| t.cached_bytes);
    of.gauge("tier_size_bytes", "Bytes that may be cached", |t| t.size_bytes);
    of.gauge("tier_dirty_bytes", "Bytes whose newest state is only on the fast side", |t| {
        t.dirty_bytes
    });
    of.gauge(
        "tier_dirty_age_seconds",
        "Time since the first write of the unit that is dirty for longest",
        |t| t.dirty_age_s,
    );
    of.gauge(
        "tier_stale_bytes",
        "Bytes lost with a fast side: reads of them fail until they are written",
        |t| t.stale_bytes,
    );
    of.counter("tier_kept_writes", "Writes that stayed on the fast side", |t| t.kept_writes);
    of.counter("tier_kept_bytes", "Bytes of writes that stayed on the fast side", |t| t.kept_bytes);
    of.counter(
        "tier_written_through_bytes",
        "Bytes of other writes of block devices, while writes may stay on the fast side",
        |t| t.written_through_bytes,
    );
    of.counter("tier_flush_writes", "Writes to the slow side of dirty bytes", |t| t.flush_writes);
    of.counter("tier_flushed_bytes", "Dirty bytes written to the slow side", |t| t.flushed_bytes);
    of.counter("tier_flushes_failed", "Flushes of a unit that failed", |t| t.flushes_failed);
    of.family(Gauge, "tier_flush_mode", "1 for the mode of flushes now", |t| {
        by("mode", FLUSH_MODES.map(|mode| (mode, t.flush == mode)))
    });
}

fn scrub(page: &mut Page, scrubs: &[Scrub]) {
    let mut of = page.each("pool", scrubs.iter().map(|of| (&of.pool, of)));
    of.counter("scrub_objects", "Objects that a scrub read back", |s| s.objects);
    of.counter("scrub_bytes", "Bytes that a scrub read back, of all copies", |s| s.bytes);
    of.counter("scrub_damaged", "Damaged copies that a scrub found", |s| s.damaged);
    of.gauge("scrub_age_seconds", "Time since the last scrub of all objects ended", |s| {
        s.age.map(|age| age.as_secs_f64())
    });
}

fn log(page: &mut Page, log: Option<&Log>) {
    let mut of = page.one(log);
    of.gauge("log_keys", "Keys of the log store", |l| l.keys);
    of.gauge("log_index_bytes", "Memory of the log store's index", |l| l.index_bytes);
    let volumes = log.into_iter().flat_map(|log| &log.volumes);
    let mut of = page.each("volume", volumes.map(|volume| (&volume.name, volume)));
    of.gauge("log_fill", "Used share of the space that the log store may use", |v| v.fill);
    of.gauge(
        "log_hunger",
        "Space pressure: how far the fill is above its target on the way to full; none up to 0",
        |v| v.hunger,
    );
    of.gauge("log_release_threshold", "Dead share that a file must have to be merged", |v| {
        v.release_threshold
    });
    of.gauge("log_dead_fraction_eaten", "Dead share of the files merged lately", |v| {
        v.dead_fraction_eaten
    });
    of.gauge("log_write_amplification", "Bytes written for each byte put", |v| {
        v.write_amplification
    });
    of.gauge(
        "log_put_delay_seconds",
        "How long a put waits now because the volume is nearly full",
        |v| v.put_delay_s,
    );
    of.gauge("log_files", "Files", |v| v.files);
    of.gauge("log_live_bytes", "Bytes of live records", |v| v.live_bytes);
    of.counter("log_put_bytes", "Bytes of records put", |v| v.put_bytes);
    of.counter("log_copied_bytes", "Bytes copied by merges", |v| v.copied_bytes);
    of.counter(
        "log_files_died_whole",
        "Files removed unread: all of their records were dead",
        |v| v.died_whole,
    );
    of.counter("log_files_merged", "Files merged", |v| v.merged);
    of.counter("log_records_damaged", "Damaged records that merges and reads found", |v| v.damaged);
    of.counter("log_puts_delayed", "Puts that waited because the volume was nearly full", |v| {
        v.delayed
    });
    of.counter("log_puts_refused", "Puts refused because only the reserve was left", |v| v.refused);
}

fn resp(page: &mut Page, stats: Option<&resp::Stats>) {
    let mut of = page.one(stats);
    of.gauge("resp_clients", "Connections open", |s| s.clients.get());
    of.gauge("resp_buffered_bytes", "Bytes of unfinished requests", |s| s.buffered.get());
    of.counter("resp_connections", "Connections accepted", |s| s.connections.get());
    of.counter("resp_rejected_connections", "Connections turned away", |s| s.rejected.get());
    of.counter("resp_shed_connections", "Silent or idle connections closed for new ones", |s| {
        s.shed.get()
    });
    of.counter("resp_received_bytes", "Bytes read from clients", |s| s.bytes_in.get());
    of.counter("resp_sent_bytes", "Bytes written to clients", |s| s.bytes_out.get());
    of.counter("resp_hits", "Keys that reads found", |s| s.hits.get());
    of.counter("resp_misses", "Keys that reads did not find", |s| s.misses.get());
    of.counter("resp_errors", "Error replies", |s| s.errors.get());
    of.family(Counter, "resp_commands", "Commands executed", |s| by("command", s.calls()));
}

fn block(page: &mut Page, block: Option<&Block>) {
    let mut of = page.one(block);
    of.gauge("block_devices", "Block devices", |b| b.devices.len() as u64);
    of.counter("block_reads", "Reads of block devices", |b| b.reads);
    of.counter("block_read_bytes", "Bytes read", |b| b.read_bytes);
    of.counter("block_writes", "Writes, and ranges made zeros", |b| b.writes);
    of.counter("block_written_bytes", "Bytes written", |b| b.written_bytes);
    of.counter("block_discards", "Discards", |b| b.discards);
    of.counter("block_flushes", "Flushes", |b| b.flushes);
    of.counter("block_checksum_fetches", "Pages of checksums read from volumes", |b| {
        b.checksum_fetches
    });
    of.counter("block_checksum_writes", "Pages of checksums written", |b| b.checksum_writes);
    of.gauge("block_checksum_bytes", "Memory of the checksums", |b| b.checksum_bytes);
    of.counter("block_completing_reads", "Blocks read because a write covers a part", |b| {
        b.completing_reads
    });
    of.counter("block_extents_made", "Extents made", |b| b.extents_made);
    of.counter("block_region_marks", "Writes of marks of regions", |b| b.region_marks);
    of.counter(
        "block_regions_aligned",
        "Regions whose copies were made equal after a crash",
        |b| b.regions_aligned,
    );
    of.gauge("block_dirty_regions", "Regions that a crash would leave in doubt", |b| {
        b.dirty_regions
    });
    of.counter("block_unverified_reads", "Blocks read that have no checksum yet", |b| {
        b.unverified_reads
    });
    of.counter("block_repaired", "Damaged blocks that another copy had", |b| b.repaired);
    of.counter("block_damaged", "Reads of damaged blocks that no copy had", |b| b.damaged);
    let devices = block.into_iter().flat_map(|block| &block.devices);
    let mut of = page.each("device", devices.map(|device| (&device.name, device)));
    of.gauge("block_device_size_bytes", "Size of the device", |d| d.size_bytes);
    of.gauge("block_device_room_bytes", "Room that the device takes at most", |d| d.room_bytes);
    of.counter("block_device_reads", "Reads of the device", |d| d.reads);
    of.counter("block_device_read_bytes", "Bytes read of the device", |d| d.read_bytes);
    of.counter(
        "block_device_writes",
        "Writes, ranges made zeros, and discards of the device",
        |d| d.writes,
    );
    of.counter("block_device_written_bytes", "Bytes written to the device", |d| d.written_bytes);
    of.gauge("block_device_limit_iops", "Operations a second that its clients get at most", |d| {
        d.limit_iops
    });
    of.gauge(
        "block_device_limit_bytes_per_second",
        "Bytes a second that its clients get at most",
        |d| d.limit_bytes_per_s,
    );
    of.counter("block_device_limited", "Calls that waited for the limit of the device", |d| {
        d.limited
    });
    of.counter("block_device_limited_seconds", "How long they waited", |d| d.limited_s);
}

fn series(page: &mut Page, series: Option<&Series>) {
    let mut of = page.one(series);
    of.gauge("series_known", "Series known", |s| s.series);
    of.gauge("series_sources", "Sources known: measurements with tags", |s| s.sources);
    of.gauge("series_active_sources", "Sources with rows in a buffer", |s| s.active);
    of.gauge("series_catalogue_bytes", "Memory of the catalogue of series", |s| s.catalogue_bytes);
    of.gauge("series_buffer_bytes", "Memory of the buffers of points", |s| s.buffer_bytes);
    of.gauge("series_room_ratio", "Free share of the buffers, 0 to 1", |s| s.room);
    of.counter("series_points", "Points accepted", |s| s.points);
    of.counter("series_blocks", "Blocks written", |s| s.blocks);
    of.counter("series_block_bytes", "Bytes of blocks written", |s| s.block_bytes);
    of.counter("series_regrouped", "Slots whose blocks were made into one", |s| s.regrouped);
    of.counter("series_expired", "Blocks expired", |s| s.expired);
}

fn http(page: &mut Page, stats: Option<&http::Stats>) {
    let mut of = page.one(stats);
    of.gauge("http_connections_open", "Connections open", |s| s.connections.open.get());
    of.counter("http_connections", "Connections accepted", |s| s.connections.accepted.get());
    of.counter("http_rejected_connections", "Connections turned away", |s| {
        s.connections.rejected.get()
    });
    of.counter("http_shed_connections", "Silent or idle connections closed for new ones", |s| {
        s.connections.shed.get()
    });
    of.family(Counter, "http_requests", "Requests answered, by kind and outcome", |s| {
        s.requests().map(|(wanted, outcome, n)| {
            (vec![("wanted", wanted.into()), ("outcome", outcome.into())], n)
        })
    });
    of.family(Histogram, "http_request_seconds", "How long requests took", |s| {
        by("wanted", [("write", &s.write_times), ("query", &s.query_times)])
    });
    of.counter("http_received_bytes", "Bytes of request bodies, as received", |s| s.bytes_in.get());
    of.counter("http_sent_bytes", "Bytes of answers to queries", |s| s.bytes_out.get());
    of.counter("http_statements", "Statements received", |s| s.queries.get());
    of.counter("http_rows", "Rows stored", |s| s.rows.get());
    of.counter("http_points", "Points in the stored rows", |s| s.points.get());
    of.counter("http_dropped_rows", "Lines and rows refused", |s| s.dropped.get());
    of.counter("http_repeated_batches", "Batches sent again after they were stored", |s| {
        s.repeated.get()
    });
    of.counter("http_busy", "Writes refused for now, to be sent again", |s| s.busy.get());
}

fn mqtt(page: &mut Page, stats: Option<&mqtt::Stats>) {
    let mut of = page.one(stats);
    of.gauge("mqtt_connected", "Whether the broker is connected", |s| s.connected.load(Relaxed));
    of.counter("mqtt_connections", "Connections to the broker", |s| s.connects.get());
    of.counter("mqtt_messages", "Messages taken", |s| s.messages.get());
    of.counter("mqtt_received_bytes", "Bytes of the messages' payloads", |s| s.bytes_in.get());
    of.counter("mqtt_rows", "Rows stored", |s| s.rows.get());
    of.counter("mqtt_dropped_rows", "Rows and messages refused", |s| s.dropped.get());
}

fn nbd(page: &mut Page, stats: Option<&nbd::Stats>) {
    let mut of = page.one(stats);
    of.gauge("nbd_connections_open", "Connections open", |s| s.open.get());
    of.gauge("nbd_attached", "Connections open that have chosen a device", |s| s.attached.get());
    of.gauge("nbd_in_flight", "Requests in progress", |s| s.in_flight.get());
    of.counter("nbd_connections", "Connections accepted", |s| s.accepted.get());
    of.counter("nbd_rejected_connections", "Connections turned away", |s| s.rejected.get());
    of.counter(
        "nbd_shed_connections",
        "Connections without a device that were closed for new ones",
        |s| s.shed.get(),
    );
    of.family(Counter, "nbd_requests", "Requests begun, by command", |s| {
        by("command", s.requests())
    });
    of.family(Counter, "nbd_request_bytes", "Bytes of the requests' ranges, by command", |s| {
        by("command", s.bytes())
    });
    of.counter("nbd_merged_writes", "Writes that became part of the one before", |s| {
        s.merged.get()
    });
    of.family(Counter, "nbd_errors", "Requests that failed, by error", |s| by("error", s.errors()));
}

type Labels = Vec<(&'static str, String)>;

/// Labels each value with its name.
fn by<V>(
    label: &'static str,
    values: impl IntoIterator<Item = (&'static str, V)>,
) -> impl Iterator<Item = (Labels, V)> {
    values.into_iter().map(move |(name, value)| (vec![(label, name.into())], value))
}

/// The families of samples at one moment: a collector must own what it encodes.
#[derive(Debug, Default)]
struct Page(Vec<Family>);

#[derive(Debug)]
struct Family {
    kind: MetricType,
    name: &'static str,
    help: &'static str,
    samples: Vec<(Labels, Value)>,
}

impl Page {
    /// Figures without labels, of one subject or of none.
    fn one<'s, T>(&mut self, subject: impl Into<Option<&'s T>>) -> Of<'_, 's, T> {
        self.of(subject.into().map(|subject| (Labels::new(), subject)))
    }

    /// Figures of several subjects, labelled with their names.
    fn each<'s, T>(
        &mut self,
        label: &'static str,
        subjects: impl IntoIterator<Item = (&'s String, &'s T)>,
    ) -> Of<'_, 's, T> {
        self.of(subjects.into_iter().map(|(name, subject)| (vec![(label, name.clone())], subject)))
    }

    fn of<'s, T>(&mut self, subjects: impl IntoIterator<Item = (Labels, &'s T)>) -> Of<'_, 's, T> {
        Of { page: self, subjects: subjects.into_iter().collect() }
    }
}

/// Adds figures of subjects of one kind.
struct Of<'p, 's, T> {
    page: &'p mut Page,
    subjects: Vec<(Labels, &'s T)>,
}

impl<'s, T> Of<'_, 's, T> {
    fn counter<V>(&mut self, name: &'static str, help: &'static str, read: impl Fn(&'s T) -> V)
    where
        V: Into<Value>,
    {
        self.family(Counter, name, help, |subject| [(Labels::new(), read(subject))]);
    }

    fn gauge<V>(&mut self, name: &'static str, help: &'static str, read: impl Fn(&'s T) -> V)
    where
        V: Into<Value>,
    {
        self.family(Gauge, name, help, |subject| [(Labels::new(), read(subject))]);
    }

    fn histogram(
        &mut self,
        name: &'static str,
        help: &'static str,
        read: impl Fn(&'s T) -> &'s Waits,
    ) {
        self.family(Histogram, name, help, |subject| [(Labels::new(), read(subject))]);
    }

    /// Several samples of each subject, told apart by further labels.
    fn family<V: Into<Value>, I: IntoIterator<Item = (Labels, V)>>(
        &mut self,
        kind: MetricType,
        name: &'static str,
        help: &'static str,
        read: impl Fn(&'s T) -> I,
    ) {
        let samples = self.subjects.iter().flat_map(|(labels, subject)| {
            let samples = read(subject).into_iter();
            samples.map(move |(more, value)| ([&**labels, &more].concat(), value.into()))
        });
        let samples = samples.filter(|(_, value)| !matches!(value, Value::Absent)).collect();
        self.page.0.push(Family { kind, name, help, samples });
    }
}

/// The value of a sample.
#[derive(Debug)]
enum Value {
    Absent,
    Whole(u64),
    Part(f64),
    /// The sum of durations in seconds, and the number of them up to each bound and above the previous one.
    Times(f64, Vec<(f64, u64)>),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<bool> for Value {
    fn from(holds: bool) -> Self {
        Self::Whole(holds.into())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Part(number)
    }
}

impl<V: Into<Self>> From<Option<V>> for Value {
    fn from(value: Option<V>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

impl From<&Waits> for Value {
    fn from(waits: &Waits) -> Self {
        Self::times(waits.total, waits.counts.iter().copied())
    }
}

impl From<&Times> for Value {
    fn from(times: &Times) -> Self {
        Self::times(times.total(), times.octaves())
    }
}

impl Value {
    fn times(total: Duration, counts: impl Iterator<Item = (Duration, u64)>) -> Self {
        let seconds = |bound| match bound {
            Duration::MAX => f64::INFINITY,
            bound => bound.as_secs_f64(),
        };
        let counts = counts.map(|(bound, count)| (seconds(bound), count));
        Self::Times(total.as_secs_f64(), counts.collect())
    }

    fn encode(&self, kind: MetricType, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match (self, kind) {
            (Self::Absent, _) => Ok(()),
            (Self::Whole(number), Counter) => {
                encoder.encode_counter::<NoLabelSet, _, u64>(number, None)
            }
            (Self::Whole(number), _) => encoder.encode_gauge(number),
            (Self::Part(number), Counter) => {
                encoder.encode_counter::<NoLabelSet, _, u64>(number, None)
            }
            (Self::Part(number), _) => encoder.encode_gauge(number),
            (Self::Times(total, counts), _) => {
                let all = counts.iter().map(|(_, count)| count).sum();
                encoder.encode_histogram::<NoLabelSet>(*total, all, counts, None)
            }
        }
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // A family without samples writes nothing, not even its heading.
        for Family { kind, name, help, samples } in
            self.0.iter().filter(|family| !family.samples.is_empty())
        {
            let mut family = encoder.encode_descriptor(name, help, None, *kind)?;
            match &**samples {
                [(labels, value)] if labels.is_empty() => value.encode(*kind, family)?,
                _ => {
                    for (labels, value) in samples {
                        value.encode(*kind, family.encode_family(labels)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}
