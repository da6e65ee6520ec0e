//! Scrubs on pools of fragments: data and parity that rot are found and repaired, before losses make them the last bytes.

use std::collections::BTreeSet;

use ::pool::logged::{self, Logged};
use ::pool::spread::{Finding, ObjectStat, Problem};
use policy::placement::Code;
use policy::units::KIB;

use super::*;

const CODES: [(u64, u64); 2] = [(4, 2), (3, 2)];

/// A pool of as many volumes as there are fragments, and a store on it.
struct Coded {
    code: Code,
    mems: Vec<Mem>,
    clock: Clock,
}

struct Running {
    pool: Spread,
    logged: Logged,
    store: Store,
}

impl Coded {
    fn new((data, parity): (u64, u64), strip: u64) -> Self {
        let code = Code::new(data, parity, strip).unwrap();
        let mems = (0..data + parity).map(|n| Mem::new(&format!("v{n}"))).collect();
        Self { code, mems, clock: Clock::simulated() }
    }

    /// Opens all of it but the volumes `lost`.
    async fn open(&self, lost: &BTreeSet<usize>) -> Result<Running> {
        let here = self.mems.iter().enumerate().filter(|(n, _)| !lost.contains(n));
        // Copies of the others: what happens without some of them must not change what was there.
        let mem = |mem: &Mem| match lost.is_empty() {
            true => mem.clone(),
            false => Mem::from_image(mem.label(), mem.image()),
        };
        let members = here.map(|(n, of)| ::pool::Member::new(format!("v{n}"), mem(of))).collect();
        let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(7));
        let pool = Spread::open(members, opening.code(self.code).allow_away()).await;
        let pool = pool.map_err(|e| failed("the pool", e))?;
        let logged = Logged::open(pool.clone(), logged::Options::default()).await;
        let logged = logged.map_err(|e| failed("the log", e))?;
        let options = Options { extent_bytes: REGION, ..Options::default() };
        let store = Store::open(Arc::new(logged.clone()), options, self.clock.clone()).await?;
        Ok(Running { pool, logged, store })
    }

    /// Writes a device, most of it, and brings all in place.
    async fn write(&self) -> Vec<u8> {
        let Running { pool, logged, store } = self.open(&BTreeSet::new()).await.unwrap();
        store.create("disk", 2 * REGION).await.unwrap();
        let disk = device(&store, "disk").await;
        let mut model = vec![0; 2 * REGION as usize];
        for range in [0..700 * KIB, 900 * KIB..904 * KIB, REGION - 8 * KIB..REGION + 300 * KIB] {
            let data: Vec<u8> = range.clone().map(|at| (at / 512 * 7 % 251) as u8 | 1).collect();
            model[range.start as usize..range.end as usize].copy_from_slice(&data);
            disk.write(range.start, IoBuf::from(&data[..]), Durable::Later).await.unwrap();
        }
        store.close().await.unwrap();
        logged.drain().await.unwrap();
        pool.close().await.unwrap();
        model
    }

    /// Flips a bit of a fragment of the device's first extent. Returns its volume.
    fn rot(&self, pool: &Spread, index: usize, offset: u64) -> usize {
        let (stat, volume) = (extent(pool), volume_of(pool, index));
        let begin = format!("o{}", stat.id);
        let mut leaves = self.mems[volume].image().into_keys();
        let leaf = leaves.find(|leaf| leaf.as_str().starts_with(&begin)).unwrap();
        self.mems[volume].damage(&leaf, offset, |byte| *byte ^= 4);
        volume
    }
}

/// The volume with a fragment of the device's first extent.
fn volume_of(pool: &Spread, index: usize) -> usize {
    let stat = extent(pool);
    let mut fragments = stat.copies.iter().filter_map(|placed| placed.layout.fragment());
    let own = fragments.find(|own| usize::from(own.index) == index).unwrap();
    usize::from(own.volume.0)
}

fn extent(pool: &Spread) -> ObjectStat {
    let mut all = pool.objects().into_iter();
    all.find(|object| object.name.as_str() == "block/00000000/00000000").unwrap()
}

impl Running {
    async fn scrub(&self) -> Vec<Finding> {
        let _verified = self.pool.verify_with("block/", Arc::new(self.store.clone()));
        self.pool.scrub(|_| ()).await.unwrap().findings
    }

    async fn overwrite(&self, offset: u64) {
        let disk = device(&self.store, "disk").await;
        disk.write(offset, bytes(4096, 9), Durable::Now).await.unwrap();
    }

    async fn is(&self, model: &[u8]) -> bool {
        let disk = device(&self.store, "disk").await;
        let read = read(&*disk, 0, model.len()).await;
        read.is_ok_and(|read| read == model)
    }
}

fn repaired(findings: &[Finding]) -> usize {
    assert!(findings.iter().all(|found| found.problem == Problem::Repaired), "{findings:?}");
    findings.len()
}

/// What rots: a fragment and an offset in it.
fn spots(code: Code) -> [Vec<(usize, u64)>; 4] {
    let (strip, parity) = (code.strip(), code.data());
    [
        vec![(1, 100)],
        vec![(parity, strip + 4096)],
        vec![(parity + 1, 17), (0, 4096)],
        // Two of one column, which a read of the column alone can repair still.
        vec![(0, 9), (1, 10), (parity, strip)],
    ]
}

#[test]
fn fragments_that_rot_are_repaired_so_that_others_may_be_lost() {
    for of in CODES {
        for nth in 0..4 {
            let coded = Coded::new(of, 16 * KIB);
            let rotten = &spots(coded.code)[nth];
            coded.clock.run(async {
                let model = coded.write().await;
                let running = coded.open(&BTreeSet::new()).await.unwrap();
                let stat = extent(&running.pool);
                let volumes: BTreeSet<_> = rotten
                    .iter()
                    .map(|&(index, offset)| coded.rot(&running.pool, index, offset))
                    .collect();
                let all = (0..coded.mems.len()).collect::<BTreeSet<_>>();
                let lost: BTreeSet<_> = all.difference(&volumes).copied().take(2).collect();
                let before = coded.open(&lost).await.unwrap();
                assert!(!before.is(&model).await, "{of:?}, {rotten:?}: {:?}", stat.copies);
                let found = running.scrub().await;
                assert_eq!(repaired(&found), volumes.len(), "{of:?}, {rotten:?}: {found:?}");
                assert_eq!(running.scrub().await, []);
                for one in 0..coded.mems.len() {
                    for other in one + 1..coded.mems.len() {
                        let lost = BTreeSet::from([one, other]);
                        let after = coded.open(&lost).await.unwrap();
                        assert!(after.is(&model).await, "{of:?}, {rotten:?}, without {lost:?}");
                    }
                }
            });
        }
    }
}

/// The fragments of a column that rot, that are overwritten and that are missing.
struct Met {
    rotten: usize,
    written: usize,
    missing: Option<usize>,
}

/// Whose process brings an overwrite in place, and what it knows.
#[derive(Clone, Copy, Debug)]
enum By {
    /// The one that wrote, which had the checksums in memory.
    Writer,
    /// The one that wrote: the checksums are read meanwhile.
    FreshWriter,
    /// The next one.
    Successor,
}

#[test]
fn an_overwrite_repairs_what_rots_in_its_column() {
    for (data, by) in [4, 6]
        .into_iter()
        .flat_map(|data| [By::Writer, By::FreshWriter, By::Successor].map(|by| (data, by)))
    {
        for (rotten, written, missing) in [
            (0, 0, None),
            (0, 1, None),
            (1, 1, Some(0)),
            (1, 2, Some(0)),
            (data as usize, 2, Some(0)),
        ] {
            overwrite_rotten((data, 2), by, &Met { rotten, written, missing });
        }
    }
}

fn overwrite_rotten(of: (u64, u64), by: By, met: &Met) {
    let case = format!("{of:?}, {by:?}, {}, {}, {:?}", met.rotten, met.written, met.missing);
    let coded = Coded::new(of, 16 * KIB);
    coded.clock.run(async {
        let mut model = coded.write().await;
        let offset = coded.code.chunks().offset(met.written, 4096);
        model[offset as usize..offset as usize + 4096].fill(9);
        let running = coded.open(&BTreeSet::new()).await.unwrap();
        coded.rot(&running.pool, met.rotten, 4096 + 7);
        let lost: BTreeSet<_> =
            met.missing.iter().map(|&index| volume_of(&running.pool, index)).collect();
        if matches!(by, By::Successor) {
            running.overwrite(offset).await;
        }
        running.store.close().await.unwrap();
        running.pool.close().await.unwrap();
        drop(running);
        let running = coded.open(&lost).await.unwrap();
        let _verified = running.pool.verify_with("block/", Arc::new(running.store.clone()));
        if matches!(by, By::Writer) {
            read(&*device(&running.store, "disk").await, 0, 4096).await.unwrap();
        }
        if !matches!(by, By::Successor) {
            running.overwrite(offset).await;
        }
        running.logged.drain().await.unwrap();
        assert!(running.is(&model).await, "{case}");
        if met.rotten < coded.code.data() {
            let found = running.scrub().await;
            assert!(found.iter().all(|found| found.problem == Problem::Away), "{case}: {found:?}");
        }
    });
}

/// A pool without its store cannot verify the old bytes from which an overwrite computes parity. A scrub verifies the parity by
/// the new ones.
#[test]
fn parity_that_an_overwrite_computed_from_rotten_bytes_is_repaired() {
    // So many that a difference of the old bytes is cheaper than all others.
    let coded = Coded::new((6, 2), 16 * KIB);
    coded.clock.run(async {
        let mut model = coded.write().await;
        let running = coded.open(&BTreeSet::new()).await.unwrap();
        coded.rot(&running.pool, 0, 4096 + 7);
        running.overwrite(4096).await;
        model[4096..8192].fill(9);
        // What is in place below newer bytes of the log has no checksum: its column is left for later.
        assert_eq!(running.scrub().await, []);
        running.logged.drain().await.unwrap();
        let lost = BTreeSet::from([1, 2].map(|index| volume_of(&running.pool, index)));
        assert!(!coded.open(&lost).await.unwrap().is(&model).await, "the parity is wrong");
        let found = running.scrub().await;
        assert_eq!(repaired(&found), 2, "{found:?}");
        assert_eq!(running.scrub().await, []);
        assert!(coded.open(&lost).await.unwrap().is(&model).await);
    });
}

#[test]
fn rows_of_pages_of_checksums_and_of_their_parity_are_scrubbed() {
    for of in CODES {
        let coded = Coded::new(of, 16 * KIB);
        coded.clock.run(async {
            let model = coded.write().await;
            let running = coded.open(&BTreeSet::new()).await.unwrap();
            let (index, inner) = coded.code.chunks().locate(REGION);
            coded.rot(&running.pool, index, inner + 40);
            assert_eq!(repaired(&running.scrub().await), 1);
            coded.rot(&running.pool, coded.code.data(), inner + 41);
            assert_eq!(repaired(&running.scrub().await), 1);
            assert_eq!(running.scrub().await, []);
            assert!(running.is(&model).await);
        });
    }
}
