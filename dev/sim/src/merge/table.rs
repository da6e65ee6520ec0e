use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use policy::merge::{Rule, Settings, Triggers};

use super::store::play_between;
use super::{Figures, Lifetimes, Shape, play};

pub(super) const SEED: u64 = 7;

/// The settings of the paper: no emergencies, and of Bitcask's triggers only the share.
pub(super) fn published(rule: Rule) -> Settings {
    let triggers = Triggers {
        trigger_share: 0.6,
        share: 0.6,
        trigger_bytes: u64::MAX,
        bytes: u64::MAX,
        small: 0,
    };
    Settings { triggers, file_bytes: 0, ..Settings::new(rule, 0) }
}

/// The same with the greedy rule, with a target so that the peak fill is that of `figures`, or a little above.
#[must_use]
pub fn at_peak(shape: Shape, figures: &Figures, seed: u64) -> Figures {
    let greedy = |target| {
        let settings = Settings { target, rule: Rule::Greedy, ..shape.settings };
        play(Shape { groups: 1, settings, ..shape }, seed)
    };
    let first = greedy(figures.peak);
    // It overshoots by the puts between two searches for merges.
    let over = first.peak - figures.peak;
    if !(5e-4..=0.02).contains(&over) { first } else { greedy(figures.peak - over) }
}

/// A line of the table, computed when called.
type Line = Box<dyn Fn() -> String + Send + Sync>;

/// Computes the table on all processors; passes it to `print` line by line, in order.
pub fn table(mut print: impl FnMut(&str)) {
    let mut lines: Vec<Line> = vec![said("Write amplification (peak fill); target 0.8\n\n")];
    lines.extend(published_table());
    lines.push(said("\n"));
    lines.extend(ours_table());
    lines.push(said("\n"));
    lines.extend(random_table());
    lines.push(said("\n"));
    lines.extend(delay_table());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let (done, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..workers {
            let (lines, next, done) = (&lines, &next, done.clone());
            scope.spawn(move || {
                while let Some((at, line)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    lines.get(at).map(|line| (at, line))
                } {
                    // The receiver is gone if `print` panicked.
                    let _ = done.send((at, line()));
                }
            });
        }
        drop(done);
        let mut waiting = BTreeMap::new();
        let mut printed = 0;
        for (at, line) in results {
            waiting.insert(at, line);
            while let Some(line) = waiting.remove(&printed) {
                print(&line);
                printed += 1;
            }
        }
    });
}

fn said(what: &'static str) -> Line {
    Box::new(move || what.into())
}

fn told(figures: &Figures) -> String {
    match figures.out_of_space {
        Some(_) => "full".into(),
        None => format!("{:.2} ({:.2})", figures.write_amplification, figures.peak),
    }
}

fn published_table() -> Vec<Line> {
    let rules = [Rule::Static, Rule::Greedy, Rule::FishermanProduct, Rule::Fisherman];
    let mut lines = vec![said("as published (PSTA 8(3), 2017), C = 25600\n")];
    lines.push(Box::new(move || line("", rules.map(|rule| rule.name().into()))));
    for (lifetimes, partitions, file, lives) in [
        (Lifetimes::Cyclic, 16, 250, &[0.2, 0.4, 0.6, 0.7][..]),
        (Lifetimes::Random, 16, 250, &[0.3, 0.5, 0.7]),
        (Lifetimes::Cyclic, 64, 256, &[0.1, 0.2, 0.3, 0.5]),
    ] {
        for &live in lives {
            lines.push(Box::new(move || {
                let cells = rules.map(|rule| {
                    let shape = Shape {
                        partitions,
                        capacity: 25_600,
                        file,
                        groups: 1,
                        settings: published(rule),
                        ..Shape::new(lifetimes, live, rule)
                    };
                    told(&play(shape, SEED))
                });
                line(&format!("{} n={partitions} R={file} V={live}", lifetimes.name()), cells)
            }));
        }
    }
    lines
}

fn ours_table() -> Vec<Line> {
    let head =
        ["greedy", "fisherman", "death-time", "groups", "whole", "greedy, same peak", "ratio"];
    let mut lines = vec![said("ours, C = 6400, n = 4, R = 16, up to 8 groups\n")];
    lines.push(Box::new(move || line("", head.map(String::from))));
    for (lifetimes, live) in [
        (Lifetimes::Cyclic, 0.7),
        (Lifetimes::Cyclic, 0.85),
        (Lifetimes::Series { range: 8 }, 0.7),
        (Lifetimes::Series { range: 64 }, 0.7),
        (Lifetimes::Series { range: 64 }, 0.85),
        (Lifetimes::Spread { range: 64 }, 0.7),
        (Lifetimes::SeriesUntold { range: 8 }, 0.7),
        (Lifetimes::SeriesUntold { range: 64 }, 0.7),
        (Lifetimes::Hot, 0.7),
        (Lifetimes::Mixed, 0.7),
        (Lifetimes::Random, 0.5),
        (Lifetimes::Random, 0.7),
    ] {
        lines.push(Box::new(move || {
            let [greedy, fisherman] = [Rule::Greedy, Rule::Fisherman]
                .map(|rule| play(Shape { groups: 1, ..Shape::new(lifetimes, live, rule) }, SEED));
            let shape = Shape::new(lifetimes, live, Rule::DeathTime);
            let ours = play(shape, SEED);
            let same = at_peak(shape, &ours, SEED);
            let cells = [
                told(&greedy),
                told(&fisherman),
                told(&ours),
                format!("{:.1}", ours.groups),
                format!("{:.2}", ours.whole),
                told(&same),
                format!("{:.2}", ours.write_amplification / same.write_amplification),
            ];
            line(&format!("{} V={live}", lifetimes.name()), cells)
        }));
    }
    lines
}

/// Random overwrites, beside the greedy rule on the same keys: lifetimes cannot be guessed, and wrong guesses
/// cost most while the store is young.
fn random_table() -> Vec<Line> {
    let head = ["death-time", "greedy", "ratio, seed 1", "seed 2", "seed 3"];
    let mut lines =
        vec![said("random, C = 12800, up to 8 groups, from the third filling to the sixth\n")];
    lines.push(Box::new(move || line("", head.map(String::from))));
    for live in [0.5, 0.7, 0.85] {
        for (partitions, file) in [(1, 32), (1, 128), (4, 32), (4, 128)] {
            lines.push(Box::new(move || {
                let shape = Shape::new(Lifetimes::Random, live, Rule::DeathTime);
                // Above the live share, or merges copy the same records for ever.
                let target = shape.settings.target.max(live + 0.07);
                let settings = Settings { target, ..shape.settings };
                let shape = Shape { partitions, file, capacity: 12_800, settings, ..shape };
                let runs = [1, 2, 3].map(|seed| beside_greed(shape, seed));
                let [ours, greedy] = runs[0];
                let ratios = runs
                    .map(|[a, b]| format!("{:.3}", a.write_amplification / b.write_amplification));
                let [one, two, three] = ratios;
                let cells = [told(&ours), told(&greedy), one, two, three];
                line(&format!("n={partitions} R={file} V={live}"), cells)
            }));
        }
    }
    lines
}

/// From the third filling to the sixth: our rule, and the greedy one with the same target.
#[must_use]
pub(super) fn beside_greed(shape: Shape, seed: u64) -> [Figures; 2] {
    let filling = u64::from(shape.capacity);
    [(shape.settings.rule, shape.groups), (Rule::Greedy, 1)].map(|(rule, groups)| {
        let settings = Settings { rule, ..shape.settings };
        play_between(Shape { groups, settings, ..shape }, seed, 3 * filling..6 * filling)
    })
}

fn delay_table() -> Vec<Line> {
    let mut lines =
        vec![said("puts that outrun merges (B39): V = 0.9, merges move one object for each put\n")];
    let head = ["rule", "no delay", "delay", "longest", "refused"];
    lines.push(Box::new(move || line("", head.map(String::from))));
    for rule in Rule::ALL {
        lines.push(Box::new(move || {
            let shape = Shape { pace: Some(1.0), ..Shape::new(Lifetimes::Random, 0.9, rule) };
            let shape = Shape { groups: if rule == Rule::DeathTime { 8 } else { 1 }, ..shape };
            let rude = play(shape, SEED);
            let polite = play(Shape { polite: true, ..shape }, SEED);
            let cells = [
                rule.name().into(),
                told(&rude),
                told(&polite),
                format!("{:.2} s", polite.delay_max.as_secs_f64()),
                polite.refused.to_string(),
            ];
            line("random", cells)
        }));
    }
    lines
}

fn line<const N: usize>(head: &str, cells: [String; N]) -> String {
    let cells = cells.map(|cell| format!(" {cell:>18}"));
    format!("{head:28}{}\n", cells.concat())
}
