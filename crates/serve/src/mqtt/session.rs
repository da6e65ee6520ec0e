//! One connection to a broker, from `CONNECT` until it ends.

use std::fmt;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::BytesMut;
use engine::series::{Batch, Database, Error, Written};
use rumqttc::mqttbytes::v4::{
    Connect, ConnectReturnCode, Login, Packet, PubAck, Publish, Subscribe, SubscribeFilter,
    SubscribeReasonCode,
};
use rumqttc::mqttbytes::{self, QoS};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::rustls::pki_types::ServerName;

use super::oversized::{Head, Oversized};
use super::payload::Stamps;
use super::{Settings, Subscriber};

/// The bytes read at once.
const READ: usize = 64 * 1024;
/// The packet identifier of the only subscription.
const SUBSCRIPTION: u16 = 1;
/// The pause before a retry of a store that is away.
const AWAY: Duration = Duration::from_secs(1);

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The connection failed, or was closed.
    Line(io::Error),
    /// A timeout.
    Silent(Duration),
    /// The broker refused the subscriber.
    Refused(String),
    /// The broker sent something malformed, or too much.
    Nonsense(String),
    /// The store does not accept the messages, which stay with the broker.
    Store(Error),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(error) => write!(f, "the connection to the broker failed: {error}"),
            Self::Silent(limit) => write!(f, "the broker was silent for {} s", limit.as_secs()),
            Self::Refused(why) => write!(f, "the broker refused: {why}"),
            Self::Nonsense(why) => write!(f, "the broker sent something unexpected: {why}"),
            Self::Store(error) => {
                write!(f, "the store takes no points, so messages stay with the broker: {error}")
            }
        }
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Line(error)
    }
}

type Result<T> = std::result::Result<T, Ended>;

trait Line: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Line for S {}

/// A connection.
pub(super) struct Session<'a> {
    subscriber: &'a Subscriber,
    settings: &'a Settings,
    received: BytesMut,
    /// The message being skipped, as it is too long.
    oversized: Option<Oversized>,
    /// When a packet last arrived, or a wait for one began.
    heard: Instant,
}

impl<'a> Session<'a> {
    pub(super) fn new(subscriber: &'a Subscriber) -> Self {
        let (received, heard) = (BytesMut::new(), Instant::now());
        Self { subscriber, settings: &subscriber.settings, received, oversized: None, heard }
    }

    /// Receives messages until the connection ends; returns the reason.
    pub(super) async fn run(mut self) -> Ended {
        match self.serve().await {
            Err(ended) => ended,
            Ok(never) => match never {},
        }
    }

    async fn serve(&mut self) -> Result<std::convert::Infallible> {
        let limit = self.settings.keep_alive;
        let mut line = timeout(limit, self.connect()).await.map_err(|_| Ended::Silent(limit))??;
        self.make_database().await?;
        self.send(&mut line, &[self.hello()]).await?;
        match timeout(limit, self.receive(&mut line)).await.map_err(|_| Ended::Silent(limit))?? {
            Packet::ConnAck(answer) if answer.code == ConnectReturnCode::Success => {}
            Packet::ConnAck(answer) => return Err(Ended::Refused(format!("{:?}", answer.code))),
            other => {
                return Err(Ended::Nonsense(format!(
                    "{other:?} before it accepted the connection"
                )));
            }
        }
        self.send(&mut line, &[self.wish()]).await?;
        self.subscriber.stats.connects.add_one();
        self.heard = Instant::now();
        let mut ticks = tokio::time::interval(limit / 2);
        loop {
            let messages = self.take_complete()?;
            if !messages.is_empty() {
                self.store(&mut line, &mut ticks, messages).await?;
                continue;
            }
            if let Some(answer) = self.pass_over()? {
                self.send(&mut line, &answer).await?;
                continue;
            }
            self.received.reserve(READ);
            tokio::select! {
                read = line.read_buf(&mut self.received) => {
                    if read? == 0 {
                        return Err(Ended::Line(io::ErrorKind::UnexpectedEof.into()));
                    }
                    self.heard = Instant::now();
                }
                _ = ticks.tick() => {
                    if self.heard.elapsed() > limit * 2 {
                        return Err(Ended::Silent(limit * 2));
                    }
                    self.send(&mut line, &[Packet::PingReq]).await?;
                }
            }
        }
    }

    async fn connect(&self) -> Result<Box<dyn Line>> {
        let broker = &self.settings.broker;
        let stream = TcpStream::connect(broker).await?;
        stream.set_nodelay(true)?;
        let Some(files) = &self.settings.tls else { return Ok(Box::new(stream)) };
        let connector = files.read().map_err(|error| Ended::Refused(error.to_string()))?;
        let host = broker.rsplit_once(':').map_or(broker.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|error| Ended::Refused(error.to_string()))?;
        Ok(Box::new(connector.connect(name, stream).await?))
    }

    fn hello(&self) -> Packet {
        let mut hello = Connect::new(&self.settings.client);
        // The broker keeps messages while the subscriber is away.
        hello.clean_session = false;
        hello.keep_alive = u16::try_from(self.settings.keep_alive.as_secs()).unwrap_or(u16::MAX);
        hello.login = self.settings.login.as_ref().map(|(user, password)| Login {
            username: user.clone(),
            password: password.reveal().to_owned(),
        });
        Packet::Connect(hello)
    }

    fn wish(&self) -> Packet {
        let topics = self.settings.topics.iter();
        let filters = topics.map(|topic| SubscribeFilter::new(topic.clone(), QoS::AtLeastOnce));
        let mut wish = Subscribe::new_many(filters);
        wish.pkid = SUBSCRIPTION;
        Packet::Subscribe(wish)
    }

    async fn make_database(&self) -> Result<()> {
        let (store, name) = (&self.subscriber.store, &self.settings.database);
        if store.databases().iter().any(|database| database.name == *name) {
            return Ok(());
        }
        let database = Database { name: name.clone(), keep: None };
        store.create_database(database).await.map_err(Ended::Store)
    }

    async fn send(&self, line: &mut Box<dyn Line>, packets: &[Packet]) -> Result<()> {
        let limit = self.settings.keep_alive;
        let mut bytes = BytesMut::new();
        for packet in packets {
            let written = packet.write(&mut bytes, usize::MAX);
            written.map_err(|error| Ended::Refused(format!("{packet:?}: {error}")))?;
        }
        let sent = async {
            line.write_all(&bytes).await?;
            line.flush().await
        };
        Ok(timeout(limit, sent).await.map_err(|_| Ended::Silent(limit))??)
    }

    /// The next packet.
    async fn receive(&mut self, line: &mut Box<dyn Line>) -> Result<Packet> {
        loop {
            if let Some(packet) = self.complete()? {
                return Ok(packet);
            }
            if self.oversized.is_some() {
                return Err(Ended::Nonsense("a message before it accepted the connection".into()));
            }
            if line.read_buf(&mut self.received).await? == 0 {
                return Err(Ended::Line(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// The first received packet, if complete; `None` before one that is too long.
    fn complete(&mut self) -> Result<Option<Packet>> {
        if self.oversized.is_some() {
            return Ok(None);
        }
        match Packet::read(&mut self.received, self.settings.message_bytes_max) {
            Ok(packet) => Ok(Some(packet)),
            Err(mqttbytes::Error::InsufficientBytes(_)) => Ok(None),
            Err(mqttbytes::Error::PayloadSizeLimitExceeded(bytes)) => {
                match Oversized::take_head(&mut self.received) {
                    Head::Message(message) => self.oversized = Some(message),
                    Head::Incomplete => {}
                    Head::Nonsense => {
                        return Err(Ended::Nonsense(format!("a packet of {bytes} bytes")));
                    }
                }
                Ok(None)
            }
            Err(error) => Err(Ended::Nonsense(error.to_string())),
        }
    }

    /// Skips the received part of a message that is too long. At its end, returns the acknowledgement: otherwise the
    /// broker would send it again forever.
    fn pass_over(&mut self) -> Result<Option<Vec<Packet>>> {
        let Some(message) = &mut self.oversized else { return Ok(None) };
        if !message.pass_over(&mut self.received) {
            return Ok(None);
        }
        let max = self.settings.message_bytes_max;
        tracing::warn!(
            "mqtt: {}: a message of {} bytes is dropped: message_max is {max} bytes",
            message.topic,
            message.len
        );
        let answer = message.packet.map(|packet| Packet::PubAck(PubAck::new(packet)));
        self.oversized = None;
        self.subscriber.stats.messages.add_one();
        self.subscriber.stats.dropped.add_one();
        Ok(Some(answer.into_iter().collect()))
    }

    /// The received messages.
    fn take_complete(&mut self) -> Result<Vec<Publish>> {
        let mut messages = Vec::new();
        while let Some(packet) = self.complete()? {
            match packet {
                Packet::Publish(message) if message.qos != QoS::ExactlyOnce => {
                    messages.push(message);
                }
                Packet::SubAck(answer) if answer.pkid == SUBSCRIPTION => {
                    let topics = self.settings.topics.iter().zip(&answer.return_codes);
                    let refused: Vec<_> = topics
                        .filter(|(_, code)| **code == SubscribeReasonCode::Failure)
                        .map(|(topic, _)| topic.as_str())
                        .collect();
                    if !refused.is_empty() {
                        return Err(Ended::Refused(format!("topics {}", refused.join(", "))));
                    }
                    self.subscriber.stats.connected.store(true, Relaxed);
                    tracing::info!(broker = self.settings.broker, "mqtt: subscribed");
                }
                Packet::PingResp => {}
                other => return Err(Ended::Nonsense(format!("{other:?}"))),
            }
        }
        Ok(messages)
    }

    /// Stores messages, then acknowledges them. Keeps the connection alive meanwhile.
    async fn store(
        &mut self,
        line: &mut Box<dyn Line>,
        ticks: &mut tokio::time::Interval,
        messages: Vec<Publish>,
    ) -> Result<()> {
        let mut batch = Batch::new(&self.settings.database);
        let (settings, stats) = (self.settings, &self.subscriber.stats);
        let now = (self.subscriber.wall)();
        let mut problems = Vec::new();
        for message in &messages {
            stats.bytes_in.add(message.payload.len() as u64);
            // A retained message is of an unknown earlier time.
            let stamps = (!message.retain).then(|| Stamps::new(now, &self.subscriber.stamped));
            let told = settings.payload.put(&mut batch, message, settings.precision, stamps);
            problems.extend(told.into_iter().map(|problem| (message.topic.as_str(), problem)));
        }
        let mut dropped = problems.len();
        if let Some((topic, problem)) = problems.first() {
            tracing::warn!("mqtt: {topic}: {problem} ({dropped} dropped)");
        }
        if !batch.is_empty() {
            let stored = self.stored(batch);
            let mut stored = std::pin::pin!(stored);
            let written = loop {
                tokio::select! {
                    written = &mut stored => break written?,
                    _ = ticks.tick() => self.send(line, &[Packet::PingReq]).await?,
                }
            };
            stats.rows.add(written.rows as u64);
            dropped += written.refused;
            if let Some(rejected) = written.rejected.first() {
                tracing::warn!("mqtt: {} ({} dropped)", rejected.reason, written.refused);
            }
        }
        stats.dropped.add(dropped as u64);
        stats.messages.add(messages.len() as u64);
        let to_answer = messages.iter().filter(|message| message.qos == QoS::AtLeastOnce);
        let answers: Vec<_> =
            to_answer.map(|message| Packet::PubAck(PubAck::new(message.pkid))).collect();
        self.heard = Instant::now();
        self.send(line, &answers).await
    }

    /// Retries until the store has accepted the batch, or never will.
    async fn stored(&self, batch: Batch) -> Result<Written> {
        loop {
            match self.subscriber.store.write(batch.clone(), None).await {
                Ok(written) => return Ok(written),
                Err(Error::Busy { after, .. }) => tokio::time::sleep(after).await,
                // It may have been stored; storing the same points again changes nothing.
                Err(Error::Unavailable(_)) => tokio::time::sleep(AWAY).await,
                // No retry could succeed.
                Err(Error::Invalid(why)) => {
                    tracing::warn!("mqtt: a batch is dropped: {why}");
                    return Ok(Written { refused: batch.len(), ..Written::default() });
                }
                Err(error) => return Err(Ended::Store(error)),
            }
        }
    }
}
