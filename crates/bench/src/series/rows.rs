//! The rows: B37 to B42 of docs/guide/bench.md, and further rows of the log store.

use policy::merge::Rule;
use policy::units::{KIB, MIB};

use super::check::{check, check_speed, ratio};
use super::plots::over_time;
use super::{Case, Cell, Load, Run, Scale, Scheme, Shape};
use crate::compare::{self, Figure, Outcome, ReportWriter, Side};
use crate::report::Axis;

/// A row of this bench.
pub type Row = compare::Row<Case>;

/// The rows of profile `smoke` by default.
pub const SMOKE: [&str; 4] = ["B37", "B38", "B41", "fill"];

const STATIC: &str = Rule::Static.name();
const PRODUCT: &str = Rule::FishermanProduct.name();
const FISHERMAN: &str = Rule::Fisherman.name();
/// In B40: files of 16 MiB stand for the default ones of 64 MiB.
const PARTS: u32 = 4;

const OURS: &str = Rule::DeathTime.name();
/// The same with the disks in a pool.
const POOLED: &str = "death-time, in a pool";

/// No upper bound.
const ANY: f64 = f64::INFINITY;

/// Every row, for these rules.
#[must_use]
pub fn all(scale: &Scale, rules: &[Rule]) -> Vec<Row> {
    let rows = Rows { scale: *scale, rules: rules.to_vec() };
    let mut all = vec![
        rows.b37(),
        rows.b38(),
        rows.b39(),
        rows.b40(),
        rows.b41(),
        rows.b42(),
        rows.death(),
        rows.flat(),
        rows.fill(),
        rows.size(),
        rows.partitions(),
        rows.sweep(),
    ];
    // A row without its rules has no question.
    all.retain(|row| row.cases.iter().all(|case| !case.schemes.is_empty()));
    all
}

struct Rows {
    scale: Scale,
    rules: Vec<Rule>,
}

/// The offered share of a disk's bandwidth where only copies matter.
const PACE: f64 = 0.02;

/// The paper's objects, in bytes.
const PAPER_VALUE: u32 = 128 << 10;

/// Fixed triggers for cyclic keys: merges nearly dead files; at V = 0.2 there is space to wait for that.
const STATIC_SET: u8 = 95;

/// The tolerance for chance in a comparison at equal peaks.
const CHANCE: f64 = 1.02;

impl Rows {
    /// The selected ones of `rules`, with one open file for each partition.
    fn schemes(&self, rules: &[Rule]) -> Vec<Scheme> {
        let wanted = rules.iter().filter(|rule| self.rules.contains(rule));
        wanted.map(|rule| Scheme::new(*rule, 1)).collect()
    }

    /// The same, and the greedy rule at the peak of each of them.
    fn schemes_at_peaks(&self, rules: &[Rule], groups: u8) -> Vec<Scheme> {
        let mut schemes = self.schemes(rules);
        for scheme in schemes.iter_mut().filter(|scheme| scheme.rule == Rule::DeathTime) {
            scheme.groups = groups;
        }
        if self.rules.contains(&Rule::Greedy) {
            let others: Vec<_> = schemes.iter().map(|scheme| scheme.rule).collect();
            let others = others.into_iter().filter(|rule| *rule != Rule::Greedy);
            schemes.extend(others.map(Scheme::greedy_at_peak_of));
        }
        schemes
    }

    /// Sensors' objects of 128 KiB on a disk, as in the paper.
    fn paper(&self, capacity_mib: u64) -> Shape {
        Shape {
            disks: 1,
            capacity: self.scale.mib(capacity_mib),
            file_bytes: self.scale.mib(16),
            partitions: 1,
            live: 0.5,
            target: 0.8,
            value: 128 << 10,
            load: Load::Cyclic,
            clients: 64,
            delay: true,
            fills: [1.0, 1.0],
            pace: None,
            parts: 1,
            idle_readers: 0,
        }
    }

    /// For counting copies: 256 objects in a file, 400 files on the disk, four partitions. Sizes and mechanical times
    /// are divided alike, so that objects behave like ones of 128 KiB. The low pace leaves merges the time they need.
    fn copied(&self, load: Load, live: f64) -> Shape {
        let shape = Shape {
            partitions: 4,
            value: self.scale.small,
            load,
            live,
            clients: 64,
            pace: Some(PACE),
            parts: PAPER_VALUE / self.scale.small as u32,
            ..self.paper(1)
        };
        let file_bytes = 256 * shape.record() + 16 * KIB;
        Shape { file_bytes, capacity: 400 * file_bytes, ..shape }
    }

    fn b37(&self) -> Row {
        let base = Shape {
            capacity: self.scale.mib(256),
            partitions: 4,
            value: 8 << 10,
            parts: PAPER_VALUE / (8 << 10),
            fills: [2.0, 1.0],
            ..self.paper(1)
        };
        let mut cases = Vec::new();
        let mut planes = Vec::new();
        for parts in self.scale.some(&[128, 64, 32, 16]) {
            for live in self.scale.some(&[0.2, 0.4, 0.6, 0.7]) {
                let shape = Shape { file_bytes: base.capacity / parts, live, ..base.clone() };
                planes.push(shape.planes());
                cases.push(Case {
                    name: format!("V = {live}, R = C/{parts}, n = 4"),
                    schemes: self.schemes(&[Rule::Fisherman]),
                    shape,
                });
            }
        }
        let target = 100.0 * base.target;
        let about = "does a store plane where condition (4) says: no copy, and the fill held?";
        Row::new("B37", about, cases).tell(move |writer, cells| {
            let title = "B37: write amplification (planing: 1)";
            writer.grid(title, cells, Run::WRITE_AMPLIFICATION);
            writer.grid("B37: peak fill, %", cells, Run::PEAK);
            writer.grid("B37: dead in files that were merged, %", cells, Run::EATEN);
            let holds = || cells.iter().zip(&planes).filter(|(_, planes)| **planes);
            let worst = |figure: Figure<Run>| {
                let of = holds().map(|(cell, _)| cell.sides[0].median(figure.of));
                of.fold(f64::NAN, f64::max)
            };
            let count = holds().count();
            for (what, unit, figure, band) in [
                ("largest write amplification", "", Run::WRITE_AMPLIFICATION, [1.0, 1.005]),
                ("highest fill", ", %", Run::PEAK, [0.0, target + 1.0]),
            ] {
                let what = format!("{what} of the {count} cases in which (4) holds{unit}");
                check(writer.report, "B37", &what, &[worst(figure)], band);
            }
        })
    }

    fn b38(&self) -> Row {
        let shape = Shape { partitions: 4, live: 0.2, fills: [1.0, 1.0], ..self.paper(1024) };
        let mut schemes = self.schemes(&[Rule::Static, Rule::Fisherman, Rule::DeathTime]);
        let set = Scheme::static_at(STATIC_SET);
        if self.rules.contains(&Rule::Static) {
            schemes.insert(1, set);
        }
        let name = "cyclic, V = 0.2, n = 4, R = C/64".into();
        let about = "how much faster does a store write that does not merge at fixed triggers?";
        Row::new("B38", about, [Case { name, shape, schemes }]).tell(move |writer, cells| {
            let cell = cells[0];
            tables(writer, "B38", cells);
            for rule in [FISHERMAN, OURS] {
                if cell.find(rule).is_some() && cell.find(STATIC).is_some() {
                    let values = cell.ratios(rule, STATIC, Run::mib_per_s);
                    let what = format!("throughput, {rule} / {STATIC} (paper: 5 on its disk)");
                    check_speed(writer.report, "B38", &what, &values, [1.5, ANY], cells);
                }
                let pair = [rule, &set.name()];
                ratio(writer, "B38", "throughput", cell, pair, Run::SPEED, None);
            }
            over_time(writer.report, "B38", cell);
        })
    }

    fn b39(&self) -> Row {
        let case = |delay: bool| {
            let base = self.copied(Load::Random, 0.9);
            let shape = Shape { partitions: 1, pace: None, delay, fills: [0.5, 1.0], ..base };
            let name = if delay { "with the put delay" } else { "without the put delay" };
            Case {
                name: format!("random, V = 0.9, {name}"),
                shape,
                schemes: self.schemes(&[Rule::Fisherman, Rule::DeathTime]),
            }
        };
        let about = "is there always room when puts outrun merges?";
        Row::new("B39", about, [case(true), case(false)]).tell(|writer, cells| {
            tables(writer, "B39", cells);
            for (cell, delayed) in cells.iter().zip([true, false]) {
                for side in &cell.sides {
                    let of = |what: &str| format!("{}: {what}, {}", cell.case, side.scheme);
                    let refused = side.each(|run| run.refused as f64);
                    let stuck = side.runs.iter().filter(|run| run.is_stuck).count() as f64;
                    let what = of("puts refused for lack of room");
                    if delayed {
                        check(writer.report, "B39", &what, &refused, [0.0, 0.0]);
                    } else {
                        writer.compare("B39", &what, "puts", &[(&side.scheme, refused)]);
                    }
                    let what = of("runs that came to a dead end");
                    if side.runs.is_empty() {
                        continue;
                    }
                    if delayed {
                        check(writer.report, "B39", &what, &[stuck], [0.0, 0.0]);
                    } else {
                        writer.report.row("B39", &what, &side.scheme, stuck, "runs");
                    }
                }
            }
        })
    }

    fn b40(&self) -> Row {
        let disks = self.scale.some(&[1u16, 2, 3, 4, 5]);
        let own = self.schemes(&[Rule::DeathTime]);
        let both = || own.iter().flat_map(|own| [*own, own.in_pool()]).collect();
        let case = |disks: &u16| Case {
            name: format!("{disks} disks, a partition and 64 clients for each"),
            shape: Shape { disks: *disks, live: 0.3, parts: PARTS, ..self.paper(512) },
            schemes: both(),
        };
        let mut cases: Vec<_> = disks.iter().map(case).collect();
        // Half of the records are dead when their file is merged.
        let merging =
            Shape { disks: disks[disks.len() - 1], load: Load::Random, ..self.paper(512) };
        cases.push(Case {
            name: format!("{} disks, random keys", merging.disks),
            shape: merging,
            schemes: both(),
        });
        let about = "do five disks write five times as much as one, each a volume of the store, and in a pool?";
        Row::new("B40", about, cases).tell(move |writer, cells| {
            let (merging, cells) = cells.split_last().expect("it has a case");
            let disks = disks.iter().map(|disks| f64::from(*disks));
            let points: Vec<_> = disks.zip(cells.iter().copied()).collect();
            for side in 0..cells[0].sides.len() {
                let speed = |cell: &Cell| cell.sides[side].median(Run::mib_per_s);
                let each = points.iter().map(|(disks, cell)| speed(cell) / disks / speed(cells[0]));
                let worst = each.skip(1).fold(f64::INFINITY, f64::min);
                let scheme = &cells[0].sides[side].scheme;
                let what = format!(
                    "{scheme}: throughput for each disk beside that of one, where it is least"
                );
                check_speed(writer.report, "B40", &what, &[worst], [0.9, ANY], cells);
            }
            writer.grid("B40: MiB/s of all disks", cells, Run::SPEED);
            for cell in cells.iter().chain([merging]) {
                let pair = [POOLED, OURS];
                ratio(writer, "B40", "throughput", cell, pair, Run::SPEED, Some([0.95, ANY]));
            }
            tables(writer, "B40", &[merging]);
            let axes = ["disks", "MiB/s put"];
            writer.curves("B40: throughput against disks", axes, &points, Run::SPEED);
        })
    }

    fn b41(&self) -> Row {
        let shape = Shape {
            load: Load::Random,
            live: 0.5,
            target: 0.7,
            idle_readers: 4,
            value: 32 << 10,
            file_bytes: self.scale.mib(128) / 64,
            ..self.paper(128)
        };
        let schemes = self.schemes(&[Rule::Fisherman, Rule::DeathTime]);
        let case = Case { name: "random, V = 0.5, four idle readers".into(), shape, schemes };
        let about = "do readers that idle keep room of files that were removed?";
        Row::new("B41", about, [case]).tell(|writer, cells| {
            tables(writer, "B41", cells);
            for side @ Side { scheme, .. } in &cells[0].sides {
                let peaks = side.each(|run| {
                    let dying = run.samples.iter().map(|sample| sample.dying as f64 / MIB as f64);
                    dying.fold(0.0, f64::max)
                });
                let what = "unlinked and open, at most at any time";
                writer.compare("B41", what, "MiB", &[(scheme, peaks)]);
                for (whose, at) in [("the store", 0), ("what is below it", 1)] {
                    let bytes = side.each(|run| run.unlinked[at] as f64);
                    let what = format!(
                        "{scheme}: bytes unlinked and open 1 s after the last put, as {whose} counts"
                    );
                    check(writer.report, "B41", &what, &bytes, [0.0, 0.0]);
                }
            }
        })
    }

    /// Random keys under every rule.
    fn random(&self) -> Case {
        let schemes = self.schemes_at_peaks(&Rule::ALL, 8);
        let shape = Shape { fills: [3.0, 3.0], ..self.copied(Load::Random, 0.7) };
        Case { name: "random, V = 0.7, n = 4, R = C/400".into(), shape, schemes }
    }

    fn b42(&self) -> Row {
        const READ: Figure<Run> = Figure::new("bytes read by merges", "x", |run| {
            run.counts.read_bytes as f64 / run.counts.put_bytes as f64
        });
        let about = "what do the rules copy of keys that are written at random?";
        Row::new("B42", about, [self.random()]).tell(|writer, cells| {
            tables(writer, "B42", cells);
            for figure in [Run::WRITE_AMPLIFICATION, READ] {
                let what = format!("{} at equal U_m", figure.name);
                let (pair, band) = ([FISHERMAN, PRODUCT], Some([0.0, 0.7]));
                ratio(writer, "B42", &what, cells[0], pair, figure, band);
            }
            at_peaks(writer, "B42", cells[0], None);
        })
    }

    fn death(&self) -> Row {
        let rules = [Rule::Greedy, Rule::Fisherman, Rule::DeathTime];
        let cyclic = Case {
            name: "cyclic, V = 0.85, n = 4, R = C/400".into(),
            shape: Shape { fills: [3.0, 2.0], ..self.copied(Load::Cyclic, 0.85) },
            schemes: self.schemes_at_peaks(&rules, 1),
        };
        // Every key is written once in 4.3 fillings.
        let series = Load::Series { range: 16 };
        let series = Case {
            name: format!("{}, V = 0.7, n = 4, R = C/400", series.name()),
            shape: Shape { fills: [9.0, 5.0], ..self.copied(series, 0.7) },
            schemes: self.schemes_at_peaks(&rules, 8),
        };
        let about = "what is copied if records that die together lie together?";
        Row::new("death", about, [cyclic, series, self.random()]).tell(|writer, cells| {
            tables(writer, "death", &cells[..2]);
            if let Some(ours) = cells[0].find(OURS) {
                let what = format!("{}: write amplification of {OURS}", cells[0].case);
                let values = ours.each(Run::WRITE_AMPLIFICATION.of);
                check(writer.report, "death", &what, &values, [1.0, 1.05]);
            }
            for (cell, most) in cells.iter().zip([None, Some(0.85), Some(CHANCE)]) {
                at_peaks(writer, "death", cell, most);
            }
        })
    }

    fn flat(&self) -> Row {
        let fills = self.scale.flat_fills;
        let shape = Shape { live: 0.6, fills: [1.0, fills + 0.05], ..self.paper(512) };
        let case = Case {
            name: "cyclic, V = 0.6, n = 1, R = C/32".into(),
            shape,
            schemes: self.schemes(&[Rule::Fisherman, Rule::DeathTime]),
        };
        let about = "is throughput flat from an empty disk on, for as long as it goes?";
        Row::new("flat", about, [case]).tell(move |writer, cells| {
            tables(writer, "flat", cells);
            for side in &cells[0].sides {
                let what = format!(
                    "slowest scaled minute / the first, over {fills} fillings after the first, {}",
                    side.scheme
                );
                let values = side.each(Run::flatness);
                check_speed(writer.report, "flat", &what, &values, [0.85, ANY], cells);
                let what = format!("fillings after the first, {}", side.scheme);
                let values = side.each(Run::fills_after_first);
                check(writer.report, "flat", &what, &values, [fills, ANY]);
            }
            over_time(writer.report, "flat", cells[0]);
        })
    }

    /// Throughput over a varied parameter, with a table.
    fn against(
        id: &'static str,
        about: &'static str,
        what: &'static str,
        cases: impl Iterator<Item = (f64, Case)>,
        axis: Axis,
    ) -> Row {
        let (at, cases): (Vec<f64>, Vec<Case>) = cases.unzip();
        Row::new(id, about, cases).tell(move |writer, cells| {
            writer.grid(&format!("{id}: MiB/s"), cells, Run::SPEED);
            writer.grid(&format!("{id}: write amplification"), cells, Run::WRITE_AMPLIFICATION);
            let points: Vec<_> = at.iter().copied().zip(cells.iter().copied()).collect();
            let title = format!("{id}: throughput against {what}");
            writer.curves(&title, [what, "MiB/s put"], &points, Run::SPEED).x_axis = axis;
        })
    }

    fn fill(&self) -> Row {
        let case = |live: f64| {
            let name = format!("cyclic, V = {live}, n = 1, R = C/32");
            let file_bytes = self.scale.mib(32);
            let shape = Shape { live, file_bytes, fills: [1.25, 0.5], ..self.paper(1024) };
            (live, Case { name, shape, schemes: self.schemes(&Rule::ALL) })
        };
        let cases = self.scale.some(&[0.1, 0.3, 0.5, 0.6, 0.7, 0.8]).into_iter().map(case);
        let about = "what is left of the bandwidth the fuller the disk is?";
        Self::against("fill", about, "V, the part that lives", cases, Axis::Linear)
    }

    fn size(&self) -> Row {
        let case = |value: usize| {
            let shape = Shape { value, fills: [0.75, 0.5], ..self.paper(256) };
            let name = format!("objects of {} KiB, V = 0.5", value >> 10);
            let schemes = self.schemes(&[Rule::Static, Rule::Fisherman, Rule::DeathTime]);
            ((value >> 10) as f64, Case { name, shape, schemes })
        };
        let sizes = self.scale.some(&[1usize << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10]);
        let (about, cases) = ("what do objects of other sizes cost?", sizes.into_iter().map(case));
        Self::against("size", about, "KiB of an object", cases, Axis::Log)
    }

    fn partitions(&self) -> Row {
        let case = |partitions: u16| {
            let base = self.paper(1024);
            let shape = Shape { partitions, file_bytes: base.capacity / 256, ..base };
            let name = format!("{partitions} partitions on a disk, R = C/256");
            let schemes = self.schemes(&[Rule::Fisherman, Rule::DeathTime]);
            (f64::from(partitions), Case { name, shape, schemes })
        };
        let cases = self.scale.some(&[1u16, 2, 4, 8, 16, 32]).into_iter().map(case);
        let about = "what do more partitions on a disk cost?";
        Self::against("partitions", about, "partitions on one disk", cases, Axis::Log)
    }

    fn sweep(&self) -> Row {
        let base = Shape { fills: [1.0, 0.5], ..self.paper(1024) };
        let mut cases = Vec::new();
        for live in self.scale.some(&[0.3, 0.6, 0.8]) {
            for parts in self.scale.some(&[256, 64, 32]) {
                for value in self.scale.some(&[4usize << 10, 32 << 10, 128 << 10]) {
                    let file_bytes = base.capacity / parts;
                    let value = value.min(file_bytes as usize / 4 - 64);
                    let name =
                        format!("V = {live}, R = C/{parts}, B = {} KiB", value.div_ceil(1 << 10));
                    let shape = Shape { live, file_bytes, value, ..base.clone() };
                    cases.push(Case { name, shape, schemes: self.schemes(&[Rule::DeathTime]) });
                }
            }
        }
        Row::new("sweep", "V x R x B: what fits together?", cases).tell(|writer, cells| {
            writer.grid("sweep: MiB/s", cells, Run::SPEED);
            writer.grid("sweep: write amplification", cells, Run::WRITE_AMPLIFICATION);
            writer.grid("sweep: peak fill, %", cells, Run::PEAK);
        })
    }
}

/// A table of each cell: a line for each rule.
fn tables(writer: &mut ReportWriter<'_>, id: &str, cells: &[&Cell]) {
    writer.report.tables.extend(cells.iter().map(|cell| cell.table(id, Run::FIGURES)));
}

/// Every rule beside the greedy one at the same peak fill.
fn at_peaks(writer: &mut ReportWriter<'_>, id: &str, cell: &Cell, most: Option<f64>) {
    for rule in Rule::ALL {
        let greedy = Scheme::greedy_at_peak_of(rule).name();
        let band = most.filter(|_| rule == Rule::DeathTime).map(|most| [0.0, most]);
        let pair = [rule.name(), greedy.as_str()];
        let what = "write amplification at equal peak fill";
        ratio(writer, id, what, cell, pair, Run::WRITE_AMPLIFICATION, band);
    }
}
