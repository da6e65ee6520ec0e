//! Which runs go on at the same time.

use std::sync::mpsc::channel;

use volume::Clock;

use super::Late;

/// The stores that run at the same time, by scheme and run: all of them if `fits` allows, else those of one run, else
/// each alone. Each run begins with another scheme, so that drift affects all schemes alike.
pub fn groups(schemes: usize, runs: u64, fits: impl Fn(u64) -> bool) -> Vec<Vec<(usize, u64)>> {
    let each = (0..runs).map(|run| {
        let from = usize::try_from(run).unwrap_or(0);
        (0..schemes).map(|turn| ((turn + from) % schemes, run)).collect::<Vec<_>>()
    });
    if fits(runs) {
        vec![each.flatten().collect()]
    } else if fits(1) {
        each.collect()
    } else {
        each.flatten().map(|one| vec![one]).collect()
    }
}

/// Calls `work` `count` times, each on its own thread, and returns the results in that order.
///
/// # Errors
/// The first error.
///
/// # Panics
/// If one of the threads panics.
pub fn at_once<T: Send>(
    count: usize,
    work: impl Fn(usize) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..count).map(|at| scope.spawn(move || work(at))).collect();
        running.into_iter().map(|one| one.join().expect("it does not panic")).collect()
    })
}

/// [`at_once`], and how late the machine's timers were meanwhile.
///
/// # Errors
/// The first error.
///
/// # Panics
/// If one of the threads panics.
pub fn together<T: Send>(
    clock: &Clock,
    count: usize,
    work: impl Fn(usize) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<(Vec<T>, Late)> {
    let (ended, running) = channel::<()>();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            let running = running;
            Late::watch(clock, &running)
        });
        let done = at_once(count, work);
        drop(ended);
        let late = late.join().expect("it does not panic");
        Ok((done?, late))
    })
}

/// Each distinct item once, in the order of first occurrence.
pub fn each_once<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_run_at_once_as_fit_and_each_run_begins_with_another_scheme() {
        assert_eq!(groups(2, 2, |_| true), [vec![(0, 0), (1, 0), (1, 1), (0, 1)]]);
        assert_eq!(groups(2, 2, |runs| runs == 1), [[(0, 0), (1, 0)], [(1, 1), (0, 1)]]);
        assert_eq!(groups(2, 1, |_| false), [[(0, 0)], [(1, 0)]]);
        assert_eq!(each_once([1, 2, 1]), [1, 2]);
    }
}
