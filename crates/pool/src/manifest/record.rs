//! The changes of the manifest, and their bytes.
//!
//! Integers are little endian. Byte for byte in `docs/format/manifest.md`.

mod wire;

use policy::placement::VolumeId;
use volume::Name;

use self::wire::{
    Reader, put_committed, put_copies, put_layout, put_name, put_pair, put_placed, put_u16, put_u64,
};
use crate::header::PoolId;
use crate::journal::quorum::Quorum;
use crate::leaf::{Kind, ObjectId};
use crate::manifest::copies::{Copies, Placed};

/// One change of the manifest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Record {
    /// The ids `from..upto` are this manifest's: a leaf object with one of them that the manifest does
    /// not list is an orphan.
    Lease { from: u64, upto: u64 },
    /// Creates an object with this name.
    Create { id: ObjectId, kind: Kind, copies: Copies, committed: Option<Committed>, name: Name },
    /// Makes an object's bytes durable up to this length.
    Commit { id: ObjectId, committed: Committed },
    /// Removes a name, and the object if it was its last name.
    Unlink { name: Name },
    /// Renames an object; another object with the name `to` loses it.
    Rename { from: Name, to: Name },
    /// Adds a name to the object of `from`.
    Link { from: Name, to: Name },
    /// Renames every `from/…` to `to/…`.
    RenamePrefix { from: Name, to: Name },
    /// Marks a clean close: everything before was durable.
    Close,
    /// Adds a whole, durable copy of the object.
    AddCopy { id: ObjectId, placed: Placed },
    /// Drops a copy of the object, which was not its last.
    DropCopy { id: ObjectId, number: u64 },
    /// Reserves all numbers below this: no volume that joins gets one.
    VolumeIds { from: u16 },
    /// Begins or ends draining a volume: new objects avoid it.
    Drain { volume: VolumeId, drains: bool },
    /// Puts fragments in the place of all copies of a sealed object.
    Recode { id: ObjectId, copies: Copies },
    /// Seals a log: it has the length and the checksum of its last `Commit`, and never changes again.
    Seal { id: ObjectId },
}

/// The durable part of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Committed {
    /// Its length in bytes. For a log, the length at its first sync, which is never used.
    pub(crate) len: u64,
    /// xxh3-64 of all its bytes, if it is sealed: then it never changes again.
    pub(crate) checksum: Option<u64>,
}

/// The first record of each generation: its pool, and the volumes that hold its copies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Begin {
    pub(crate) pool: PoolId,
    pub(crate) generation: u64,
    /// The number of frames of the snapshot that the generation began with, this one included.
    pub(crate) snapshot_frames: u64,
    /// Every volume of the pool, and its label.
    pub(crate) volumes: Vec<(VolumeId, String)>,
    /// The volumes that hold a copy, and how many of them open it.
    pub(crate) home: Quorum,
}

/// Why bytes could not be decoded.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("a record is cut short")]
    Short,
    #[error("a record of unknown type {0}: a later version wrote it")]
    UnknownType(u8),
    #[error("manifest of format {0}, this program knows {VERSION}: use a newer one")]
    Newer(u32),
    #[error("not a manifest")]
    NotAManifest,
    #[error("{what} cannot be {value}")]
    OutOfRange { what: &'static str, value: u64 },
    #[error("{0}")]
    Name(String),
    #[error("an erasure code of {0}")]
    Code(String),
    #[error("a label is not text")]
    Label,
    #[error("bytes follow the last record")]
    TooLong,
}

/// The version of the format that this program writes. It also reads version 1, which is the same with only
/// the first eight types of records; version 2, with the first thirteen; version 3, without objects that are
/// [in place](Kind::InPlace); and version 4, without fragments.
const VERSION: u32 = 5;
const OLDEST: u32 = 1;
/// Before this version more than half of the volumes with copies opened a manifest.
const NEEDS_SINCE: u32 = 5;
const MAGIC: [u8; 8] = *b"PlimManf";

const LEASE: u8 = 1;
const CREATE: u8 = 2;
const COMMIT: u8 = 3;
const UNLINK: u8 = 4;
const RENAME: u8 = 5;
const LINK: u8 = 6;
const RENAME_PREFIX: u8 = 7;
const CLOSE: u8 = 8;
const CREATE_COPIES: u8 = 9;
const ADD_COPY: u8 = 10;
const DROP_COPY: u8 = 11;
const VOLUME_IDS: u8 = 12;
const DRAIN: u8 = 13;
const SEAL: u8 = 14;
const RECODE: u8 = 15;

impl Record {
    /// Appends the record to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Lease { from, upto } => {
                out.push(LEASE);
                put_u64(out, *from);
                put_u64(out, *upto);
            }
            Self::Create { id, kind, copies, committed, name } => {
                let first = copies.first();
                let plain = first.number == 0 && copies.count() == 1;
                out.push(if plain { CREATE } else { CREATE_COPIES });
                put_u64(out, id.0);
                out.push(kind.code());
                if plain {
                    put_layout(out, &first.layout);
                } else {
                    put_copies(out, copies);
                }
                match committed {
                    None => out.push(0),
                    Some(committed) => {
                        out.push(1);
                        put_committed(out, committed);
                    }
                }
                put_name(out, name);
            }
            Self::Commit { id, committed } => {
                out.push(COMMIT);
                put_u64(out, id.0);
                put_committed(out, committed);
            }
            Self::Unlink { name } => {
                out.push(UNLINK);
                put_name(out, name);
            }
            Self::Rename { from, to } => put_pair(out, RENAME, from, to),
            Self::Link { from, to } => put_pair(out, LINK, from, to),
            Self::RenamePrefix { from, to } => put_pair(out, RENAME_PREFIX, from, to),
            Self::Close => out.push(CLOSE),
            Self::AddCopy { id, placed } => {
                out.push(ADD_COPY);
                put_u64(out, id.0);
                put_placed(out, placed);
            }
            Self::DropCopy { id, number } => {
                out.push(DROP_COPY);
                put_u64(out, id.0);
                put_u64(out, *number);
            }
            Self::VolumeIds { from } => {
                out.push(VOLUME_IDS);
                put_u16(out, *from);
            }
            Self::Drain { volume, drains } => {
                out.push(DRAIN);
                put_u16(out, volume.0);
                out.push(u8::from(*drains));
            }
            Self::Seal { id } => {
                out.push(SEAL);
                put_u64(out, id.0);
            }
            Self::Recode { id, copies } => {
                out.push(RECODE);
                put_u64(out, id.0);
                put_copies(out, copies);
            }
        }
    }

    /// The records of `body`.
    pub(crate) fn decode_all(body: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let mut from = Reader::new(body);
        let mut records = Vec::new();
        while !from.is_empty() {
            records.push(Self::decode(&mut from)?);
        }
        Ok(records)
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            LEASE => Self::Lease { from: from.u64()?, upto: from.u64()? },
            tag @ (CREATE | CREATE_COPIES) => Self::Create {
                id: ObjectId(from.u64()?),
                kind: from.kind()?,
                copies: match tag {
                    CREATE => Copies::one(from.layout()?),
                    _ => from.copies()?,
                },
                committed: if from.flag()? { Some(from.committed()?) } else { None },
                name: from.name()?,
            },
            COMMIT => Self::Commit { id: ObjectId(from.u64()?), committed: from.committed()? },
            UNLINK => Self::Unlink { name: from.name()? },
            RENAME => Self::Rename { from: from.name()?, to: from.name()? },
            LINK => Self::Link { from: from.name()?, to: from.name()? },
            RENAME_PREFIX => Self::RenamePrefix { from: from.name()?, to: from.name()? },
            CLOSE => Self::Close,
            ADD_COPY => Self::AddCopy { id: ObjectId(from.u64()?), placed: from.placed()? },
            DROP_COPY => Self::DropCopy { id: ObjectId(from.u64()?), number: from.u64()? },
            VOLUME_IDS => Self::VolumeIds { from: from.u16()? },
            DRAIN => Self::Drain { volume: VolumeId(from.u16()?), drains: from.flag()? },
            SEAL => Self::Seal { id: ObjectId(from.u64()?) },
            RECODE => Self::Recode { id: ObjectId(from.u64()?), copies: from.copies()? },
            unknown => return Err(DecodeError::UnknownType(unknown)),
        })
    }
}

impl Begin {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.pool.0.to_le_bytes());
        put_u64(&mut out, self.generation);
        put_u64(&mut out, self.snapshot_frames);
        put_u16(&mut out, self.volumes.len() as u16);
        for (id, label) in &self.volumes {
            put_u16(&mut out, id.0);
            put_u16(&mut out, label.len() as u16);
            out.extend_from_slice(label.as_bytes());
        }
        put_u16(&mut out, self.home.volumes.len() as u16);
        for id in &self.home.volumes {
            put_u16(&mut out, id.0);
        }
        put_u16(&mut out, self.home.needs as u16);
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(body);
        if from.take::<8>()? != MAGIC {
            return Err(DecodeError::NotAManifest);
        }
        let version = u32::from_le_bytes(from.take()?);
        if !(OLDEST..=VERSION).contains(&version) {
            return Err(DecodeError::Newer(version));
        }
        let pool = PoolId(u128::from_le_bytes(from.take()?));
        let (generation, snapshot_frames) = (from.u64()?, from.u64()?);
        let mut volumes = Vec::new();
        for _ in 0..from.u16()? {
            let id = VolumeId(from.u16()?);
            let len = usize::from(from.u16()?);
            let label = std::str::from_utf8(from.bytes(len)?).map_err(|_| DecodeError::Label)?;
            volumes.push((id, label.to_owned()));
        }
        let mut copies = Vec::new();
        for _ in 0..from.u16()? {
            copies.push(VolumeId(from.u16()?));
        }
        let mut home = Quorum::majority(copies);
        if version >= NEEDS_SINCE {
            home.needs = from.u16()?.into();
        }
        if home.needs == 0 || home.needs > home.volumes.len() {
            let (what, value) = ("a number of volumes", home.needs as u64);
            return Err(DecodeError::OutOfRange { what, value });
        }
        if !from.is_empty() {
            return Err(DecodeError::TooLong);
        }
        Ok(Self { pool, generation, snapshot_frames, volumes, home })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use policy::placement::{Code, Fragment, Layout};
    use policy::units::{KIB, MIB};
    use proptest::prelude::*;

    use super::*;
    use crate::journal::frame;

    impl Begin {
        pub(crate) fn seal(&self) -> u64 {
            frame::seal(&self.encode())
        }
    }

    pub(crate) fn any_name() -> impl Strategy<Value = Name> {
        "[a-z0-9_-]{1,12}(/[a-z0-9._-]{0,5}[a-z]){0,3}"
            .prop_filter_map("a part begins with a dot", |text| Name::new(&text).ok())
    }

    fn any_layout() -> impl Strategy<Value = Layout> {
        prop_oneof![
            any::<u16>().prop_map(|id| Layout::Whole { volume: VolumeId(id) }),
            (1u64.., prop::collection::vec(any::<u16>().prop_map(VolumeId), 2..9))
                .prop_map(|(chunk, volumes)| Layout::Striped { chunk, volumes }),
            any_fragment().prop_map(Layout::Fragment),
        ]
    }

    fn any_fragment() -> impl Strategy<Value = Fragment> {
        let codes = [(2, 1, 4 * KIB), (4, 2, 256 * KIB), (16, 4, MIB)];
        let codes = codes.map(|(data, parity, strip)| Code::new(data, parity, strip).unwrap());
        (
            any::<u16>(),
            prop::sample::select(codes.to_vec()),
            any::<prop::sample::Index>(),
            any::<u64>(),
        )
            .prop_map(|(id, code, index, checksum)| Fragment {
                volume: VolumeId(id),
                index: index.index(code.fragments()) as u8,
                code,
                checksum,
            })
    }

    fn any_placed() -> impl Strategy<Value = Placed> {
        (any::<u64>(), any_layout()).prop_map(|(number, layout)| Placed { number, layout })
    }

    fn any_copies() -> impl Strategy<Value = Copies> {
        prop_oneof![
            any_layout().prop_map(Copies::one),
            prop::collection::vec(any_placed(), 1..4).prop_map(|mut placed| {
                let code = placed[0].code();
                placed.retain(|other| other.code() == code);
                Copies::of(placed).expect("the first stays")
            }),
        ]
    }

    fn any_committed() -> impl Strategy<Value = Committed> {
        (any::<u64>(), any::<Option<u64>>()).prop_map(|(len, checksum)| Committed { len, checksum })
    }

    pub(crate) fn any_record() -> impl Strategy<Value = Record> {
        let id = any::<u64>().prop_map(ObjectId);
        let kind = prop::sample::select(&Kind::ALL[..]);
        let pair = || (any_name(), any_name());
        prop_oneof![
            any::<(u64, u64)>().prop_map(|(from, upto)| Record::Lease { from, upto }),
            (id.clone(), kind, any_copies(), prop::option::of(any_committed()), any_name())
                .prop_map(|(id, kind, copies, committed, name)| Record::Create {
                    id,
                    kind,
                    copies,
                    committed,
                    name
                }),
            (id.clone(), any_placed()).prop_map(|(id, placed)| Record::AddCopy { id, placed }),
            (id.clone(), any::<u64>()).prop_map(|(id, number)| Record::DropCopy { id, number }),
            any::<u16>().prop_map(|from| Record::VolumeIds { from }),
            id.clone().prop_map(|id| Record::Seal { id }),
            (id.clone(), any_copies()).prop_map(|(id, copies)| Record::Recode { id, copies }),
            any::<(u16, bool)>()
                .prop_map(|(id, drains)| Record::Drain { volume: VolumeId(id), drains }),
            (id, any_committed()).prop_map(|(id, committed)| Record::Commit { id, committed }),
            any_name().prop_map(|name| Record::Unlink { name }),
            pair().prop_map(|(from, to)| Record::Rename { from, to }),
            pair().prop_map(|(from, to)| Record::Link { from, to }),
            pair().prop_map(|(from, to)| Record::RenamePrefix { from, to }),
            Just(Record::Close),
        ]
    }

    prop_compose! {
        fn any_begin()(
            pool: u128,
            generation: u64,
            snapshot_frames: u64,
            volumes in prop::collection::vec((any::<u16>().prop_map(VolumeId), ".{0,9}"), 0..7),
            copies in prop::collection::vec(any::<u16>().prop_map(VolumeId), 1..6),
            needs: prop::sample::Index,
        ) -> Begin {
            let home = Quorum { needs: 1 + needs.index(copies.len()), volumes: copies };
            Begin { pool: PoolId(pool), generation, snapshot_frames, volumes, home }
        }
    }

    proptest! {
        #[test]
        fn records_are_decoded_back(records in prop::collection::vec(any_record(), 0..6)) {
            let mut body = Vec::new();
            records.iter().for_each(|record| record.encode(&mut body));
            prop_assert_eq!(Record::decode_all(&body).unwrap(), records);
        }

        #[test]
        fn a_begin_is_decoded_back(begin in any_begin()) {
            prop_assert_eq!(Begin::decode(&begin.encode()).unwrap(), begin);
        }

        #[test]
        fn garbage_is_an_error_or_records_but_never_a_panic(
            body in prop::collection::vec(any::<u8>(), 0..300), tag in 0u8..16,
        ) {
            let _ = Record::decode_all(&body);
            let _ = Record::decode_all(&[&[tag], &body[..]].concat());
            let _ = Begin::decode(&body);
            let _ = Begin::decode(&[&MAGIC, &VERSION.to_le_bytes()[..], &body].concat());
        }

        #[test]
        fn damaged_records_never_panic(
            records in prop::collection::vec(any_record(), 1..4),
            begin in any_begin(),
            at: prop::sample::Index,
            change in 1u8..,
            cut: prop::sample::Index,
        ) {
            let mut body = Vec::new();
            records.iter().for_each(|record| record.encode(&mut body));
            for mut bytes in [body, begin.encode()] {
                let len = bytes.len();
                bytes[at.index(len)] ^= change;
                let _ = (Record::decode_all(&bytes), Begin::decode(&bytes));
                bytes.truncate(cut.index(len));
                let _ = (Record::decode_all(&bytes), Begin::decode(&bytes));
            }
        }
    }

    /// The bytes of `docs/format/manifest.md`: changing them needs a new version.
    #[test]
    fn the_bytes_of_version_5() {
        let name = |text| Name::new(text).unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let id = ObjectId(0x11);
        let whole = Layout::Whole { volume: VolumeId(2) };
        let striped =
            Layout::Striped { chunk: 0x10000, volumes: vec![VolumeId(1), VolumeId(0x102)] };
        let committed = Committed { len: 5, checksum: None };
        let sealed = Committed { len: 5, checksum: Some(0xabcd) };
        let create = |kind, layout: &Layout, committed| Record::Create {
            id,
            kind,
            copies: Copies::one(layout.clone()),
            committed,
            name: name("a"),
        };
        let placed =
            |number, volume| Placed { number, layout: Layout::Whole { volume: VolumeId(volume) } };
        let code = Code::new(4, 2, 256 * KIB).unwrap();
        let fragment = Fragment { volume: VolumeId(3), index: 5, code, checksum: 0xabcd };
        let fragment = Layout::Fragment(fragment);
        let two = Record::Create {
            id,
            kind: Kind::Table,
            copies: Copies::of([placed(0, 2), placed(0x12, 3)]).unwrap(),
            committed: Some(sealed),
            name: name("a"),
        };
        let records = [
            (Record::Lease { from: 1, upto: 0x401 }, "01 0100000000000000 0104000000000000"),
            (create(Kind::Log, &whole, None), "02 1100000000000000 02 000200 00 0161"),
            (
                create(Kind::InPlace, &whole, Some(committed)),
                "02 1100000000000000 03 000200 01 0500000000000000 00 0161",
            ),
            (
                create(Kind::Table, &striped, Some(sealed)),
                "02 1100000000000000 00 01 0000010000000000 0200 0100 0201 01 0500000000000000 01 \
                 cdab000000000000 0161",
            ),
            (Record::Commit { id, committed }, "03 1100000000000000 0500000000000000 00"),
            (Record::Unlink { name: name("a/b") }, "04 03612f62"),
            (Record::Rename { from: name("a"), to: name("b") }, "05 0161 0162"),
            (Record::Link { from: name("a"), to: name("b") }, "06 0161 0162"),
            (Record::RenamePrefix { from: name("a"), to: name("b") }, "07 0161 0162"),
            (Record::Close, "08"),
            (
                two,
                "09 1100000000000000 00 0200 0000000000000000 000200 1200000000000000 000300 01 \
                 0500000000000000 01 cdab000000000000 0161",
            ),
            (
                Record::AddCopy { id, placed: placed(0x12, 3) },
                "0a 1100000000000000 1200000000000000 000300",
            ),
            (
                Record::AddCopy { id, placed: Placed { number: 0x12, layout: fragment } },
                "0a 1100000000000000 1200000000000000 02 0300 05 04 02 00000400 cdab000000000000",
            ),
            (Record::DropCopy { id, number: 0x12 }, "0b 1100000000000000 1200000000000000"),
            (Record::VolumeIds { from: 7 }, "0c 0700"),
            (Record::Drain { volume: VolumeId(3), drains: true }, "0d 0300 01"),
            (Record::Seal { id }, "0e 1100000000000000"),
            (
                Record::Recode { id, copies: Copies::of([placed(0x12, 3)]).unwrap() },
                "0f 1100000000000000 0100 1200000000000000 000300",
            ),
        ];
        for (record, bytes) in records {
            let mut encoded = Vec::new();
            record.encode(&mut encoded);
            assert_eq!(hex(&encoded), bytes.replace(' ', ""), "{record:?}");
        }
        let begin = Begin {
            pool: PoolId(0xaa),
            generation: 7,
            snapshot_frames: 2,
            volumes: vec![(VolumeId(3), "s3".into())],
            home: Quorum::majority(vec![VolumeId(3)]),
        };
        let bytes = "506c696d4d616e66 05000000 aa000000000000000000000000000000 \
                     0700000000000000 0200000000000000 0100 0300 0200 7333 0100 0300 0100";
        assert_eq!(hex(&begin.encode()), bytes.replace(' ', ""));
    }

    #[test]
    fn fragments_that_no_code_has_are_refused() {
        let decode = |index: u8, data: u8, parity: u8, strip: u32| {
            let (object, volume) = ([0; 16], [3, 0, index, data, parity]);
            let body = [&[ADD_COPY][..], &object, &[2], &volume, &strip.to_le_bytes(), &[0; 8]];
            Record::decode_all(&body.concat()).map(|records| records.len())
        };
        assert_eq!(decode(5, 4, 2, 0x40000), Ok(1));
        let what = "a fragment";
        assert_eq!(decode(6, 4, 2, 0x40000), Err(DecodeError::OutOfRange { what, value: 6 }));
        for (data, parity, strip) in [(1, 1, 0x40000), (4, 0, 0x40000), (4, 4, 0x40000), (4, 2, 7)]
        {
            let refused = decode(0, data, parity, strip);
            assert!(matches!(refused, Err(DecodeError::Code(_))), "{refused:?}");
        }
    }

    #[test]
    fn what_a_later_version_writes_is_named() {
        assert_eq!(Record::decode_all(&[99]), Err(DecodeError::UnknownType(99)));
        let begin = [&MAGIC[..], &6u32.to_le_bytes()].concat();
        assert_eq!(Begin::decode(&begin), Err(DecodeError::Newer(6)));
    }

    #[test]
    fn older_versions_are_read() {
        let begin = Begin {
            pool: PoolId(0xaa),
            generation: 7,
            snapshot_frames: 2,
            volumes: vec![(VolumeId(3), "s3".into())],
            home: Quorum::majority(vec![VolumeId(3)]),
        };
        let mut bytes = begin.encode();
        bytes.truncate(bytes.len() - 2);
        for version in [1u32, 2, 3, 4] {
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            assert_eq!(Begin::decode(&bytes), Ok(begin.clone()));
        }
    }
}
