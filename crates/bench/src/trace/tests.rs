use std::fs;
use std::io::Write;
use std::path::PathBuf;

use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const BLKPARSE: &str = "\
  8,16   1        1     0.000000000  4162  Q  WS 2048 + 8 [fio]
  8,16   1        2     0.000001000  4162  G  WS 2048 + 8 [fio]
  8,16   1        3     0.000002000  4162  m   N cfq4162 insert
  8,16   1        4     0.500000000  4162  Q   R 4096 + 16 [fio]
  8,16   1        5     0.600000000  4162  Q   D 4096 + 16 [fstrim]
  8,16   1        6     0.700000000  4162  Q FWS [jbd2]
  8,0    1        7     1.000000000  4162  Q  RA 0 + 8 [fio]
CPU0 (8,16):
 Reads Queued:           1,        8KiB\t Writes Queued:           1,        4KiB
";

fn request(at_ms: u64, volume: u32, offset: u64, len: u32, is_write: bool) -> Request {
    Request { at: Duration::from_millis(at_ms), volume, offset, len, is_write }
}

/// An example of each format: a name, the bytes and what they mean.
fn examples() -> Vec<(Format, &'static str, Vec<u8>, Vec<Request>)> {
    let mut oracle = Vec::new();
    for (secs, id, size) in [(7_u32, 3_u64, 512_u32), (9, u64::MAX, 1 << 20)] {
        oracle.extend(secs.to_le_bytes());
        oracle.extend(id.to_le_bytes());
        oracle.extend(size.to_le_bytes());
        oracle.extend((-1_i64).to_le_bytes());
    }
    let last = u64::MAX % (u64::MAX / BLOCK) * BLOCK;
    vec![
        (
            Format::Msr,
            "hm_0.csv",
            b"128166372003061629,hm,0,Read,383496192,32768,413\n\
              128166372013061629,hm,1,Write,512,4096,1\r\n"
                .to_vec(),
            vec![request(0, 0, 383_496_192, 32768, false), request(1000, 1, 512, 4096, true)],
        ),
        (
            Format::Spc,
            "Financial1.spc",
            b"0,20941264,8192,W,0.551706\n1, 2, 512, r, 1.551706, more\n".to_vec(),
            vec![request(0, 0, 20_941_264 * 512, 8192, true), request(1000, 1, 1024, 512, false)],
        ),
        (
            Format::Blkparse,
            "sda.blkparse",
            BLKPARSE.into(),
            vec![
                request(0, 0, 2048 * 512, 4096, true),
                request(500, 0, 4096 * 512, 8192, false),
                request(1000, 1, 0, 4096, false),
            ],
        ),
        (
            Format::Fiu,
            "webmail.cs.fiu.edu-110108-113008.1.blkparse",
            b"89966104 4892 syslogd 904265560 8 W 6 0 531e779a\n\
              1089966104 4892 kjournald 2 x 8 16 R 6 1 3df1244f\n"
                .to_vec(),
            vec![request(0, 0, 904_265_560 * 512, 4096, true), request(1000, 1, 4096, 8192, false)],
        ),
        (
            Format::VscsiCsv,
            "cloud.csv",
            b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,6656,8\n".to_vec(),
            vec![request(0, 0, 42_932_745 * 512, 512, true), request(1000, 0, 4096, 6656, false)],
        ),
        (
            Format::OracleGeneral,
            "msr_hm_0.oracleGeneral",
            oracle,
            vec![request(0, 0, 3 * 4096, 512, false), request(2000, 0, last, 4096, false)],
        ),
        (
            Format::Blocks,
            "ids.txt",
            b"5\n\n6\n".to_vec(),
            vec![request(0, 0, 5 * 4096, 4096, false), request(0, 0, 6 * 4096, 4096, false)],
        ),
        (
            Format::BlocksU32,
            "w106.trace",
            [904_906_u32.to_le_bytes(), 1_u32.to_le_bytes()].concat(),
            vec![request(0, 0, 904_906 * 4096, 4096, false), request(0, 0, 4096, 4096, false)],
        ),
    ]
}

fn file(dir: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, bytes).expect("room for a file");
    path
}

fn temporary() -> TempDir {
    TempDir::new().expect("room for a directory")
}

fn read(path: &std::path::Path, format: Option<Format>) -> anyhow::Result<Vec<Request>> {
    Reader::open(path, format)?.collect()
}

fn compressed(name: &str, bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).expect("memory");
    let mut xz = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).expect("options");
    xz.write_all(bytes).expect("memory");
    vec![
        (name.into(), bytes.to_vec()),
        (format!("{name}.gz"), gzip.finish().expect("memory")),
        (format!("{name}.xz"), xz.finish().expect("memory")),
        (format!("{name}.zst"), zstd::encode_all(bytes, 0).expect("memory")),
    ]
}

#[test]
fn each_format_is_detected_and_read_whatever_its_compression() {
    let dir = temporary();
    for (format, name, bytes, requests) in examples() {
        for (name, bytes) in compressed(name, &bytes) {
            let path = file(&dir, &name, &bytes);
            let reader = Reader::open(&path, None).expect("a trace");
            assert_eq!(reader.format(), format, "{name}");
            let read: anyhow::Result<Vec<_>> = reader.collect();
            assert_eq!(read.expect(&name), requests, "{name}");
        }
    }
    assert_eq!(examples().len(), Format::ALL.len());
}

#[test]
fn a_wrong_record_is_named_with_what_was_expected() {
    let dir = temporary();
    let error = |name: &str, bytes: &[u8]| {
        let error = read(&file(&dir, name, bytes), None).expect_err(name);
        format!("{error:#}").replace(&format!("{}/", dir.path().display()), "")
    };
    assert_eq!(
        error("a.csv", b"128166372003061629,hm,0,Read,1,2,3\nx,hm,0,Read,1,2,3\n"),
        "a.csv, line 2: expected filetime,host,disk,Read or Write,offset,bytes,response time (format msr), found \
         \"x,hm,0,Read,1,2,3\""
    );
    let past_the_end = format!("0,{},8192,W,0.5\n", u64::MAX / 512);
    assert!(error("b.spc", past_the_end.as_bytes()).contains("within the first 16 EiB"));
    assert!(error("c.spc", b"0,0,1,W,-1\n").contains("line 1: expected a time in seconds"));
    assert!(error("d.spc", &[b'1'; 5000]).contains("a line of at most 4096 bytes of text"));
    assert_eq!(error("e.trace", &[0; 9]), "e.trace, record 3: the file ends inside it");
    let completed = b"8,0 1 1 0.5 4162 C WS 2048 + 8 [0]\n";
    assert!(error("f.blkparse", completed).contains("queued requests (action Q)"));
    assert!(error("g.xyz", b"1\n").contains("shows no format"));
    assert!(error("h.txt.zst", b"not zstd").starts_with("read the trace h.txt.zst"));
    let missing = format!("{:#}", read(&dir.path().join("none"), None).expect_err("no file"));
    assert!(missing.starts_with("open the trace"), "{missing}");
}

#[test]
fn a_file_cut_inside_its_compression_is_an_error_after_its_requests() {
    let dir = temporary();
    let ids: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    for (name, bytes) in compressed("ids.trace", &ids).split_off(1) {
        let path = file(&dir, &name, &bytes[..bytes.len() / 2]);
        let format = Some(Format::BlocksU32);
        let items: Vec<_> = Reader::open(&path, format).expect("its start is whole").collect();
        assert!(items.last().is_some_and(Result::is_err), "{name}: {} requests", items.len());
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic_or_go_on_after_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        end in prop::sample::select(&["", ".gz", ".xz", ".zst"][..]),
        format in prop::sample::select(&Format::ALL[..]),
    ) {
        let dir = temporary();
        let path = file(&dir, &format!("t{end}"), &bytes);
        if let Ok(reader) = Reader::open(&path, Some(format)) {
            let items: Vec<_> = reader.collect();
            let wrong = items.iter().position(Result::is_err);
            prop_assert!(wrong.is_none_or(|at| at + 1 == items.len()));
        }
    }

    #[test]
    fn a_record_with_some_bytes_changed_is_read_or_refused(
        which in 0..8_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let (format, name, mut bytes, requests) = examples().swap_remove(which);
        for (at, byte) in &changes {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        let dir = temporary();
        let read = read(&file(&dir, name, &bytes), Some(format));
        prop_assert!(!changes.is_empty() || read.as_ref().is_ok_and(|read| *read == requests));
        for request in read.into_iter().flatten() {
            prop_assert!(request.len > 0);
            prop_assert!(request.offset.checked_add(u64::from(request.len)).is_some());
        }
    }
}

#[test]
fn a_stand_in_has_the_statistics_that_it_names() {
    const COUNT: u64 = 200_000;
    for stand_in in StandIn::ALL {
        let requests: Vec<_> = stand_in.requests(COUNT, 1).collect();
        assert_eq!(requests.len() as u64, COUNT);
        assert_eq!(requests, stand_in.requests(COUNT, 1).collect::<Vec<_>>());
        assert_ne!(requests, stand_in.requests(COUNT, 2).collect::<Vec<_>>());
        let share = |part: u64| part as f64 / COUNT as f64;
        let writes = share(requests.iter().filter(|request| request.is_write).count() as u64);
        assert!((writes - stand_in.write_share).abs() < 0.01, "{}: {writes}", stand_in.name);
        let mean = share(requests.iter().map(|request| u64::from(request.len)).sum());
        assert!((mean / stand_in.mean_bytes - 1.0).abs() < 0.02, "{}: {mean}", stand_in.name);
        let blocks = |request: &Request| {
            let first = request.offset / BLOCK;
            first..first + u64::from(request.len) / BLOCK
        };
        let touched: std::collections::HashSet<_> = requests.iter().flat_map(blocks).collect();
        let part = COUNT as f64 / stand_in.requests as f64;
        let footprint = stand_in.footprint_blocks as f64 * part;
        let off = touched.len() as f64 / footprint - 1.0;
        assert!(off.abs() < 0.01, "{}: {} of {footprint}", stand_in.name, touched.len());
        assert!(requests.is_sorted_by_key(|request| request.at));
    }
}
