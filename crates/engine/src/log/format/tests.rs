use super::*;

const STORE: StoreId = StoreId(*b"0123456789abcdef");
const FILE: FileId = FileId(7);

fn seal() -> Seal {
    Seal::of(STORE, FILE)
}

fn record(head: &Head, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_record(seal(), head, key, value, |part| bytes.extend_from_slice(part));
    assert_eq!(bytes.len(), record_len(key.len(), value.len()));
    bytes
}

const HEAD: Head = Head {
    sequence: 9,
    dies: 1_700_000,
    durable: 4096,
    kind: Kind::Put,
    continued: false,
    continues: true,
};

#[test]
fn records_read_as_they_were_written() {
    for (key, value) in [(&b"k"[..], &b""[..]), (&[7; 255], &[8; 1000]), (b"abc", b"xy")] {
        for head in
            [HEAD, Head { kind: Kind::Tombstone, continues: false, continued: true, ..HEAD }]
        {
            let bytes = record(&head, key, value);
            let Found::Record(parsed) = find_record(seal(), &bytes) else { panic!("no record") };
            assert_eq!(parsed.head, head);
            assert_eq!((&bytes[parsed.key.clone()], &bytes[parsed.value.clone()]), (key, value));
            assert_eq!((parsed.len, parsed.check_value(&bytes)), (bytes.len(), Ok(())));
        }
    }
}

#[test]
fn every_flipped_bit_of_a_record_is_found() {
    let bytes = record(&HEAD, b"key", b"value");
    let end = HEAD_LEN + b"key".len() + b"value".len();
    for bit in 0..end * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match find_record(seal(), &flipped) {
            Found::Bad(_) => {}
            Found::Record(parsed) => {
                assert!(bit / 8 >= HEAD_LEN + 3, "bit {bit}");
                assert_eq!(parsed.check_value(&flipped), Err(Bad::Value));
            }
            // The flip makes the key longer than the bytes here.
            Found::More(_) => assert_eq!(bit / 8, 38),
            Found::Nothing => panic!("bit {bit}"),
        }
    }
    let other = Seal::of(STORE, FileId(8));
    assert_eq!(find_record(other, &bytes), Found::Bad(Bad::Head));
}

#[test]
fn short_records_ask_for_more() {
    let bytes = record(&HEAD, b"key", b"value");
    assert_eq!(find_record(seal(), &bytes[..39]), Found::More(40));
    assert_eq!(find_record(seal(), &bytes[..41]), Found::More(43));
    let Found::Record(parsed) = find_record(seal(), &bytes[..43]) else { panic!("no record") };
    assert_eq!(parsed.check_value(&bytes[..43]), Err(Bad::Short));
    assert_eq!(find_record(seal(), &[0; 64]), Found::Nothing);
}

#[test]
fn headers_slots_and_hints_read_as_they_were_written() {
    let layout = Layout { partitions: 5, partition: 4 };
    let header = Header { store: STORE, file: FILE, layout };
    assert_eq!(Header::decode(&header.encode()), Ok(header));
    let slot =
        Slot { store: STORE, generation: 3, sequence_end: 1 << 40, file_end: 1 << 20, volumes: 2 };
    assert_eq!(Slot::decode(&slot.encode()), Ok(slot));
    let (hint, entries) = hint();
    let death = Death::At(Written(77));
    let (found, found_entries) = decode_hint(seal(), &hint).unwrap();
    assert_eq!(found, HintHeader { covers: 4096, whole: true, layout, records: 2, death });
    assert!(found_entries.eq(entries));
}

fn hint() -> (Vec<u8>, [Entry<'static>; 2]) {
    let layout = Layout { partitions: 5, partition: 4 };
    let entries = [
        Entry { sequence: 5, offset: 64, len: 200, kind: Kind::Put, key: b"a" },
        Entry { sequence: 6, offset: 264, len: 48, kind: Kind::Tombstone, key: b"bc" },
    ];
    let mut body = Vec::new();
    entries.iter().for_each(|entry| encode_entry(entry, &mut body));
    let death = Death::At(Written(77));
    let header = HintHeader { covers: 4096, whole: true, layout, records: 2, death };
    (encode_hint(seal(), &header, &body), entries)
}

#[test]
fn every_flipped_bit_of_headers_and_hints_is_found() {
    let header = Header { store: STORE, file: FILE, layout: Layout::ANY }.encode();
    let (hint, _) = hint();
    for bit in 0..header.len() * 8 {
        let mut flipped = header;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::decode(&flipped).is_err(), "bit {bit}");
    }
    for bit in 0..hint.len() * 8 {
        let mut flipped = hint.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_hint(seal(), &flipped).is_err(), "bit {bit}");
    }
    for len in 0..hint.len() {
        assert!(decode_hint(seal(), &hint[..len]).is_err(), "{len} bytes");
    }
    assert!(decode_hint(Seal::of(STORE, FileId(8)), &hint).is_err());
}

/// Found by `dev/fuzz/run log`: a merge of such a file ended in a panic.
#[test]
fn a_hint_that_names_bytes_twice_or_outside_is_none() {
    let of = |places: [(u32, u32); 2], covers| {
        let mut body = Vec::new();
        for (offset, len) in places {
            let entry = Entry { sequence: 5, offset, len, kind: Kind::Put, key: b"a" };
            encode_entry(&entry, &mut body);
        }
        let (layout, death) = (Layout::ANY, Death::Unknown);
        let header = HintHeader { covers, whole: true, layout, records: 2, death };
        decode_hint(seal(), &encode_hint(seal(), &header, &body)).map(|_| ())
    };
    assert_eq!(of([(64, 200), (264, 48)], 312), Ok(()));
    assert_eq!(of([(64, 200), (300, 48)], 348), Ok(()), "padding lies between");
    for (places, covers) in [
        ([(64, 200), (264, 48)], 311),
        ([(64, 200), (263, 48)], 312),
        ([(264, 48), (64, 200)], 312),
        ([(64, 200), (64, 200)], 312),
        ([(63, 200), (264, 48)], 312),
        ([(64, 40), (264, 48)], 312),
        ([(64, u32::MAX), (264, 48)], u32::MAX),
    ] {
        assert_eq!(of(places, covers), Err(Bad::Hint), "{places:?}, {covers} bytes");
    }
}

#[test]
fn partitions_are_dealt_evenly() {
    let mut counts = [0; 5];
    for n in 0..10_000u32 {
        counts[usize::from(partition(key_hash(&n.to_le_bytes()), 5))] += 1;
    }
    assert!(counts.iter().all(|&count| (1_800..2_200).contains(&count)), "{counts:?}");
    assert!(Layout::ANY.holds(u64::MAX) && Layout::ANY.holds(0));
}
