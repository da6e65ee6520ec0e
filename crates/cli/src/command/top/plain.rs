//! The picture in lines, for scripts: a heading and a line for each volume, in columns of bare numbers and names. An
//! unknown or inapplicable figure is `-`.

use std::fmt::Display;

use serve::figures::Copies;

use super::block::{BlockRates, DeviceRates};
use super::tier::TierRates;
use super::view::{Row, View};

/// The whole view.
pub(super) fn lines(view: &View) -> String {
    let mut table = vec![heading(view)];
    table.extend(view.rows.iter().map(|row| cells(view, row)));
    let columns = table[0].len();
    let widths: Vec<_> = (0..columns)
        .map(|at| table.iter().map(|cells| cells[at].len()).max().unwrap_or(0))
        .collect();
    let mut text = summary(view);
    text.extend(view.block.iter().map(block));
    text.extend(view.block.iter().flat_map(|block| &block.devices).map(device));
    text.extend(view.tiers.iter().map(tier));
    for cells in table {
        let aligned: Vec<_> =
            cells.iter().zip(&widths).map(|(cell, &w)| format!("{cell:<w$}")).collect();
        text.push_str(aligned.join(" ").trim_end());
        text.push('\n');
    }
    text
}

fn summary(view: &View) -> String {
    let (held, most) = view.memory;
    let copies = |figure: fn(&Copies) -> u64| {
        let some = (!view.copies.is_empty()).then(|| view.copies.iter().map(figure).sum::<u64>());
        shown(some)
    };
    format!(
        "# uptime_s {:.0} seconds {} commands_per_s {} clients {} hit_ratio {} memory_bytes {held} \
         memory_max_bytes {most} copies_in_flight {} copies_planned {} short_objects {} \
         unreadable_objects {}\n",
        view.uptime_s,
        or_dash(view.seconds, 1),
        or_dash(view.commands, 0),
        shown(view.clients),
        or_dash(view.hits, 3),
        copies(|copies| copies.in_flight),
        copies(|copies| copies.planned),
        copies(|copies| copies.short_objects),
        copies(|copies| copies.unreadable_objects),
    )
}

fn block(of: &BlockRates) -> String {
    format!(
        "# block_devices {} reads_per_s {} read_bytes_per_s {} writes_per_s {} written_bytes_per_s {} \
         marks_per_s {} checksum_reads_per_s {} checksum_writes_per_s {} completing_reads_per_s {} \
         extents_made_per_s {} regions_aligned_per_s {}\n",
        of.devices.len(),
        or_dash(of.reads, 0),
        or_dash(of.read_bytes, 0),
        or_dash(of.writes, 0),
        or_dash(of.written_bytes, 0),
        or_dash(of.marks, 0),
        or_dash(of.checksum_reads, 0),
        or_dash(of.checksum_writes, 0),
        or_dash(of.completing_reads, 0),
        or_dash(of.extents_made, 0),
        or_dash(of.aligned, 0),
    )
}

fn device(of: &DeviceRates) -> String {
    format!(
        "# block_device {} ops_per_s {} limit_iops {} bytes_per_s {} limit_bytes_per_s {} \
         limited_per_s {} limited_ms {}\n",
        of.name,
        or_dash(of.ops, 0),
        shown(of.limit_ops),
        or_dash(of.bytes, 0),
        shown(of.limit_bytes),
        or_dash(of.limited, 0),
        or_dash(of.limited_ms, 3),
    )
}

fn tier(of: &TierRates) -> String {
    format!(
        "# tier {} attached {} hit_ratio {} cached_bytes {} size_bytes {} promotions_per_s {} dirty_bytes {} kept_per_s {} \
         flushed_bytes_per_s {} stale_bytes {}\n",
        of.name,
        u8::from(of.is_attached),
        or_dash(of.hits, 3),
        of.cached,
        shown(of.size),
        or_dash(of.promotions, 0),
        shown(of.dirty),
        or_dash(of.kept, 0),
        or_dash(of.flushed, 0),
        of.stale,
    )
}

/// The classes of the first volume: all volumes have the same.
fn classes(view: &View) -> impl Iterator<Item = &str> {
    view.rows.first().into_iter().flat_map(|row| row.classes.iter().map(|class| &*class.name))
}

fn heading(view: &View) -> Vec<String> {
    let mut cells: Vec<String> = [
        "volume",
        "iops",
        "paid_iops",
        "bytes_per_s",
        "used",
        "over",
        "weight",
        "free_bytes",
        "queued",
    ]
    .map(str::to_owned)
    .into();
    cells.extend(classes(view).map(|class| format!("{class}_wait_ms")));
    cells.extend(["rho", "beta", "available", "finding"].map(str::to_owned));
    cells
}

fn cells(view: &View, row: &Row) -> Vec<String> {
    let queued: u64 = row.classes.iter().map(|class| class.queued).sum();
    let mut cells = vec![
        row.name.clone(),
        or_dash(row.iops, 0),
        shown(row.paid_iops),
        or_dash(row.bytes, 0),
        or_dash(row.paid_iops.map(|_| row.used), 3),
        u8::from(row.over).to_string(),
        or_dash(row.weight, 3),
        shown(row.space.map(|(free, _)| free)),
        queued.to_string(),
    ];
    let waits = classes(view).enumerate().map(|(at, _)| row.classes.get(at)?.wait_ms);
    cells.extend(waits.map(|wait| or_dash(wait, 3)));
    cells.extend([
        format!("{:.3}", row.rho),
        format!("{:.3}", row.beta),
        or_dash(row.available, 3),
        shown(row.finding.as_ref()),
    ]);
    cells
}

fn or_dash(number: Option<f64>, digits: usize) -> String {
    number.map_or("-".into(), |number| format!("{number:.digits$}"))
}

fn shown(value: Option<impl Display>) -> String {
    value.map_or("-".into(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::view::tests::pictures;
    use super::*;

    #[test]
    fn every_line_has_every_column() {
        let (before, now) = pictures();
        let text = lines(&View::between(Some(&before), &now));
        expect![[r#"
            # uptime_s 102 seconds 2.0 commands_per_s 10000 clients 5 hit_ratio 0.900 memory_bytes 100663296 memory_max_bytes 134217728 copies_in_flight 2 copies_planned 12 short_objects 14 unreadable_objects 0
            volume iops paid_iops bytes_per_s used  over weight free_bytes  queued commit_wait_ms foreground_wait_ms background_wait_ms rho   beta  available finding
            s1     2940 3000      12042240    0.980 0    1.040  48318382080 38     0.100          2.400              30.000             0.980 0.900 -         gives_all
            s2     1500 3000      6144000     0.500 1    0.310  48318382080 0      -              -                  -                  0.735 0.000 0.750     gives_less
            s3     10   -         40960       -     0    -      -           0      -              -                  -                  0.980 0.900 -         -
        "#]].assert_eq(&text);
        let counts: Vec<_> = text.lines().skip(1).map(|l| l.split_whitespace().count()).collect();
        assert!(counts.iter().all(|&count| count == counts[0]), "{counts:?}");
    }

    #[test]
    fn block_devices_have_lines_of_their_own() {
        let device = DeviceRates {
            name: "vm".into(),
            ops: Some(480.4),
            limit_ops: Some(500),
            limited: Some(2.0),
            limited_ms: Some(8.25),
            ..DeviceRates::default()
        };
        let rates =
            BlockRates { reads: Some(50.4), devices: vec![device], ..BlockRates::default() };
        let text = lines(&View { block: Some(rates), ..View::default() });
        let shown: Vec<_> = text.lines().skip(1).take(2).collect();
        expect![[r#"
            # block_devices 1 reads_per_s 50 read_bytes_per_s - writes_per_s - written_bytes_per_s - marks_per_s - checksum_reads_per_s - checksum_writes_per_s - completing_reads_per_s - extents_made_per_s - regions_aligned_per_s -
            # block_device vm ops_per_s 480 limit_iops 500 bytes_per_s - limit_bytes_per_s - limited_per_s 2 limited_ms 8.250"#]]
            .assert_eq(&shown.join("\n"));
    }

    #[test]
    fn tiers_have_lines_of_their_own() {
        let tier = TierRates {
            name: "cached".into(),
            is_attached: true,
            hits: Some(0.9),
            cached: 1 << 20,
            ..TierRates::default()
        };
        let text = lines(&View { tiers: vec![tier], ..View::default() });
        expect!["# tier cached attached 1 hit_ratio 0.900 cached_bytes 1048576 size_bytes - promotions_per_s - dirty_bytes - kept_per_s - flushed_bytes_per_s - stale_bytes 0"]
            .assert_eq(text.lines().nth(1).expect("a line"));
    }

    #[test]
    fn a_program_without_volumes_has_a_heading() {
        assert_eq!(lines(&View::default()).lines().count(), 2);
    }
}
