//! A spread pool passes the conformance suite, on one volume and on six, with every placement.

use std::sync::Arc;

use pool::Member;
use pool::spread::Spread;
use volume::conformance::{self, Blocking};
use volume::task::block_on;

use crate::rig::{PLACEMENTS, members, mems, opening};

#[test]
fn conforms_with_every_placement() {
    for placement in PLACEMENTS {
        for count in [1, 6] {
            eprintln!("{placement} over {count}");
            conformance::run(|| {
                let volumes = mems(count);
                let open = move || {
                    let opened = Spread::open(members(&volumes), opening(placement));
                    Arc::new(block_on(opened).unwrap()) as _
                };
                Box::new(Blocking::reopening(open))
            });
        }
    }
}

#[test]
fn conforms_over_pools() {
    for placement in PLACEMENTS {
        conformance::run(|| {
            let volumes = [mems(3), mems(2)];
            let open = move || {
                let pools = volumes.iter().enumerate().map(|(at, volumes)| {
                    let pool = block_on(Spread::open(members(volumes), opening(placement)));
                    Member::new(format!("pool {at}"), pool.unwrap())
                });
                Arc::new(block_on(Spread::open(pools.collect(), opening(placement))).unwrap()) as _
            };
            Box::new(Blocking::reopening(open))
        });
    }
}
