//! What happens, for those who listen: dashboards and scripts.

mod event;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::time::Clock;

pub use event::event_for;

/// Something that happened, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What kind of thing.
    pub name: &'static str,
    /// All of it, with `type` and `timestamp`.
    pub json: Arc<str>,
}

/// Sends what happens to those who listen. While nobody does, it costs a look at a number.
///
/// A listener that is too slow misses the oldest events and is told how many; nobody waits for it.
#[derive(Debug)]
pub struct Feed {
    clock: Arc<dyn Clock>,
    sender: broadcast::Sender<Event>,
    listeners: Arc<AtomicUsize>,
}

/// Hears what happens from the moment it was made.
#[derive(Debug)]
pub struct Listener {
    clock: Arc<dyn Clock>,
    receiver: broadcast::Receiver<Event>,
    _present: Present,
}

/// Counts a listener while it is there.
#[derive(Debug)]
struct Present(Arc<AtomicUsize>);

impl Feed {
    /// How many events a listener may be behind.
    pub const MOST_BEHIND: usize = 1_024;

    /// A feed that nobody listens to yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (sender, _) = broadcast::channel(Self::MOST_BEHIND);
        Self { clock, sender, listeners: Arc::default() }
    }

    /// Listens from now on.
    #[must_use]
    pub fn listen(&self) -> Listener {
        // The receiver is there before the count says so: what is sent in between is heard.
        let receiver = self.sender.subscribe();
        self.listeners.fetch_add(1, Ordering::Release);
        let present = Present(Arc::clone(&self.listeners));
        Listener { clock: Arc::clone(&self.clock), receiver, _present: present }
    }

    /// How many listen.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.listeners.load(Ordering::Acquire)
    }

    /// Tells those who listen. What to tell is made only if somebody does.
    pub fn tell(&self, make: impl FnOnce() -> Option<(&'static str, Map<String, Value>)>) {
        if self.listeners() == 0 {
            return;
        }
        if let Some((name, fields)) = make() {
            // An error says that the last listener has just left.
            self.sender.send(event(&*self.clock, name, fields)).ok();
        }
    }
}

impl Listener {
    /// The next event. `None` when the feed is gone.
    ///
    /// # Cancel safety
    /// Dropped, it takes nothing.
    pub async fn next(&mut self) -> Option<Event> {
        match self.receiver.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(missed)) => {
                let fields = Map::from_iter([("missed".to_owned(), Value::from(missed))]);
                Some(event(&*self.clock, "lagged", fields))
            }
            Err(RecvError::Closed) => None,
        }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

fn event(clock: &dyn Clock, name: &'static str, mut fields: Map<String, Value>) -> Event {
    fields.insert("type".to_owned(), name.into());
    fields.insert("timestamp".to_owned(), clock.now().as_millisecond().into());
    Event { name, json: Value::Object(fields).to_string().into() }
}
