//! The end of a connection: who is answered, and who is sent again on the next one.

use std::time::Duration;

use futures_util::StreamExt;
use sluicegate_dispatch::SourceError;
use tokio::time::{Instant, timeout_at};

use super::super::blame::{is_of_frames, is_unsent};
use super::{Numbered, Session, TRIES};

/// How long the library may take to tell of the end.
const REST: Duration = Duration::from_secs(5);

impl Session<'_> {
    /// After the connection ended: what was on its way is answered for, since nobody knows what became of it.
    ///
    /// What was not sent is sent on the next connection; so is everything where the connection ended
    /// for one message's fault, of which the next one tells.
    pub(super) async fn end(mut self, why: &SourceError) {
        self.hear_the_rest().await;
        let lost = std::mem::take(&mut self.lost);
        let is_of_one = lost.iter().any(|(_, error)| is_of_frames(error));
        for ((number, message), error) in lost {
            match (is_of_one || is_unsent(&error)) && message.tries < TRIES {
                true => self.ready.push_back((number, message)),
                false => message.conclude(Err(SourceError::new(error))),
            }
        }
        for (number, message) in self.on_its_way() {
            match is_of_one && message.tries < TRIES {
                true => self.ready.push_back((number, message)),
                false => message.conclude(Err(why.clone())),
            }
        }
        self.put_back();
    }

    /// Hears what the broker said before the connection ended. The library knows of an end before it has told
    /// everybody who waits, and tells most of them why.
    async fn hear_the_rest(&mut self) {
        let end = Instant::now() + REST;
        while let Ok(Some(last)) = timeout_at(end, self.confirming.next()).await {
            // That it ended is known.
            self.confirmed(last).unwrap_or_default();
        }
    }

    fn on_its_way(&mut self) -> Vec<Numbered> {
        let sent = std::mem::take(&mut self.sent).into_iter();
        let sent = sent.map(|(number, sent)| (number, sent.message));
        let unconfirmed = self.lanes.iter_mut().flat_map(|of| std::mem::take(&mut of.unconfirmed));
        sent.chain(unconfirmed).collect()
    }
}
