use std::collections::HashMap;
use std::sync::Arc;

use bytes::BufMut;
use engine::block::{BlockDevice, BlockDevices, Durable, Memory};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use volume::{IoBuf, IoBufMut};

use super::*;

mod network;
mod tls;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;
const EXPORT: Export = Export { size: BLOCKS * BLOCK as u64, flags: 0x0d };
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;

fn request(kind: u16, cookie: u64, offset: u64, len: usize, data: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    message.put_u32(0x2560_9513);
    message.put_u16(0);
    message.put_u16(kind);
    message.put_u64(cookie);
    message.put_u64(offset);
    message.put_u32(len as u32);
    message.put_slice(data);
    message
}

/// A server over one device in memory. It dies after it has sent so many bytes, in the middle of a reply or between two.
async fn serve(
    stream: DuplexStream,
    device: Arc<dyn BlockDevice>,
    mut bytes_left: usize,
    mut random: Xoshiro256PlusPlus,
) {
    let (mut from, mut to) = tokio::io::split(stream);
    let (sender, mut requests) = mpsc::unbounded_channel();
    let reader = tokio::spawn(async move {
        loop {
            let mut header = [0; 28];
            if from.read_exact(&mut header).await.is_err() {
                return;
            }
            let kind = u16::from_be_bytes([header[6], header[7]]);
            let len = u32::from_be_bytes(header[24..].try_into().expect("4 bytes")) as usize;
            let mut data = vec![0; if kind == WRITE { len } else { 0 }];
            if from.read_exact(&mut data).await.is_err() {
                return;
            }
            if sender.send((header, data)).is_err() {
                return;
            }
        }
    });
    'alive: while let Some(first) = requests.recv().await {
        let mut batch = vec![first];
        batch.extend(std::iter::from_fn(|| requests.try_recv().ok()));
        while !batch.is_empty() {
            let (header, data) = batch.swap_remove(random.random_range(0..batch.len()));
            let kind = u16::from_be_bytes([header[6], header[7]]);
            let offset = u64::from_be_bytes(header[16..24].try_into().expect("8 bytes"));
            let mut reply = vec![0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0];
            reply.extend(&header[8..16]);
            match kind {
                READ => {
                    let read = device.read(offset, IoBufMut::zeroed(BLOCK)).await;
                    reply.extend_from_slice(&read.expect("in the device"));
                }
                WRITE => {
                    let data = IoBuf::from(&data[..]);
                    device.write(offset, data, Durable::Later).await.expect("in the device");
                }
                FLUSH => device.flush().await.expect("nothing to do"),
                _ => break 'alive,
            }
            let part = reply.len().min(bytes_left);
            bytes_left -= part;
            if to.write_all(&reply[..part]).await.is_err() || bytes_left == 0 {
                break 'alive;
            }
        }
    }
    reader.abort();
}

/// Servers one after the other, over the same device.
struct Restarts {
    device: Arc<dyn BlockDevice>,
    random: Xoshiro256PlusPlus,
    dials: Arc<std::sync::atomic::AtomicUsize>,
    /// Whether it is away now and then.
    refuses: bool,
    export: Export,
    told: Arc<parking_lot::Mutex<Vec<u64>>>,
}

impl Restarts {
    async fn new(seed: u64) -> Self {
        let device = Memory::default().with("d", EXPORT.size).open("d").await.expect("a device");
        Self {
            device,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            dials: Arc::default(),
            refuses: true,
            export: EXPORT,
            told: Arc::default(),
        }
    }
}

impl Around for Restarts {
    async fn dial(&mut self) -> Result<Connection, Failure> {
        self.dials.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if self.refuses && self.random.random_range(0..3) == 0 {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        }
        let (ours, theirs) = tokio::io::duplex(self.random.random_range(1..20_000));
        let lifetime = self.random.random_range(1..120_000);
        let random = Xoshiro256PlusPlus::seed_from_u64(self.random.random());
        tokio::spawn(serve(theirs, Arc::clone(&self.device), lifetime, random));
        Ok(Connection { stream: Box::new(ours), export: self.export, epoch: None, token: None })
    }

    fn resize(&mut self, size: u64) -> anyhow::Result<()> {
        self.told.lock().push(size);
        Ok(())
    }
}

/// A kernel that keeps so many requests in flight, never two of one block, and checks every byte it reads.
async fn kernel(stream: UnixStream, mut random: Xoshiro256PlusPlus, count: u64, depth: usize) {
    let (mut from, mut to) = stream.into_split();
    let mut model = vec![vec![0; BLOCK]; BLOCKS as usize];
    let mut in_flight: HashMap<u64, (u16, u64)> = HashMap::new();
    let mut asked = 0;
    while asked < count || !in_flight.is_empty() {
        while asked < count && in_flight.len() < depth {
            let block = random.random_range(0..BLOCKS);
            if in_flight.values().any(|&(_, busy)| busy == block) {
                continue;
            }
            let kind = [READ, READ, WRITE, WRITE, WRITE, FLUSH][random.random_range(0..6)];
            let (mut offset, mut len, mut data) = (block * BLOCK as u64, BLOCK, vec![]);
            if kind == WRITE {
                data = (0..BLOCK).map(|_| random.random()).collect();
                model[block as usize].clone_from(&data);
            } else if kind == FLUSH {
                (offset, len) = (0, 0);
            }
            let message = request(kind, asked, offset, len, &data);
            to.write_all(&message).await.expect("the relay lives");
            in_flight.insert(asked, (kind, block));
            asked += 1;
        }
        let mut header = [0; 16];
        from.read_exact(&mut header).await.expect("the relay lives");
        assert_eq!(header[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "no errors");
        let cookie = u64::from_be_bytes(header[8..].try_into().expect("8 bytes"));
        let (kind, block) = in_flight.remove(&cookie).expect("one answer to each request");
        if kind == READ {
            let mut data = vec![0; BLOCK];
            from.read_exact(&mut data).await.expect("the relay lives");
            assert!(data == model[block as usize], "wrong bytes in block {block}");
        }
    }
    to.write_all(&request(DISCONNECT, 0, 0, 0, &[])).await.expect("the relay lives");
}

/// Runs a future while virtual time goes on.
async fn with_time<F: Future>(clock: &Clock, future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        tokio::select! {
            biased;
            output = &mut future => return output,
            () = tokio::task::yield_now() => {
                clock.advance();
            }
        }
    }
}

#[tokio::test]
async fn the_kernel_notices_nothing_of_servers_that_die() {
    for seed in 0..8 {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let clock = Clock::simulated();
        let restarts = Restarts::new(seed).await;
        let dials = Arc::clone(&restarts.dials);
        let link = Link::new(ours, restarts, clock.clone(), EXPORT, None);
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let both = async { tokio::join!(link.run(None), kernel(theirs, random, 600, 16)) };
        let (ended, ()) = with_time(&clock, both).await;
        ended.expect("detached");
        let dials = dials.load(std::sync::atomic::Ordering::Relaxed);
        assert!(dials > 10, "seed {seed}: only {dials} connections");
    }
}

#[tokio::test]
async fn a_larger_device_is_made_known_and_a_smaller_one_waited_out() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let clock = Clock::simulated();
    let mut restarts = Restarts::new(1).await;
    restarts.export.size *= 2;
    let told = Arc::clone(&restarts.told);
    let link = Link::new(ours, restarts, clock.clone(), EXPORT, None);
    let random = Xoshiro256PlusPlus::seed_from_u64(1);
    let both = async { tokio::join!(link.run(None), kernel(theirs, random, 20, 4)) };
    with_time(&clock, both).await.0.expect("detached");
    assert_eq!(*told.lock(), [2 * EXPORT.size]);

    let (ours, _theirs) = UnixStream::pair().expect("a pair");
    let mut restarts = Restarts::new(1).await;
    restarts.export.size /= 2;
    restarts.refuses = false;
    let link = Link::new(ours, restarts, clock.clone(), EXPORT, Some(Duration::from_secs(60)));
    let End::GaveUp { why, .. } = with_time(&clock, link.run(None)).await.expect_err("given up")
    else {
        panic!("not given up")
    };
    assert_eq!(why, "the device has 131072 bytes, and had 262144");
}

#[tokio::test]
async fn a_device_can_be_detached_while_the_server_is_away() {
    struct Nowhere;
    impl Around for Nowhere {
        fn dial(&mut self) -> impl Future<Output = Result<Connection, Failure>> {
            std::future::pending()
        }

        fn resize(&mut self, _: u64) -> anyhow::Result<()> {
            Ok(())
        }
    }
    let clock = Clock::simulated();
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    theirs.write_all(&request(READ, 1, 0, BLOCK, &[])).await.expect("room");
    theirs.write_all(&request(DISCONNECT, 0, 0, 0, &[])).await.expect("room");
    let link = Link::new(ours, Nowhere, clock.clone(), EXPORT, None);
    let how = with_time(&clock, link.run(None)).await.expect("detached");
    assert_eq!(how, Detached::Unheard);

    // Without the word, the kernel's end is broken.
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    drop(theirs);
    let link = Link::new(ours, Nowhere, clock.clone(), EXPORT, None);
    let ended = with_time(&clock, link.run(None)).await;
    assert!(matches!(ended, Err(End::Kernel(_))));
}

/// Only a server that closes the connection has released the lease.
#[tokio::test]
async fn a_detach_says_whether_the_server_heard_of_it() {
    for (token, answers, wanted) in [
        (None, false, Detached::Heard),
        (Some(1), true, Detached::Heard),
        (Some(1), false, Detached::Unheard),
    ] {
        let clock = Clock::simulated();
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(&request(DISCONNECT, 0, 0, 0, &[])).await.expect("room");
        let (client, mut server) = tokio::io::duplex(1 << 10);
        tokio::spawn(async move {
            server.read_exact(&mut [0; 28]).await.expect("a request to disconnect");
            if !answers {
                std::future::pending::<()>().await;
            }
        });
        let stream = Box::new(client);
        let first = Connection { stream, export: EXPORT, epoch: None, token };
        let around = Restarts::new(0).await;
        let link = Link::new(ours, around, clock.clone(), EXPORT, None);
        let run = link.run(Some(first));
        // Virtual time would not wait for a server that does answer.
        let how = if wanted == Detached::Heard { run.await } else { with_time(&clock, run).await };
        assert_eq!(how.expect("detached"), wanted, "{token:?}, {answers}");
    }
}
