//! The cost of the reserve layer for a write: the volume has room, so the layer only checks the result.
//!
//! `cargo bench -p plimsoll-volume --bench reserve`. The layer's own cost is `reserve` less `bare`.

mod null;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use policy::purpose::{Origin, Step};
use volume::layer::reserve::Reserve;
use volume::task::block_on;
use volume::{Intent, Io, IoBufMut, Name, Object, Volume};

use self::null::{Null, now};

const IO: Io = Io::new(Origin::UserWrite, Step::Data);

fn write(c: &mut Criterion, name: &str, object: &dyn Object) {
    let page = IoBufMut::zeroed(4096).freeze();
    c.bench_function(&format!("write 4 KiB, {name}"), |b| {
        b.iter(|| now(object.write_at(black_box(0), page.clone(), IO)).expect("it does not fail"));
    });
    c.bench_function(&format!("blocking write of 4 KiB, {name}"), |b| {
        b.iter(|| {
            object.blocking_write_at(black_box(0), &page, IO).expect("it does not fail");
        });
    });
}

fn reserve(c: &mut Criterion) {
    write(c, "bare", &Null);
    let reserve = block_on(Reserve::open(Arc::new(Null), "x/")).expect("it does not fail");
    let name = Name::new("data").expect("a good name");
    let object = now(reserve.create(&name, &Intent::DATA)).expect("it does not fail");
    write(c, "reserve", &*object);
}

criterion_group!(benches, reserve);
criterion_main!(benches);
