//! What a volume does with names: create, open, remove, list.

use futures_util::future::join_all;

use super::*;

pub(super) const CASES: &[(&str, Case)] = &[
    ("a new volume is empty", a_new_volume_is_empty),
    ("a new object is empty and listed", a_new_object_is_empty_and_listed),
    ("names are used once", names_are_used_once),
    ("what is not there is not found", what_is_not_there_is_not_found),
    ("slashes in names mean nothing", slashes_in_names_mean_nothing),
    ("long names work", long_names_work),
    ("a removed object leaves its name", a_removed_object_leaves_its_name),
    ("an open object outlives its name", an_open_object_outlives_its_name),
    ("handles share one object", handles_share_one_object),
    ("many objects at once", many_objects_at_once),
    ("reopening keeps names", reopening_keeps_names),
    ("the creator says what is a log", the_creator_says_what_is_a_log),
    ("whole objects are there or refused", whole_objects_are_there_or_refused),
    ("names move and multiply, or stay", names_move_and_multiply_or_stay),
];

fn a_new_volume_is_empty(harness: &mut dyn Harness) {
    run_part(harness, |volume| async move {
        assert_eq!(listed(&*volume).await, []);
        let space = volume.space().await.expect("a new volume tells its space");
        assert!(space.total > 0 && space.free <= space.total, "{space:?}");
    });
}

fn a_new_object_is_empty_and_listed(harness: &mut dyn Harness) {
    run_part(harness, |volume| async move {
        let object = create(&*volume, "a").await;
        assert_eq!((object.len(), object.is_empty()), (0, true));
        assert_eq!(content(&*object).await, b"");
        assert_eq!(listed(&*volume).await, [("a".into(), 0)]);
        write(&*object, 0, &pattern(777, 1)).await;
        assert!(!object.is_empty());
        assert_eq!(listed(&*volume).await, [("a".into(), 777)]);
    });
}

fn names_are_used_once(harness: &mut dyn Harness) {
    run_part(harness, |volume| async move {
        let first = create(&*volume, "a").await;
        write(&*first, 0, b"first").await;
        let again = volume.create(&name("a"), &Intent::DATA).await;
        assert_eq!(kind(again), Some(ErrorKind::AlreadyExists));
        assert_eq!(content(&*first).await, b"first", "a refused creation changes nothing");
    });
}

fn what_is_not_there_is_not_found(harness: &mut dyn Harness) {
    run_part(harness, |volume| async move {
        create(&*volume, "a").await;
        assert_eq!(kind(volume.open(&name("b")).await), Some(ErrorKind::NotFound));
        assert_eq!(kind(volume.remove(&name("b")).await), Some(ErrorKind::NotFound));
    });
}

fn slashes_in_names_mean_nothing(harness: &mut dyn Harness) {
    const NAMES: [&str; 5] = ["a", "a-b", "a/b", "a/b/c", "a_b"];
    run_part(harness, |volume| async move {
        for text in NAMES {
            write(&*create(&*volume, text).await, 0, text.as_bytes()).await;
        }
        let all = NAMES.map(|text| (text.to_owned(), text.len() as u64));
        assert_eq!(listed(&*volume).await, all);
        volume.remove(&name("a/b")).await.expect("a name other names begin with can go");
        for text in ["a", "a/b/c"] {
            assert_eq!(content(&*open(&*volume, text).await).await, text.as_bytes());
        }
    });
}

fn long_names_work(harness: &mut dyn Harness) {
    run_part(harness, |volume| async move {
        let long = format!("{}/{}", "d".repeat(99), "f".repeat(100));
        assert_eq!(long.len(), Name::LEN_MAX);
        create(&*volume, &long).await;
        assert_eq!(listed(&*volume).await, [(long, 0)]);
    });
}

fn a_removed_object_leaves_its_name(harness: &mut dyn Harness) {
    run_part(harness, |volume| async move {
        let old = create(&*volume, "a").await;
        write(&*old, 0, b"old").await;
        drop(old);
        volume.remove(&name("a")).await.expect("an object can be removed");
        assert_eq!(listed(&*volume).await, []);
        assert_eq!(kind(volume.open(&name("a")).await), Some(ErrorKind::NotFound));
        assert_eq!(kind(volume.remove(&name("a")).await), Some(ErrorKind::NotFound));
        assert_eq!(content(&*create(&*volume, "a").await).await, b"");
    });
}

fn an_open_object_outlives_its_name(harness: &mut dyn Harness) {
    for text in BOTH {
        run_part(harness, |volume| async move {
            let old = create(&*volume, text).await;
            let bytes = pattern(5001, 2);
            write(&*old, 0, &bytes).await;
            volume.remove(&name(text)).await.expect("an open object can be removed");
            assert_eq!(content(&*old).await, bytes);
            let new = create(&*volume, text).await;
            write(&*new, 0, b"new").await;
            assert_eq!(content(&*old).await, bytes, "the old object is not the new one");
            assert_eq!(content(&*new).await, b"new");
        });
    }
}

fn handles_share_one_object(harness: &mut dyn Harness) {
    for text in BOTH {
        run_part(harness, |volume| async move {
            let created = create(&*volume, text).await;
            let opened = open(&*volume, text).await;
            write(&*created, 0, &pattern(4097, 3)).await;
            assert_eq!(opened.len(), 4097);
            assert_eq!(content(&*opened).await, pattern(4097, 3));
            opened.set_len(5).await.expect("an opened object can be cut");
            write(&*opened, 5, b"!").await;
            assert_eq!(created.len(), 6);
            assert_eq!(content(&*created).await, content(&*opened).await);
        });
    }
}

fn many_objects_at_once(harness: &mut dyn Harness) {
    run_part(harness, |volume| async move {
        let volume = &volume;
        join_all((0..24).map(|i| async move {
            let object = create(&**volume, &format!("part-{i}")).await;
            for piece in 0..4 {
                write(&*object, piece * 1000, &pattern(1000, i)).await;
            }
            sync(&*object).await;
        }))
        .await;
        assert_eq!(listed(&**volume).await.len(), 24);
        for i in 0..24 {
            let object = open(&**volume, &format!("part-{i}")).await;
            assert_eq!(content(&*object).await, pattern(1000, i).repeat(4), "part-{i}");
        }
    });
}

fn reopening_keeps_names(harness: &mut dyn Harness) {
    run_part(harness, |volume| async move {
        for text in ["kept", "kept/too.log", "removed"] {
            let object = create(&*volume, text).await;
            write(&*object, 0, text.as_bytes()).await;
            sync(&*object).await;
        }
        volume.remove(&name("removed")).await.expect("an object can be removed");
    });
    if harness.reopen() {
        run_part(harness, |volume| async move {
            let kept = [("kept".into(), 4), ("kept/too.log".into(), 12)];
            assert_eq!(listed(&*volume).await, kept);
        });
    }
}

fn the_creator_says_what_is_a_log(harness: &mut dyn Harness) {
    const KINDS: [(&str, bool); 4] =
        [("a.log", true), ("b.log", false), ("c", true), ("d/e", false)];
    run_part(harness, |volume| async move {
        for (text, is_log) in KINDS {
            let intent = if is_log { Intent::LOG } else { Intent::DATA };
            let object = volume.create(&name(text), &intent).await.expect("a new name");
            assert_eq!(object.is_log(), is_log, "{text}");
            let other = if is_log { Intent::DATA } else { Intent::LOG };
            let again = volume.create(&name(text), &other).await;
            assert_eq!(kind(again), Some(ErrorKind::AlreadyExists), "{text}");
            write(&*object, 0, &pattern(5000, 1)).await;
            sync(&*object).await;
        }
    });
    harness.reopen();
    run_part(harness, |volume| async move {
        assert_eq!(listed(&*volume).await, KINDS.map(|(text, _)| (text.to_owned(), 5000)));
        for (text, is_log) in KINDS {
            let object = open(&*volume, text).await;
            assert_eq!(object.is_log(), is_log, "{text}");
            assert_eq!(content(&*object).await, pattern(5000, 1));
            write(&*object, 5000, b"more").await;
            assert_eq!(read(&*object, 4999, 9).await.len(), 5);
            volume.remove(&name(text)).await.expect("an object of any kind can be removed");
        }
        assert_eq!(listed(&*volume).await, []);
    });
}

fn whole_objects_are_there_or_refused(harness: &mut dyn Harness) {
    run_part(harness, |volume| async move {
        let whole = async |text: &str, len: usize| {
            let data = IoBuf::from(&pattern(len, len)[..]);
            volume.write_whole(&name(text), &Intent::DATA, data, IO).await
        };
        for (text, len) in [("a", 0), ("b", 4096), ("c", 100_001)] {
            whole(text, len).await.unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(content(&*open(&*volume, text).await).await, pattern(len, len));
        }
        assert_eq!(kind(whole("b", 9).await), Some(ErrorKind::AlreadyExists));
        assert_eq!(content(&*open(&*volume, "b").await).await, pattern(4096, 4096));
    });
    if harness.reopen() {
        run_part(harness, |volume| async move {
            let lens = [("a", 0), ("b", 4096), ("c", 100_001)];
            assert_eq!(listed(&*volume).await, lens.map(|(text, len)| (text.to_owned(), len)));
            assert_eq!(content(&*open(&*volume, "c").await).await, pattern(100_001, 100_001));
        });
    }
}

/// A volume may leave this to the pool above it.
fn names_move_and_multiply_or_stay(harness: &mut dyn Harness) {
    let named = run_part(harness, |volume| async move {
        for text in ["a", "b"] {
            let object = create(&*volume, text).await;
            write(&*object, 0, text.as_bytes()).await;
            sync(&*object).await;
        }
        let renamed = volume.rename(&name("a"), &name("b")).await;
        if kind(renamed) == Some(ErrorKind::Unsupported) {
            assert_eq!(listed(&*volume).await, [("a".to_owned(), 1), ("b".to_owned(), 1)]);
            let linked = volume.link(&name("a"), &name("c")).await;
            assert_eq!(kind(linked), Some(ErrorKind::Unsupported));
            return false;
        }
        volume.link(&name("b"), &name("c")).await.expect("a new name");
        let taken = volume.link(&name("b"), &name("c")).await;
        assert_eq!(kind(taken), Some(ErrorKind::AlreadyExists));
        assert_eq!(kind(volume.rename(&name("x"), &name("y")).await), Some(ErrorKind::NotFound));
        true
    });
    if named {
        harness.reopen();
        run_part(harness, |volume| async move {
            assert_eq!(listed(&*volume).await, [("b".to_owned(), 1), ("c".to_owned(), 1)]);
            for text in ["b", "c"] {
                assert_eq!(content(&*open(&*volume, text).await).await, b"a");
            }
        });
    }
}

/// Names and lengths, sorted by name.
async fn listed(volume: &dyn Volume) -> Vec<(String, u64)> {
    let listed = volume.list().await.expect("a volume lists its objects");
    let mut listed: Vec<_> =
        listed.into_iter().map(|object| (object.name.to_string(), object.len)).collect();
    listed.sort();
    listed
}
