//! Readiness: a first exchange in the broker's own protocol, over a plain socket.
//!
//! An open port proves little: RabbitMQ listens while it still boots, PostgreSQL while it recovers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::Kind;

/// How long one answer may take; a broker that needs longer is asked again.
const ANSWER: Duration = Duration::from_millis(500);

/// Tries the exchange once.
pub(super) fn of(kind: Kind, address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    stream.set_nodelay(true)?;
    match kind {
        Kind::RabbitMq => amqp(&mut stream),
        Kind::Nats => nats(&mut stream),
        Kind::Postgres => postgres(&mut stream),
        Kind::ActiveMq => stomp(&mut stream),
        Kind::Sqs => sqs(&mut stream, address),
    }
}

fn unexpected(wanted: &str, got: &[u8]) -> io::Error {
    let got = String::from_utf8_lossy(got);
    io::Error::new(io::ErrorKind::InvalidData, format!("wanted {wanted}, got {got:?}"))
}

fn wanted(is_there: bool, what: &str, got: &[u8]) -> io::Result<()> {
    if is_there { Ok(()) } else { Err(unexpected(what, got)) }
}

/// The protocol header is answered by the method connection.start (class 10, method 10).
fn amqp(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stream.write_all(b"AMQP\x00\x00\x09\x01")?;
    let mut frame = [0; 11];
    stream.read_exact(&mut frame)?;
    let is_start = frame[0] == 1 && frame[7..] == [0, 10, 0, 10];
    wanted(is_start, "connection.start", &frame)
}

/// The server speaks first; a ping proves that it also listens.
fn nats(stream: &mut (impl Read + Write)) -> io::Result<()> {
    let info = line(stream)?;
    wanted(info.starts_with(b"INFO "), "INFO", &info)?;
    stream.write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n")?;
    let pong = line(stream)?;
    wanted(pong == b"PONG", "PONG", &pong)
}

/// No TLS, then a session of the user postgres: refused while the server still recovers.
fn postgres(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stream.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])?;
    let mut answer = [0; 1];
    stream.read_exact(&mut answer)?;
    wanted(answer == *b"N", "no TLS", &answer)?;
    let parameters = b"user\0postgres\0database\0postgres\0\0";
    let length = u32::try_from(parameters.len() + 8).unwrap_or(u32::MAX);
    let mut startup = length.to_be_bytes().to_vec();
    startup.extend([0, 3, 0, 0]);
    startup.extend(parameters);
    stream.write_all(&startup)?;
    // Authentication, of length 8, kind 0: no password wanted.
    let mut answer = [0; 9];
    stream.read_exact(&mut answer)?;
    wanted(answer == [b'R', 0, 0, 0, 8, 0, 0, 0, 0], "authentication ok", &answer)?;
    stream.write_all(&[b'X', 0, 0, 0, 4])
}

fn stomp(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stream.write_all(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")?;
    let answer = line(stream)?;
    wanted(answer == b"CONNECTED", "CONNECTED", &answer)?;
    stream.write_all(b"DISCONNECT\n\n\0")
}

fn sqs(stream: &mut (impl Read + Write), address: SocketAddr) -> io::Result<()> {
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {address}\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n\
         Content-Type: application/x-amz-json-1.0\r\nContent-Length: 2\r\n\
         Connection: close\r\n\r\n{{}}"
    );
    stream.write_all(request.as_bytes())?;
    let status = line(stream)?;
    wanted(status.starts_with(b"HTTP/1.1 200"), "HTTP 200", &status)
}

/// One line without its end, of at most 64 KiB.
fn line(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    // Byte by byte: what follows the line belongs to the next read.
    let mut limited = BufReader::with_capacity(1, stream.take(64 * 1024));
    let mut line = Vec::new();
    limited.read_until(b'\n', &mut line)?;
    while line.last().is_some_and(u8::is_ascii_whitespace) {
        line.pop();
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::{amqp, line, nats, postgres, sqs, stomp};
    use std::io::{self, Read, Write};

    /// A peer that says what it was told to, whatever it hears.
    struct Script(&'static [u8]);

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    type Handshake = fn(&mut Script) -> io::Result<()>;

    #[test]
    fn only_the_right_answer_is_ready() {
        let http: Handshake = |script| sqs(script, ([127, 0, 0, 1], 1).into());
        let cases: [(Handshake, &[u8], bool); 13] = [
            (amqp, b"\x01\x00\x00\x00\x00\x01\xf4\x00\x0a\x00\x0a", true),
            (amqp, b"AMQP\x00\x00\x09\x01...", false),
            (amqp, b"", false),
            (nats, b"INFO {}\r\nPONG\r\n", true),
            (nats, b"INFO {}\r\n-ERR 'no'\r\n", false),
            (nats, b"HTTP/1.1 400\r\n", false),
            (postgres, b"NR\x00\x00\x00\x08\x00\x00\x00\x00", true),
            (postgres, b"NE\x00\x00\x00\x60SFATAL", false),
            (stomp, b"CONNECTED\nversion:1.2\n\n\0", true),
            (stomp, b"ERROR\nmessage:no\n\n\0", false),
            (stomp, b"", false),
            (http, b"HTTP/1.1 200 OK\r\n\r\n", true),
            (http, b"HTTP/1.1 503 Busy\r\n\r\n", false),
        ];
        for (handshake, answer, ready) in cases {
            let shown = String::from_utf8_lossy(answer);
            assert_eq!(handshake(&mut Script(answer)).is_ok(), ready, "{shown}");
        }
    }

    #[test]
    fn a_line_takes_no_more_than_itself() {
        let mut script = Script(b"one\r\ntwo");
        assert_eq!(line(&mut script).unwrap(), b"one");
        assert_eq!(line(&mut script).unwrap(), b"two");
    }
}
