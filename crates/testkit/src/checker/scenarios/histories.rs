//! Clients that read, decide on what they read and append, or append whatever there is.

use std::sync::Arc;

use sluicegate_event_store::{AppendCondition, Engine, NewEvent, Position, Query, QueryItem, Read};

use crate::checker::history::{History, event};
use crate::checker::rng::Rng;
use crate::checker::round::{Expected, Racer, Round};

const CLIENTS: u64 = 6;
const STEPS: u64 = 6;

/// What one client does in a round.
struct Client {
    engine: Arc<dyn Engine>,
    history: Arc<History>,
    rng: Rng,
    /// What it knows of the log: the last event that it saw, or where the round began.
    known: Position,
}

pub(super) async fn random(mut round: Round) -> Expected {
    let client = |round: &mut Round, n| Client {
        engine: round.engine(n),
        history: Arc::clone(&round.history),
        rng: round.rng.split(),
        known: round.start,
    };
    let mut clients: Vec<Racer> = Vec::new();
    for n in 0..CLIENTS {
        let mut client = client(&mut round, n);
        clients.push(Box::pin(async move {
            for _ in 0..STEPS {
                client.step().await;
                tokio::task::yield_now().await;
            }
        }));
    }
    round.race(clients).await;
    // What nobody waited for has been done or never will be when this is answered.
    let end = round.appends(0, vec![event("End", ["end:1".to_owned()])], None);
    round.race(vec![end]).await;
    Expected::Exact
}

impl Client {
    async fn step(&mut self) {
        match self.rng.below(10) {
            0..=3 => self.read().await,
            4..=5 => self.append(None).await,
            6 => {
                let (events, turns) = (self.events(), self.rng.below(4));
                let condition = Some(self.condition());
                self.history.append_and_leave(&*self.engine, events, condition, turns).await;
            }
            _ => {
                let condition = self.condition();
                self.append(Some(condition)).await;
            }
        }
    }

    /// A page, and the ones after it.
    async fn read(&mut self) {
        let mut read = Read::new(self.query()).expect("it may be asked for");
        (read.after, read.limit) = (self.known, 1 + self.rng.below(3) as usize);
        for _ in 0..4 {
            let events = self.history.read(&*self.engine, read.clone()).await;
            let Some(last) = events.last() else { return };
            read.after = last.position();
        }
        self.known = read.after;
    }

    async fn append(&mut self, condition: Option<AppendCondition>) {
        let events = self.events();
        let appended = self.history.append(&*self.engine, events, condition).await;
        if let Some(position) = appended
            && self.rng.percent(50)
        {
            self.known = position;
        }
    }

    fn condition(&mut self) -> AppendCondition {
        AppendCondition::none_after(self.query(), self.known)
    }

    fn events(&mut self) -> Vec<NewEvent> {
        (0..=self.rng.below(3)).map(|_| self.event()).collect()
    }

    fn event(&mut self) -> NewEvent {
        let tags = (0..=self.rng.below(2)).map(|_| self.tag()).collect::<Vec<_>>();
        let of_type = self.event_type();
        event(&of_type, tags)
    }

    fn query(&mut self) -> Query {
        if self.rng.percent(5) {
            return Query::all();
        }
        let items: Vec<_> = (0..=self.rng.below(3)).map(|_| self.item()).collect();
        Query::any_of(items)
    }

    fn item(&mut self) -> QueryItem {
        let types: Vec<_> = (0..self.rng.below(3)).map(|_| self.event_type()).collect();
        let least = u64::from(types.is_empty());
        let tags: Vec<_> = (0..least + self.rng.below(2)).map(|_| self.tag()).collect();
        QueryItem::default().types(types).tags(tags)
    }

    fn event_type(&mut self) -> String {
        format!("T{}", self.rng.below(4))
    }

    fn tag(&mut self) -> String {
        format!("k:{}", self.rng.below(5))
    }
}
