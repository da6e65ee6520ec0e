//! Stored bytes: those of versions 1 and 2.

use std::fmt::Write;

use policy::contract::{Counted, Limit};
use volume::mem::Image;

use super::*;

/// The objects of a store as version 1 of its table wrote them. Each begins with a line of its name and its length in bytes. After it
/// comes a line for each 32 bytes that are not all zeros: their offset and the bytes, in hexadecimal digits.
const VERSION_1: &str = include_str!("../../../../testdata/block-1.txt");
/// The same store with version 2, where `root` is held.
const VERSION_2: &str = include_str!("../../../../testdata/block-2.txt");
const LINE: usize = 32;

fn text(image: &Image) -> String {
    let mut text = String::new();
    for (name, bytes) in image {
        writeln!(text, "{name} {}", bytes.len()).unwrap();
        for (number, line) in bytes.chunks(LINE).enumerate() {
            if line.iter().any(|&byte| byte != 0) {
                let digits: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(text, "{:x} {digits}", number * LINE).unwrap();
            }
        }
    }
    text
}

fn image(text: &str) -> Image {
    let mut image = Image::new();
    let mut current = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (first, second) = line.split_once(' ').unwrap();
        if first.contains('/') {
            let name = Name::new(first).unwrap();
            current = Some(name.clone());
            image.insert(name, vec![0; second.parse().unwrap()]);
            continue;
        }
        let object = image.get_mut(current.as_ref().unwrap()).unwrap();
        let offset = usize::from_str_radix(first, 16).unwrap();
        for (at, digits) in (offset..).zip(second.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).unwrap();
            object[at] = u8::from_str_radix(digits, 16).unwrap();
        }
    }
    image
}

fn sold() -> Contract {
    let limit = |counts, rate_per_sec| Limit { counts, rate_per_sec, depth: 40 };
    let limits = vec![limit(Counted::Ops, 300), limit(Counted::WriteBytes, 1 << 20)];
    Contract { name: "gp3".into(), limits, ..Contract::unlimited() }
}

fn holder() -> Holder {
    Holder { id: *b"0123456789abcdef", name: "host (/dev/nbd0)".into() }
}

/// The objects of a pool.
async fn objects(pool: &Spread) -> Image {
    let mut image = Image::new();
    for found in pool.list().await.unwrap() {
        let object = pool.open(&found.name).await.unwrap();
        let read = object.read_at(0, IoBufMut::zeroed(found.len as usize), IO).await.unwrap();
        image.insert(found.name, read.to_vec());
    }
    image
}

/// Makes these objects on a pool.
async fn restore(pool: &Spread, image: Image) {
    for (name, bytes) in image {
        let object = pool.create(&name, &Intent::IN_PLACE).await.unwrap();
        object.write_durable(0, IoBuf::from(&bytes[..]), IO).await.unwrap();
    }
}

/// A store of two devices that a crash ended: `root` was clean, `swap` has a mark.
async fn written(rig: &Rig) -> Image {
    let (pool, store) = rig.open().await.unwrap();
    store.create("swap", 3 * BLOCK).await.unwrap();
    store.create_limited("root", 3 * REGION + BLOCK, Some(sold())).await.unwrap();
    store.take("root", &holder(), false).await.unwrap();
    let root = device(&store, "root").await;
    let data = |text: &str| IoBuf::from(text.as_bytes());
    root.write(5, data("plimsoll"), Durable::Now).await.unwrap();
    root.write(2 * REGION + BLOCK - 3, data("load line"), Durable::Later).await.unwrap();
    root.write(7 * BLOCK, data("discarded"), Durable::Later).await.unwrap();
    root.discard(7 * BLOCK..8 * BLOCK, Durable::Later).await.unwrap();
    store.close().await.unwrap();
    pool.close().await.unwrap();
    let (pool, store) = rig.open().await.unwrap();
    let swap = device(&store, "swap").await;
    swap.write(BLOCK, data("in doubt"), Durable::Now).await.unwrap();
    objects(&pool).await
}

#[test]
fn version_2_is_written_as_ever() {
    let rig = Rig::new(1, 1);
    let found = rig.clock.run(async { text(&written(&rig).await) });
    let expected = text(&image(VERSION_2));
    assert!(found == expected, "written now:\n{found}");
}

#[test]
fn version_1_still_opens_and_nobody_holds_its_devices() {
    opens(VERSION_1, &Lease { token: 1 << 32, holder: None });
}

#[test]
fn version_2_still_opens() {
    opens(VERSION_2, &Lease { token: (1 << 32) + 1, holder: Some(holder()) });
}

/// Checks the store in these bytes, whose device `root` has this lease.
fn opens(stored: &str, lease: &Lease) {
    let rig = Rig::new(1, 1);
    rig.clock.run(async {
        let (pool, _) = rig.open().await.unwrap();
        restore(&pool, image(stored)).await;
        pool.close().await.unwrap();
        let (pool, store) = rig.open().await.unwrap();
        let found = store.list().into_iter().map(|device| (device.name, device.size, device.limit));
        let expected = [
            ("root".to_owned(), 3 * REGION + BLOCK, Some(sold())),
            ("swap".to_owned(), 3 * BLOCK, None),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert_eq!((&store.lease("root"), store.lease("swap")), (lease, Lease::default()));
        let root = device(&store, "root").await;
        assert_eq!(read(&*root, 4, 10).await.unwrap(), b"\0plimsoll\0");
        assert_eq!(read(&*root, 2 * REGION + BLOCK - 3, 9).await.unwrap(), b"load line");
        assert_eq!(read(&*root, 7 * BLOCK, 9).await.unwrap(), [0; 9]);
        assert_eq!(read(&*root, 3 * REGION, 4096).await.unwrap(), [0; 4096], "it has no extent");
        let figures = store.figures();
        assert_eq!((figures.regions_aligned, figures.unverified_reads), (0, 0), "it was clean");
        let swap = device(&store, "swap").await;
        assert_eq!(read(&*swap, BLOCK, 8).await.unwrap(), b"in doubt");
        let figures = store.figures();
        assert_eq!((figures.regions_aligned, figures.unverified_reads), (1, 1), "it had a mark");
        // The store goes on from there.
        store.create("new", BLOCK).await.unwrap();
        root.write(3 * REGION, IoBuf::from(&b"x"[..]), Durable::Now).await.unwrap();
        store.close().await.unwrap();
        let left = objects(&pool).await;
        let marks = &left[&Name::new("block/00000000/marks").unwrap()];
        assert!(marks[32..].iter().all(|&byte| byte == 0), "nothing is in doubt");
        assert_eq!(left[&Name::new("block/devices").unwrap()][8], 2, "the table's version");
    });
}
