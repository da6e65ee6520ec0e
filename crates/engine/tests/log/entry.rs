//! Arbitrary bytes as a file and its hint, in a store that is opened, read, written and merged. `dev/fuzz/run log`
//! searches with it, with checksums that always fit.

use bytes::Bytes;
use engine::log::{Member, Options, Store, StoreId};
use volume::mem::{Image, Mem};
use volume::{Clock, Name};

/// The store of the samples in `testdata/log`.
pub(crate) const ID: StoreId = StoreId(*b"a log of samples");

/// The input: a length of two bytes, a hint of that length, and a file.
pub(crate) fn run(data: &[u8]) {
    let Some((len, rest)) = data.split_first_chunk::<2>() else { return };
    let (hint, file) = rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()));
    let mut image = Image::new();
    image.insert(name("log/0000000001.seg"), file.to_vec());
    if !hint.is_empty() {
        image.insert(name("log/0000000001.hint"), hint.to_vec());
    }
    let mut options = Options::new(1);
    options.file_bytes = 64 << 10;
    options.groups = 1;
    options.target = 0.0;
    options.live = 0.1;
    options.quota = 1 << 20;
    let clock = Clock::simulated();
    let worked = clock.run(async {
        let members = vec![Member::new("v", Mem::from_image("v", image))];
        let (store, _) = Store::open(members, options, clock.clone(), Some(ID)).await?;
        for key in store.keys(b"", None, 1_000) {
            // Damage is an error of any kind.
            let _ = store.get(&key).await;
        }
        for n in 0..20u8 {
            store.put(&[n], Bytes::from(vec![n; 3_000]), None).await?;
            store.delete(&[n / 2]).await?;
        }
        // Damaged records stay; the store does not retry the same file for ever.
        for _ in 0..200 {
            if !store.tend_once(0).await.unwrap_or(true) {
                break;
            }
        }
        for n in 10..20u8 {
            let value = store.get(&[n]).await?.expect("it was put");
            assert!(value.iter().all(|&byte| byte == n) && value.len() == 3_000);
        }
        store.close().await
    });
    // Sequences and ids may be used up, so any outcome is fine.
    drop(worked);
}

fn name(name: &str) -> Name {
    Name::new(name).expect("a good name")
}
