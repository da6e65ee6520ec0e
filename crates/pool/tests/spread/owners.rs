//! Names with an owner, and objects with several names.

use volume::task::block_on;
use volume::{ErrorKind, Intent, Volume};

use crate::rig::{members, mems, name, opening};
use pool::spread::Spread;

#[test]
fn a_name_has_one_owner_at_a_time() {
    let pool = block_on(Spread::open(members(&mems(1)), opening("single"))).unwrap();
    let mine = pool.lease_name(&name("kv/LOCK")).unwrap();
    let other_handle = pool.clone();
    let refused = other_handle.lease_name(&name("kv/LOCK")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    other_handle.lease_name(&name("kv2/LOCK")).unwrap();
    drop(mine);
    other_handle.lease_name(&name("kv/LOCK")).unwrap();
}

#[test]
fn an_object_knows_how_many_names_it_has() {
    let pool = block_on(Spread::open(members(&mems(2)), opening("single"))).unwrap();
    block_on(async {
        pool.create(&name("a"), &Intent::DATA).await.unwrap();
        let links = async |text| pool.stat(&name(text)).await.unwrap().links;
        assert_eq!(links("a").await, 1);
        pool.link(&name("a"), &name("b")).await.unwrap();
        assert_eq!((links("a").await, links("b").await), (2, 2));
        pool.remove(&name("a")).await.unwrap();
        assert_eq!(links("b").await, 1);
    });
}
