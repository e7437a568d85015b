//! Round trips, frames in pieces, and garbage.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio_util::codec::{Decoder, Encoder};

use super::*;

fn encoded(frames: &[Frame]) -> BytesMut {
    let mut bytes = BytesMut::new();
    for frame in frames {
        Codec::default().encode(Said::Frame(frame.clone()), &mut bytes).unwrap();
    }
    bytes
}

/// All frames in bytes that come in pieces.
fn decoded<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> io::Result<Vec<Frame>> {
    let (mut codec, mut buffer) = (Codec::default(), BytesMut::new());
    let mut frames = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while let Some(heard) = codec.decode(&mut buffer)? {
            if let Heard::Frame(mut frame) = heard {
                frame.headers.retain(|(name, _)| &**name != "content-length");
                frames.push(frame);
            }
        }
        assert!(buffer.len() <= MAX_BODY + 128 * 1024, "{} bytes are buffered", buffer.len());
    }
    Ok(frames)
}

fn frame() -> impl Strategy<Value = Frame> {
    let text = "[a-z:\\\\\n\r é🔑-]{0,12}";
    let headers = vec((text, text), 0..6);
    let body = prop_oneof![9 => vec(any::<u8>(), 0..64), 1 => vec(any::<u8>(), 17_000..17_010)];
    (0..Command::ALL.len(), headers, body).prop_map(|(command, headers, body)| {
        let command = Command::ALL[command];
        let body = if command.has_body() { Bytes::from(body) } else { Bytes::new() };
        let mut frame = Frame::new(command).with_body(body);
        for (at, (name, value)) in headers.into_iter().enumerate() {
            // A number in front: of the same name only the first counts.
            let mut name = format!("{at}{name}");
            let mut value = value;
            if !command.escapes() {
                name.retain(|letter| !"\n\r:".contains(letter));
                value.retain(|letter| !"\n\r".contains(letter));
            }
            frame = frame.with(&name, value);
        }
        frame
    })
}

proptest! {
    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_split(
        frames in vec(frame(), 1..5),
        cuts in vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let bytes = encoded(&frames);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]);
        prop_assert_eq!(decoded(pieces).unwrap(), frames);
    }

    #[test]
    fn frames_come_out_byte_by_byte(frames in vec(frame(), 1..3)) {
        prop_assume!(frames.iter().all(|frame| frame.body.len() < 1000));
        let bytes = encoded(&frames);
        prop_assert_eq!(decoded(bytes.chunks(1)).unwrap(), frames);
    }

    /// Whatever comes, it neither panics nor hangs; and in pieces it is the same as in one.
    #[test]
    fn garbage_is_survived(
        bytes in vec(prop_oneof![
            Just(b"MESSAGE\n".to_vec()), Just(b"content-length:".to_vec()), Just(b"\n\n".to_vec()),
            Just(b"ack:1\n".to_vec()), Just(b"\0".to_vec()), Just(b"9".to_vec()),
            Just(b"\r\n".to_vec()), vec(any::<u8>(), 0..20),
        ], 0..30),
        size in 1_usize..40,
    ) {
        let bytes = bytes.concat();
        let (whole, pieces) = (decoded([&bytes[..]]), decoded(bytes.chunks(size)));
        prop_assert_eq!(whole.ok(), pieces.ok());
    }
}

fn only(bytes: &[u8]) -> Frame {
    let mut frames = decoded([bytes]).unwrap();
    assert_eq!(frames.len(), 1, "{frames:?}");
    frames.remove(0)
}

#[test]
fn what_goes_on_the_wire() {
    let send = Frame::new(Command::Send).with("a:b", "1\n2\r\\").with_body("x\0y".into());
    assert_eq!(&encoded(&[send])[..], b"SEND\na\\cb:1\\n2\\r\\\\\ncontent-length:3\n\nx\0y\0");
    let connect = Frame::new(Command::Connect).with("passcode", "a:\\b");
    assert_eq!(&encoded(&[connect])[..], b"CONNECT\npasscode:a:\\b\n\n\0");
    let mut beat = BytesMut::new();
    Codec::default().encode(Said::Beat, &mut beat).unwrap();
    assert_eq!(&beat[..], b"\n");
}

#[test]
fn what_is_read() {
    let frame = only(b"\n\r\n\nMESSAGE\r\na:1\r\na:2\nb\\cc: x \\t\\q\nnocolon\n\nbody\0\n");
    assert_eq!((frame.header("a"), frame.header("b:c")), (Some("1"), Some(" x \\t\\q")));
    assert_eq!((&frame.body[..], frame.is_cut), (&b"body"[..], false));
    assert_eq!(only(b"CONNECTED\nsession:a\\cb:1\n\n\0").header("session"), Some("a\\cb:1"));
}

#[test]
fn beats_are_heard_between_frames() {
    let mut codec = Codec::default();
    let mut bytes = BytesMut::from(&b"\n"[..]);
    assert_eq!(codec.decode(&mut bytes).unwrap(), Some(Heard::Beat));
    assert_eq!(codec.decode(&mut bytes).unwrap(), None);
}

#[test]
fn what_is_no_frame_is_passed_over() {
    // A text with a NUL in it, sent without its length.
    let frames =
        decoded([&b"MESSAGE\nack:1\n\nhalf\0 and half\0\nRECEIPT\nreceipt-id:7\n\n\0"[..]]);
    let frames = frames.unwrap();
    assert_eq!((&frames[0].body[..], frames[1].command), (&b"half"[..], Command::Receipt));
    let long = [&b"x".repeat(300)[..], b"\0RECEIPT\n\n\0"].concat();
    assert_eq!(only(&long).command, Command::Receipt);
}

#[test]
fn a_frame_that_does_not_end_where_it_says_is_an_error() {
    assert!(decoded([&b"MESSAGE\ncontent-length:2\n\nabc\0"[..]]).is_err());
    assert!(decoded([&b"MESSAGE\ncontent-length:x\n\nabc\0"[..]]).is_err());
    assert!(decoded([&b"MESSAGE\ncontent-length:-1\n\nabc\0"[..]]).is_err());
}

/// What is too large is cut, not kept, and what follows it is read.
#[test]
fn large_frames_are_cut() {
    let body = b"b".repeat(5 * MAX_BODY);
    let header = b"h".repeat(200 * 1024);
    let many: Vec<u8> =
        (0..9_000).flat_map(|n| format!("h{n}:0123456789\n").into_bytes()).collect();
    let length = format!("content-length:{}\n", body.len()).into_bytes();
    #[rustfmt::skip]
    let cases: [(&str, &[&[u8]], usize); 6] = [
        ("a body with its length", &[&length, b"ack:1\n\n", &body], MAX_BODY),
        ("a body without", &[b"ack:1\n\n", &body], MAX_BODY),
        ("a body that is just too large", &[b"ack:1\n\n", &body[..=MAX_BODY]], MAX_BODY),
        ("a long header", &[b"x:", &header, b"\nack:1\n\nb"], 1),
        ("a long line without a colon", &[&header, b"\nack:1\n\nb"], 1),
        ("many headers", &[&many, b"ack:1\n\nb"], 1),
    ];
    for (what, parts, kept) in cases {
        let bytes = [b"MESSAGE\n", &parts.concat()[..], b"\0RECEIPT\nreceipt-id:7\n\n\0"].concat();
        for size in [9_000, 100_000, bytes.len()] {
            let mut frames = decoded(bytes.chunks(size)).unwrap();
            let (receipt, message) = (frames.pop().unwrap(), frames.pop().unwrap());
            assert_eq!(receipt.header("receipt-id"), Some("7"), "{what}");
            assert_eq!((message.header("ack"), message.body.len()), (Some("1"), kept), "{what}");
            assert!(message.is_cut, "{what}");
            let headers: usize = message.headers.iter().map(|(n, v)| n.len() + v.len()).sum();
            assert!(headers < 70_000, "{what}: {headers} bytes of headers");
        }
    }
    let just = [&b"MESSAGE\n\n"[..], &body[..MAX_BODY], b"\0"].concat();
    for size in [9_000, just.len()] {
        let frame = decoded(just.chunks(size)).unwrap().remove(0);
        assert_eq!((frame.body.len(), frame.is_cut), (MAX_BODY, false));
    }
}
