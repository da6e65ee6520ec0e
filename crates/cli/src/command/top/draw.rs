//! The view on a terminal. It fits 80 columns; more columns make the bars longer.

use policy::units::Bytes;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget};
use serve::figures::Copies;

use super::block::{BlockRates, DeviceRates};
use super::tier::TierRates;
use super::view::{Row, Sort, View, Waiting};

/// A view, and its status line.
pub(super) struct Screen {
    pub(super) view: View,
    /// The address of the server.
    pub(super) at: String,
    pub(super) sort: Sort,
    /// Why it is not updated.
    pub(super) state: Option<String>,
}

/// The width of names.
const NAME: std::ops::RangeInclusive<usize> = 6..=16;
/// The columns after the bar: share, operations of the line, weight.
const FIGURES: usize = 4 + 1 + 12 + 1 + 6;
/// The column of free space, and the least width that shows it.
const FREE: usize = 6;
const WIDE: usize = 90;
/// The width of each class.
const WAIT: usize = 6;
/// The width of the queue length.
const QUEUED: usize = 6;
const BAR_MIN: usize = 4;
/// The most block devices that have lines.
const DEVICES: usize = 4;

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

impl Widget for Screen {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        let mut lines = self.heading(width);
        // Leaves room for the columns' heading above the volumes, and the keys below.
        let room = height.saturating_sub(lines.len() + 2);
        let rows = &self.view.rows;
        let columns = Columns::new(&self.view, width);
        lines.push(columns.heading(&self.view));
        let drawn: Vec<_> = rows.iter().map(|row| columns.row(row)).collect();
        let all: usize = drawn.iter().map(Vec::len).sum();
        // One line less if it must say that there are more.
        let mut room = if all > room { room.saturating_sub(1) } else { room };
        let mut more = rows.len();
        for row in drawn {
            let Some(left) = room.checked_sub(row.len()) else { break };
            room = left;
            more -= 1;
            lines.extend(row);
        }
        if more > 0 {
            lines.push(Line::styled(format!("and {more} more: make the window taller"), DIM));
        }
        lines.resize(height.saturating_sub(1).max(lines.len()), Line::default());
        let sort = self.sort.name();
        lines.push(Line::styled(format!("q quit  p pause  s sort: {sort}  S reverse"), DIM));
        Paragraph::new(lines).render(area, buffer);
    }
}

impl Screen {
    fn heading(&self, width: usize) -> Vec<Line<'static>> {
        let view = &self.view;
        let up = std::time::Duration::from_secs(view.uptime_s as u64);
        let mut first = vec![
            Span::styled("plimsoll top", BOLD),
            Span::raw(format!("  {}  up {}", self.at, humantime::format_duration(up))),
        ];
        if let Some(state) = &self.state {
            let style = BOLD.fg(Color::Yellow);
            first.push(Span::styled(format!("  {}", shortened(state, width)), style));
        }
        let (iops, paid) = view.total();
        let mut volumes = format!("{} I/Os a second", count(iops));
        if let Some(paid) = paid {
            volumes.push_str(&format!(" of {paid} paid"));
        }
        volumes.push_str("  (waits: mean ms by class; queue: now)");
        let hits = view.hits.map_or("-".into(), |hits| format!("{:.0} %", 100.0 * hits));
        let (held, most) = view.memory;
        let mut store = format!("memory {} of {}  hits {hits}", Bytes(held), Bytes(most));
        if let Some(clients) = view.clients {
            let commands = count(view.commands);
            store = format!("{commands} commands a second  {clients} clients  {store}");
        }
        let mut lines = vec![Line::from(first), Line::raw(volumes), Line::raw(store)];
        lines.extend(view.block.iter().flat_map(block));
        lines.extend(view.tiers.iter().map(tier));
        let several = view.copies.len() > 1;
        lines.extend(view.copies.iter().filter_map(|of| copies(of, several)));
        lines
    }
}

/// All block devices in two lines, and those closest to their limits.
fn block(of: &BlockRates) -> Vec<Line<'static>> {
    let all = format!(
        "block: {} devices  reads {} a second ({})  writes {} ({})",
        of.devices.len(),
        count(of.reads),
        size(of.read_bytes),
        count(of.writes),
        size(of.written_bytes)
    );
    let own = format!(
        "  its own: {} marks  {} + {} checksums  {} parts read  {} extents  {} aligned",
        count(of.marks),
        count(of.checksum_reads),
        count(of.checksum_writes),
        count(of.completing_reads),
        count(of.extents_made),
        count(of.aligned)
    );
    let limited = of.devices.iter().filter(|d| d.limit_ops.or(d.limit_bytes).is_some());
    let limited = limited.take(DEVICES).map(device);
    [all, own].into_iter().chain(limited).map(Line::raw).collect()
}

/// A tier, in yellow while its fast side is not in use, or bytes are lost.
fn tier(of: &TierRates) -> Line<'static> {
    let TierRates { name, slow, hits, cached, size, promotions, .. } = of;
    let lost = match of.stale {
        0 => String::new(),
        bytes => format!("  {} lost", Bytes(bytes)),
    };
    if !of.is_attached {
        let text = format!("tier {name}: no fast side in use, {slow} serves all reads{lost}");
        return Line::styled(text, Style::new().fg(Color::Yellow));
    }
    let dirty = of.dirty.map_or_else(String::new, |dirty| {
        let (kept, flushed) = (count(of.kept), self::size(of.flushed));
        format!("  {} dirty  {kept} writes kept, {flushed} written back a second", Bytes(dirty))
    });
    let hits = hits.map_or("-".into(), |hits| format!("{:.0} %", 100.0 * hits));
    let size = size.map_or("-".into(), |size| Bytes(size).to_string());
    let text = format!(
        "tier {name}: hits {hits} of bytes read  {} of {size} cached  {} promotions a second{dirty}{lost}",
        Bytes(*cached),
        count(*promotions)
    );
    match of.stale {
        0 => Line::raw(text),
        _ => Line::styled(text, Style::new().fg(Color::Yellow)),
    }
}

fn device(of: &DeviceRates) -> String {
    let DeviceRates { name, ops, bytes, limit_ops, limit_bytes, limited, limited_ms } = of;
    let limit_ops = limit_ops.map_or("-".into(), |limit| limit.to_string());
    let limit_bytes = size(limit_bytes.map(|limit| limit as f64));
    let mut text = format!(
        "  {name}: {} of {limit_ops} I/Os  {} of {limit_bytes} a second",
        count(*ops),
        size(*bytes)
    );
    if let (Some(limited), Some(limited_ms)) = (limited, limited_ms) {
        text.push_str(&format!("  {limited:.0} waited {limited_ms:.1} ms each"));
    }
    text
}

fn size(bytes: Option<f64>) -> String {
    bytes.map_or("-".into(), |bytes| Bytes(bytes as u64).to_string())
}

/// The state of a pool's copies, while there is any work; with its name if there are `several` pools.
fn copies(of: &Copies, several: bool) -> Option<Line<'static>> {
    let Copies { planned, in_flight, promised, short_objects, short_bytes, .. } = of;
    if planned + in_flight + short_objects + of.unreadable_objects == 0 {
        return None;
    }
    let name = if several { format!(" of {}", of.pool) } else { String::new() };
    let mut text = format!("copies{name}: {in_flight} being made, {planned} planned");
    if *short_objects > 0 {
        let bytes = Bytes(*short_bytes);
        text.push_str(&format!("; {short_objects} objects ({bytes}) have fewer than {promised}"));
    }
    if of.unreadable_objects > 0 {
        text.push_str(&format!("; {} cannot be read", of.unreadable_objects));
    }
    let amiss = short_objects + of.unreadable_objects > 0;
    let style = if amiss { Style::new().fg(Color::Yellow) } else { Style::new() };
    Some(Line::styled(text, style))
}

/// The widths of columns.
struct Columns {
    name: usize,
    bar: usize,
    free: bool,
}

impl Columns {
    fn new(view: &View, width: usize) -> Self {
        let longest = view.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let name = longest.clamp(*NAME.start(), *NAME.end());
        let classes = view.rows.iter().map(|row| row.classes.len()).max().unwrap_or(0);
        let free = width >= WIDE;
        let taken = name + 2 + FIGURES + if free { FREE } else { 0 } + classes * WAIT + QUEUED;
        Self { name, bar: width.saturating_sub(taken).max(BAR_MIN), free }
    }

    fn heading(&self, view: &View) -> Line<'static> {
        let Self { name, bar, free } = *self;
        let mut text =
            format!("{:name$} {:bar$} {:>4} {:>12} {:>6}", "volume", "", "used", "IOPS", "weight");
        if free {
            text.push_str(&format!("{:>FREE$}", "free"));
        }
        let classes = view.rows.iter().map(|row| &row.classes).max_by_key(|classes| classes.len());
        for class in classes.into_iter().flatten() {
            text.push_str(&format!("{:>WAIT$}", short(&class.name)));
        }
        text.push_str(&format!("{:>QUEUED$}", "queue"));
        Line::styled(text, BOLD)
    }

    /// The figures of a volume, and below them why its gate uses less of it.
    fn row(&self, row: &Row) -> Vec<Line<'static>> {
        let indent = self.name + 1;
        let remark = row.remark().map(|remark| {
            Line::styled(format!("{:indent$}{remark}", ""), Style::new().fg(Color::Yellow))
        });
        std::iter::once(self.figures(row)).chain(remark).collect()
    }

    fn figures(&self, row: &Row) -> Line<'static> {
        let Self { name, bar, free } = *self;
        let color = match () {
            () if row.over => Color::Red,
            () if row.available.is_some() => Color::Yellow,
            () => Color::Cyan,
        };
        let (used, filled) = match row.paid_iops {
            Some(_) => (format!("{:.0}%", 100.0 * row.used), bar_of(row.used, bar)),
            None => ("-".into(), format!("{:bar$}", "")),
        };
        let line = row.paid_iops.map_or("-".into(), |paid| paid.to_string());
        let iops = format!("{}/{line}", count(row.iops));
        let weight = row.weight.map_or("-".into(), |weight| format!("{weight:.2}"));
        let mut figures = format!(" {used:>4} {iops:>12} {weight:>6}");
        if free {
            figures.push_str(&format!("{:>FREE$}", room(row)));
        }
        let mut spans = vec![
            Span::raw(format!("{:name$} ", shortened(&row.name, name))),
            Span::styled(filled, Style::new().fg(color).bg(Color::DarkGray)),
            Span::raw(figures),
        ];
        spans.extend(row.classes.iter().map(wait));
        let queued: u64 = row.classes.iter().map(|class| class.queued).sum();
        spans.push(Span::raw(format!("{queued:>QUEUED$}")));
        Line::from(spans)
    }
}

/// A bar of `width` columns that is full at the line, to an eighth of a column.
fn bar_of(part: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (part.clamp(0.0, 1.0) * (8 * width) as f64).round() as usize;
    let filled = format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8]);
    format!("{filled:width$}")
}

/// A mean wait, in milliseconds; highlighted if users notice it.
fn wait(class: &Waiting) -> Span<'static> {
    const NOTICED_MS: f64 = 10.0;
    let text = match class.wait_ms {
        None => "-".into(),
        Some(ms) if ms < 10.0 => format!("{ms:.1}"),
        Some(ms) if ms < 10_000.0 => format!("{ms:.0}"),
        Some(ms) => format!("{:.0}s", ms / 1e3),
    };
    let noticed = class.name == "foreground" && class.wait_ms.is_some_and(|ms| ms >= NOTICED_MS);
    let style = if noticed { Style::new().fg(Color::Yellow) } else { Style::new() };
    Span::styled(format!("{text:>WAIT$}"), style)
}

/// The heading of a class; `user` is the one that readers look for.
fn short(class: &str) -> &str {
    match class {
        "foreground" => "user",
        "background" => "back",
        "commit" => "comm",
        "urgent" => "urg",
        other => other.get(..WAIT - 1).unwrap_or(other),
    }
}

fn room(row: &Row) -> String {
    row.space
        .map_or("-".into(), |(free, of)| format!("{:.0}%", 100.0 * free as f64 / of.max(1) as f64))
}

fn count(of: Option<f64>) -> String {
    of.map_or("-".into(), |of| format!("{of:.0}"))
}

fn shortened(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.into(),
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::view::tests::pictures;
    use super::*;

    fn screen(state: Option<&str>) -> Screen {
        let (before, now) = pictures();
        let view = View::between(Some(&before), &now);
        let state = state.map(str::to_owned);
        Screen { view, at: "127.0.0.1:9180".into(), sort: Sort::Name, state }
    }

    fn drawn(screen: Screen, width: u16, height: u16) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
        terminal.draw(|frame| frame.render_widget(screen, frame.area())).expect("memory");
        terminal
    }

    fn check(screen: Screen, width: u16, height: u16, expected: &Expect) {
        expected.assert_eq(&drawn(screen, width, height).backend().to_string());
    }

    #[test]
    fn all_fits_a_small_terminal() {
        check(
            screen(None),
            80,
            24,
            &expect![[r#"
            "plimsoll top  127.0.0.1:9180  up 1m 42s                                         "
            "4450 I/Os a second  (waits: mean ms by class; queue: now)                       "
            "10000 commands a second  5 clients  memory 96 MiB of 128 MiB  hits 90 %         "
            "copies: 2 being made, 12 planned; 14 objects (800 MiB) have fewer than 2        "
            "volume                          used         IOPS weight  comm  user  back queue"
            "s1     ███████████████████████▌  98%    2940/3000   1.04   0.1   2.4    30    38"
            "s2     ████████████              50%    1500/3000   0.31     -     -     0      "
            "       gives 0.75 of its contract                                               "
            "s3                                 -         10/-      -     -     -     0      "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "                                                                                "
            "q quit  p pause  s sort: name  S reverse                                        "
        "#]],
        );
    }

    #[test]
    fn block_devices_have_lines_and_those_with_limits_their_own() {
        let mut screen = screen(None);
        let rates = |ops, bytes| (Some(ops), Some(bytes));
        let ((reads, read_bytes), (writes, written_bytes)) =
            (rates(1500.0, 6_291_456.0), rates(800.0, 3_276_800.0));
        let device = |name: &str, limit_ops| DeviceRates {
            name: name.into(),
            ops: Some(480.0),
            bytes: Some(3_145_728.0),
            limit_ops,
            limit_bytes: limit_ops.map(|_| 60 << 20),
            limited: Some(12.0),
            limited_ms: Some(8.25),
        };
        let devices = vec![device("vm1", Some(500)), device("vm2", None)];
        let block = BlockRates {
            reads,
            writes,
            read_bytes,
            written_bytes,
            marks: Some(3.0),
            devices,
            ..BlockRates::default()
        };
        screen.view.block = Some(block);
        let shown = drawn(screen, 80, 24).backend().to_string();
        for line in [
            "block: 2 devices  reads 1500 a second (6 MiB)  writes 800 (3.1 MiB)",
            "  its own: 3 marks  - + - checksums  - parts read  - extents  - aligned",
            "  vm1: 480 of 500 I/Os  3 MiB of 60 MiB a second  12 waited 8.2 ms each",
        ] {
            assert!(shown.contains(line), "{shown}");
        }
        assert!(!shown.contains("vm2"), "{shown}");
    }

    #[test]
    fn more_columns_make_longer_bars_and_few_lines_show_some() {
        check(
            screen(Some("paused")),
            100,
            8,
            &expect![[r#"
            "plimsoll top  127.0.0.1:9180  up 1m 42s  paused                                                     "
            "4450 I/Os a second  (waits: mean ms by class; queue: now)                                           "
            "10000 commands a second  5 clients  memory 96 MiB of 128 MiB  hits 90 %                             "
            "copies: 2 being made, 12 planned; 14 objects (800 MiB) have fewer than 2                            "
            "volume                                        used         IOPS weight  free  comm  user  back queue"
            "s1     █████████████████████████████████████▎  98%    2940/3000   1.04   75%   0.1   2.4    30    38"
            "and 2 more: make the window taller                                                                  "
            "q quit  p pause  s sort: name  S reverse                                                            "
        "#]],
        );
    }

    #[test]
    fn no_size_is_too_small() {
        for (width, height) in [(1, 1), (10, 2), (40, 5), (300, 1)] {
            drawn(screen(Some("nobody serves there")), width, height);
        }
    }

    #[test]
    fn who_is_over_the_line_is_red() {
        let terminal = drawn(screen(None), 80, 24);
        let color = |row| terminal.backend().buffer()[(8, row)].fg;
        assert_eq!((color(3), color(5), color(6)), (Color::Yellow, Color::Cyan, Color::Red));
    }

    #[test]
    fn a_bar_is_full_at_the_line_and_not_before() {
        assert_eq!(bar_of(0.0, 4), "    ");
        assert_eq!(bar_of(0.5, 4), "██  ");
        assert_eq!(bar_of(0.55, 4), "██▎ ");
        assert_eq!(bar_of(0.98, 4), "███▉");
        assert_eq!(bar_of(1.7, 4), "████");
    }
}
