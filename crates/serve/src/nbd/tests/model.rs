//! Many requests against an array of bytes, and bytes that are none.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// An operation of the model.
#[derive(Clone, Debug)]
enum Op {
    Read,
    Write(u8),
    Zero,
    Flush,
}

fn op() -> impl Strategy<Value = (Op, u64, u64)> {
    let op = prop_oneof![
        3 => Just(Op::Read),
        3 => any::<u8>().prop_map(Op::Write),
        1 => Just(Op::Zero),
        1 => Just(Op::Flush),
    ];
    (op, 0..60_000u64, 1..9000u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A device in memory does each request at once, so replies show the requests before.
    #[test]
    fn many_requests_at_once_agree_with_an_array(
        ops in vec(op(), 1..129),
        form in 0..3usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let stage = Stage::new();
            let client = stage.client([&[][..], STRUCTURED, EXTENDED][form]).await;
            let (mut model, mut expected) = (vec![0u8; 70_000], HashMap::new());
            let (mut reads, mut bytes) = (HashMap::new(), Vec::new());
            for (at, (op, offset, len)) in ops.into_iter().enumerate() {
                let cookie = at as u64;
                let range = offset as usize..(offset + len) as usize;
                let (command, range_sent, reply) = match op {
                    Op::Read => {
                        reads.insert(cookie, len as usize);
                        (Command::Read, (offset, len), Reply::Data(model[range].to_vec()))
                    }
                    Op::Write(byte) => {
                        model[range].fill(byte);
                        (Command::Write, (offset, len), Reply::Done)
                    }
                    Op::Zero => {
                        model[range].fill(0);
                        (Command::WriteZeroes, (offset, len), Reply::Done)
                    }
                    Op::Flush => (Command::Flush, (0, 0), Reply::Done),
                };
                expected.insert(cookie, reply);
                let is_write = command == Command::Write;
                let extended = client.headers == Headers::Extended;
                let flags = if is_write && extended { PAYLOAD_LEN } else { 0 };
                let (offset, len) = range_sent;
                let request = Request { flags, command, cookie, offset, len };
                request.encode(client.headers, &mut bytes);
                if let Op::Write(byte) = op {
                    bytes.extend(std::iter::repeat_n(byte, len as usize));
                }
            }
            let Client { stream, headers, cookie, flags } = client;
            let (reader, mut writer) = tokio::io::split(stream);
            let sender = tokio::spawn(async move {
                writer.write_all(&bytes).await.expect("it reads");
                writer
            });
            let mut heard = Client { stream: reader, headers, cookie, flags };
            while !expected.is_empty() {
                let (cookie, reply) = heard.hear(&reads).await;
                assert_eq!(expected.remove(&cookie), Some(reply));
            }
            sender.await.expect("no panic");
        });
    }

    /// What no client sends: the server neither panics nor answers for ever.
    #[test]
    fn garbage_ends_a_connection(
        garbage in vec(prop_oneof![0..4u8, any::<u8>()], 0..2000),
        is_attached: bool,
        form in 0..3usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let stage = Stage::new();
            let mut stream = if is_attached {
                stage.client([&[][..], STRUCTURED, EXTENDED][form]).await.stream
            } else {
                stage.connect().await
            };
            // It may be closed before all of it is sent.
            let _ = stream.write_all(&garbage).await;
            let _ = stream.shutdown().await;
            stream.read_to_end(&mut Vec::new()).await.expect("it is closed");
            stage.stop.send(()).expect("the server runs");
            stage.running.await.expect("no panic");
            assert_eq!(stage.service.stats.open.get(), 0);
        });
    }
}
