//! Devices on a pool that becomes full.

use serve::nbd::wire::{Command, Errno};

use super::{MIB, block};
use crate::full::Small;
use crate::health::health;
use crate::nbd::Nbd;
use crate::place::{Place, Server, until};

/// What the chunk of 1 MiB with this number holds in a version.
fn chunk(number: u64, version: u8) -> Vec<u8> {
    let mut bytes = vec![version; MIB as usize];
    bytes.chunks_mut(4096).for_each(|block| block[..8].copy_from_slice(&number.to_le_bytes()));
    bytes
}

/// Checks the chunks against the version that each has; `None` is a discarded one.
fn check(nbd: &mut Nbd, versions: &[Option<u8>]) {
    for (number, version) in (0..).zip(versions) {
        let expected = version.map_or(vec![0; MIB as usize], |version| chunk(number, version));
        assert!(nbd.read(number * MIB, expected.len()) == expected, "chunk {number}: {version:?}");
    }
}

fn open(server: &Server) -> Nbd {
    Nbd::open(server.nbd.expect("a listener for NBD clients"), "vm").expect("the export")
}

#[test]
fn a_full_pool_refuses_new_blocks_until_some_are_discarded_and_loses_none() {
    let place = Place::new();
    let volume = place.path("a");
    let _small = Small::mount(&volume, 96);
    place.write(
        "[volume.a]\npath = \"a\"\ncontract = \"unlimited\"\n\n[pool.main]\nvolumes = [\"a\"]\n\n\
         [block]\npool = \"main\"\nlisten = \"127.0.0.1:0\"\n\n[admin]\nlisten = \"127.0.0.1:0\"\n",
    );
    let server = place.serve();
    block(&place, &server, &["create", "vm", "1GiB"]);
    assert!(health(&server).0);
    let mut nbd = open(&server);
    let put = |nbd: &mut Nbd, number: u64, version| {
        nbd.ask(Command::Write, number * MIB, MIB as usize, &chunk(number, version))
    };
    let mut versions = Vec::new();
    let refused = loop {
        match put(&mut nbd, versions.len() as u64, 1) {
            None => versions.push(Some(1)),
            Some(error) => break error,
        }
    };
    assert_eq!(refused, Errno::NoSpace);
    assert!((60..96).contains(&versions.len()), "{}", versions.len());
    let (healthy, found) = health(&server);
    let of_block = &found["stores"]["block"];
    assert!(!healthy, "{found}");
    assert_eq!(
        (&of_block["takes_writes"], &of_block["serves_reads"]),
        (&false.into(), &true.into())
    );
    let problem = found["problems"][0].as_str().expect("text");
    assert!(problem.starts_with("block: writes are refused: "), "{found}");
    assert!(problem.contains("fstrim"), "it says what gives room: {found}");

    // What has room can be written again, and everything that was acknowledged is there.
    assert_eq!(put(&mut nbd, 0, 2), None);
    versions[0] = Some(2);
    assert_eq!(nbd.ask(Command::Flush, 0, 0, &[]), None);
    check(&mut nbd, &versions);

    assert_eq!(nbd.ask(Command::Trim, 10 * MIB, 20 * MIB as usize, &[]), None);
    versions[10..30].fill(None);
    until(|| health(&server).0);
    for _ in 0..10 {
        assert_eq!(put(&mut nbd, versions.len() as u64, 3), None, "health said so");
        versions.push(Some(3));
    }
    check(&mut nbd, &versions);
    server.kill();
    let server = place.serve();
    check(&mut open(&server), &versions);
    server.stop();
}
