//! Whose fault it was that the broker closed a channel.

use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::{ConnectionState, ErrorKind};

use super::{Destination, Outgoing};

/// What becomes of the messages that were not confirmed when the broker closed their channel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Blame<T> {
    /// These are bad.
    pub(super) bad: Vec<T>,
    /// These are sent again, one group at a time, so that the next error tells more.
    pub(super) again: Vec<Vec<T>>,
}

/// Whether a channel ended for what was sent on it.
pub(super) fn is_of_channel(error: &lapin::Error) -> bool {
    match error.kind() {
        ErrorKind::ProtocolError(said) => matches!(said.kind(), AMQPErrorKind::Soft(_)),
        // Sent after the channel had ended, before that was known.
        ErrorKind::InvalidChannelState(..) => true,
        _ => false,
    }
}

/// Whether a connection ended for what the library still wrote on a channel that had ended.
pub(super) fn is_of_frames(error: &lapin::Error) -> bool {
    let order = [
        AMQPErrorKind::Hard(AMQPHardError::CHANNELERROR),
        AMQPErrorKind::Hard(AMQPHardError::UNEXPECTEDFRAME),
    ];
    matches!(error.kind(), ErrorKind::ProtocolError(said) if order.contains(said.kind()))
}

/// Whether a message was not sent, as its connection was ending already: not for this message, and the
/// library does not say for what.
pub(super) fn is_unsent(error: &lapin::Error) -> bool {
    match error.kind() {
        ErrorKind::InvalidConnectionState(state) => {
            matches!(state, ConnectionState::Closing | ConnectionState::Error)
        }
        ErrorKind::InvalidChannelState(..) => true,
        _ => false,
    }
}

pub(super) fn blame(
    error: &lapin::Error,
    messages: Vec<(u64, Outgoing)>,
) -> Blame<(u64, Outgoing)> {
    let ErrorKind::ProtocolError(said) = error.kind() else {
        return Blame { bad: Vec::new(), again: vec![messages] };
    };
    let is_missing = *said.kind() == AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND);
    let text = said.get_message().to_string();
    divide(messages, |(_, message)| {
        matches!(&message.to, Destination::Exchange(exchange, _)
            if is_missing && text.contains(&format!("'{exchange}'")))
    })
}

/// Those that are named are bad. Where none is, one alone is bad, and more are halved.
fn divide<T>(messages: Vec<T>, is_named: impl Fn(&T) -> bool) -> Blame<T> {
    let (mut bad, mut rest): (Vec<T>, Vec<T>) = messages.into_iter().partition(is_named);
    if bad.is_empty() && rest.len() == 1 {
        bad.append(&mut rest);
    }
    let mut again = Vec::new();
    if bad.is_empty() {
        let half = rest.split_off(rest.len() / 2);
        again.extend([rest, half]);
    } else {
        again.push(rest);
    }
    again.retain(|group| !group.is_empty());
    Blame { bad, again }
}

#[cfg(test)]
mod tests {
    use lapin::ChannelState;
    use lapin::protocol::AMQPError;

    use super::*;

    fn said(kind: AMQPErrorKind) -> lapin::Error {
        ErrorKind::ProtocolError(AMQPError::new(kind, "why".into())).into()
    }

    #[test]
    fn errors_tell_what_ended() {
        let cases = [
            (said(AMQPSoftError::NOTFOUND.into()), (true, false, false)),
            (said(AMQPHardError::CHANNELERROR.into()), (false, true, false)),
            (said(AMQPHardError::UNEXPECTEDFRAME.into()), (false, true, false)),
            (said(AMQPHardError::CONNECTIONFORCED.into()), (false, false, false)),
            // Seen from `confirm.select`, with the connection about to end.
            (ErrorKind::InvalidChannelState(ChannelState::Closing, "").into(), (true, false, true)),
            (
                ErrorKind::InvalidConnectionState(ConnectionState::Closing).into(),
                (false, false, true),
            ),
            (
                ErrorKind::InvalidConnectionState(ConnectionState::Error).into(),
                (false, false, true),
            ),
            // Who waits for a confirmation hears this too.
            (
                ErrorKind::InvalidConnectionState(ConnectionState::Closed).into(),
                (false, false, false),
            ),
            (
                std::io::Error::from(std::io::ErrorKind::ConnectionReset).into(),
                (false, false, false),
            ),
        ];
        for (error, expected) in cases {
            let told = (is_of_channel(&error), is_of_frames(&error), is_unsent(&error));
            assert_eq!(told, expected, "{error}");
        }
    }

    #[test]
    fn the_bad_one_is_found_by_its_name_or_by_halves() {
        let messages = || (0..5).collect::<Vec<u32>>();
        let named = divide(messages(), |n| n % 2 == 0);
        assert_eq!(named, Blame { bad: vec![0, 2, 4], again: vec![vec![1, 3]] });
        let halved = divide(messages(), |_| false);
        assert_eq!(halved, Blame { bad: vec![], again: vec![vec![0, 1], vec![2, 3, 4]] });
        assert_eq!(divide(vec![7], |_| false), Blame { bad: vec![7], again: vec![] });
        assert_eq!(divide(vec![7], |_| true), Blame { bad: vec![7], again: vec![] });
        assert_eq!(divide(Vec::<u32>::new(), |_| false), Blame::default());
    }
}
