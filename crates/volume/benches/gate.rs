//! The gate's cost for an uncontended request: the budget covers it, no request waits, the clock is
//! real.
//!
//! `cargo bench -p plimsoll-volume --bench gate`. The gate's own cost is that with its
//! scheduler's name less `bare`.

mod null;

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use policy::budget::Share;
use policy::contract::{Contract, Counted, Limit};
use policy::purpose::{Origin, Step};
use policy::sched::Policy;
use volume::layer::gate::Gate;
use volume::{Clock, Intent, Io, IoBufMut, Name, Object, Volume};

use self::null::{Null, now};

/// Both kinds of limit, as gp3 has them, both too large for any request to wait.
fn ample() -> Contract {
    let limit = |counts, rate_per_sec| Limit { counts, rate_per_sec, depth: rate_per_sec };
    let limits = vec![limit(Counted::Ops, 1 << 40), limit(Counted::Bytes, 1 << 50)];
    Contract { limits, ..Contract::unlimited() }
}

fn read(c: &mut Criterion, name: &str, object: &dyn Object) {
    let io = Io::new(Origin::UserRead, Step::Data);
    let mut page = Some(IoBufMut::zeroed(4096));
    c.bench_function(name, |b| {
        b.iter(|| {
            let into = page.take().expect("each read gives its buffer back");
            page = Some(now(object.read_at(black_box(0), into, io)).expect("it does not fail"));
        });
    });
}

fn gate(c: &mut Criterion) {
    let name = Name::new("data").expect("a good name");
    read(c, "read 4 KiB, bare", &Null);

    let clock = Clock::real();
    for policy in Policy::ALL {
        let share = Share::default();
        let gate = Gate::with_policy(Null, "null", &ample(), share, policy, clock.clone());
        let object = now(gate.create(&name, &Intent::DATA)).expect("it does not fail");
        // The budget is empty at first.
        let soon = clock.now() + std::time::Duration::from_millis(300);
        volume::task::block_on(clock.sleep_until(soon));
        read(c, &format!("read 4 KiB, {}", policy.name()), &*object);
    }

    c.bench_function("ask the clock", |b| b.iter(|| clock.now()));
}

criterion_group!(benches, gate);
criterion_main!(benches);
