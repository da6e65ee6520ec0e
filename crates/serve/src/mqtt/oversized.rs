//! A message beyond the size limit: reads its head, and skips its payload.

use bytes::{Buf, BytesMut};

/// The type of a PUBLISH in the first byte of a packet.
const PUBLISH: u8 = 3;

/// A message whose payload is skipped as it arrives.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Oversized {
    /// Its topic.
    pub(super) topic: String,
    /// Its packet identifier, if it needs an acknowledgement.
    pub(super) packet: Option<u16>,
    /// Bytes of the packet after its fixed header.
    pub(super) len: usize,
    /// Bytes that have not arrived yet.
    left: usize,
}

/// The start of the received bytes.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Head {
    /// The head is incomplete.
    Incomplete,
    /// Not a message, or malformed.
    Nonsense,
    /// A message; its head is consumed.
    Message(Oversized),
}

impl Oversized {
    /// Consumes the head of a packet whose fixed header has arrived.
    pub(super) fn take_head(received: &mut BytesMut) -> Head {
        let Some(&first) = received.first() else { return Head::Incomplete };
        if first >> 4 != PUBLISH {
            return Head::Nonsense;
        }
        let (mut len, mut at) = (0usize, 1);
        loop {
            let Some(&byte) = received.get(at) else { return Head::Incomplete };
            len |= usize::from(byte & 0x7f) << (7 * (at - 1));
            at += 1;
            if byte & 0x80 == 0 {
                break;
            }
            if at > 4 {
                return Head::Nonsense;
            }
        }
        let wants_answer = match first >> 1 & 3 {
            0 => false,
            1 => true,
            _ => return Head::Nonsense,
        };
        let Some(topic_len) = received.get(at..at + 2) else { return Head::Incomplete };
        let topic_len = usize::from(u16::from_be_bytes([topic_len[0], topic_len[1]]));
        let head = 2 + topic_len + if wants_answer { 2 } else { 0 };
        if head > len {
            return Head::Nonsense;
        }
        let Some(bytes) = received.get(at + 2..at + head) else { return Head::Incomplete };
        let (topic, packet) = bytes.split_at(topic_len);
        let topic = String::from_utf8_lossy(topic).into_owned();
        let packet = packet.first_chunk().map(|packet| u16::from_be_bytes(*packet));
        received.advance(at + head);
        Head::Message(Self { topic, packet, len, left: len - head })
    }

    /// Skips the received part of the payload; returns whether that was the end.
    pub(super) fn pass_over(&mut self, received: &mut BytesMut) -> bool {
        let came = self.left.min(received.len());
        received.advance(came);
        self.left -= came;
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use rumqttc::mqttbytes::QoS;
    use rumqttc::mqttbytes::v4::Publish;

    use super::*;

    #[test]
    fn a_message_is_passed_over_however_its_bytes_come() {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
            let mut message = Publish::new("hall/1", qos, vec![b'x'; 1000]);
            message.pkid = 77;
            let mut bytes = BytesMut::new();
            message.write(&mut bytes).expect("it fits");
            let whole = bytes.len();
            bytes.extend_from_slice(b"behind");
            for step in [1, 7, 100, 5000] {
                let (mut received, mut oversized, mut rest) = (BytesMut::new(), None, &bytes[..]);
                loop {
                    let (now, later) = rest.split_at(step.min(rest.len()));
                    received.extend_from_slice(now);
                    rest = later;
                    if oversized.is_none() {
                        match Oversized::take_head(&mut received) {
                            Head::Message(message) => oversized = Some(message),
                            Head::Incomplete => continue,
                            Head::Nonsense => panic!("it is a message"),
                        }
                    }
                    if oversized.as_mut().is_some_and(|of| of.pass_over(&mut received)) {
                        break;
                    }
                }
                let oversized = oversized.expect("it was read");
                assert_eq!((&*oversized.topic, oversized.left), ("hall/1", 0));
                assert_eq!(oversized.packet, (qos == QoS::AtLeastOnce).then_some(77));
                let behind = [&received[..], rest].concat();
                assert_eq!((&behind[..], oversized.len), (&b"behind"[..], whole - 3));
            }
        }
    }

    #[test]
    fn what_is_no_message_is_none() {
        for bytes in
            [&b"\x90\x05aaaaa"[..], b"\x34\x05aaaaa", b"\x32\x03\0\x04a", b"\x30\xff\xff\xff\xff"]
        {
            assert_eq!(Oversized::take_head(&mut BytesMut::from(bytes)), Head::Nonsense);
        }
    }
}
