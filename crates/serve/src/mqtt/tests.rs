use std::time::Duration;

use bytes::BytesMut;
use engine::series::{Memory, Scan, Selector, Span};
use rumqttc::mqttbytes::v4::{
    ConnAck, ConnectReturnCode, Packet, Publish, SubAck, SubscribeReasonCode,
};
use rumqttc::mqttbytes::{self, QoS};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

fn settings(broker: String) -> Settings {
    Settings {
        broker,
        topics: vec!["hall/#".into()],
        database: "hall".into(),
        client: "test".into(),
        login: None,
        tls: None,
        payload: Payload::Lines,
        precision: Precision::Seconds,
        message_bytes_max: 1000,
        keep_alive: Duration::from_secs(60),
    }
}

/// The broker's side of a connection.
struct Broker {
    line: TcpStream,
    received: BytesMut,
}

impl Broker {
    async fn packet(&mut self) -> Packet {
        loop {
            match Packet::read(&mut self.received, usize::MAX) {
                Ok(packet) => return packet,
                Err(mqttbytes::Error::InsufficientBytes(_)) => {}
                Err(error) => panic!("{error}"),
            }
            let read = self.line.read_buf(&mut self.received).await.expect("the line holds");
            assert!(read > 0, "the subscriber went away");
        }
    }

    /// The identifier of the next acknowledged message.
    async fn acknowledged(&mut self) -> u16 {
        loop {
            match self.packet().await {
                Packet::PubAck(answer) => return answer.pkid,
                Packet::PingReq => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn send(&mut self, packets: &[Packet]) {
        let mut bytes = BytesMut::new();
        for packet in packets {
            packet.write(&mut bytes, usize::MAX).expect("it fits");
        }
        self.line.write_all(&bytes).await.expect("the line holds");
    }

    async fn let_in(listener: &TcpListener) -> Self {
        let (line, _) = listener.accept().await.expect("a subscriber comes");
        let mut broker = Self { line, received: BytesMut::new() };
        assert!(matches!(broker.packet().await, Packet::Connect(_)));
        let connected = ConnAck { session_present: false, code: ConnectReturnCode::Success };
        broker.send(&[Packet::ConnAck(connected)]).await;
        let Packet::Subscribe(wish) = broker.packet().await else { panic!("it subscribes") };
        let codes = vec![SubscribeReasonCode::Success(QoS::AtLeastOnce)];
        broker.send(&[Packet::SubAck(SubAck::new(wish.pkid, codes))]).await;
        broker
    }
}

fn message(packet: u16, text: impl Into<Vec<u8>>) -> Packet {
    let mut message = Publish::new("hall/1", QoS::AtLeastOnce, text);
    message.pkid = packet;
    Packet::Publish(message)
}

/// Once, a message that was too long ended the connection, and the broker sent it again forever.
#[tokio::test]
async fn a_message_that_is_too_long_is_acknowledged_and_those_behind_it_are_stored() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let store = Arc::new(Memory::default());
    let wall: Wall = Box::new(|| 1_700_000_000_000_000_000);
    let shared: Arc<dyn Series> = store.clone();
    let subscriber = Subscriber::new(settings(address), shared, wall);
    let (done, stop) = tokio::sync::oneshot::channel::<()>();
    let broker = async {
        let mut broker = Broker::let_in(&listener).await;
        let long = vec![b'x'; 300_000];
        broker.send(&[message(1, "m v=1"), message(2, long), message(3, "m v=2\nm v=3")]).await;
        for packet in 1..4 {
            assert_eq!(broker.acknowledged().await, packet);
        }
        drop(done);
    };
    let stopped = async {
        let _ = stop.await;
    };
    tokio::join!(subscriber.run(stopped), broker);
    let count = Counter::get;
    let stats = subscriber.stats();
    assert_eq!((count(&stats.messages), count(&stats.dropped)), (3, 1));
    assert_eq!((count(&stats.rows), count(&stats.connects)), (3, 1));
    let series = store.find(&Selector::all("hall"), None, 2).expect("it is there");
    let mut points = store.read(series[0].id, Scan::of(Span::ALL));
    let points = points.next().await.expect("they are read").expect("there are some");
    assert_eq!(points.len(), 3, "rows without a time have one each");
}
