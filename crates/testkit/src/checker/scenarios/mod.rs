//! The ways to race.

mod histories;
mod races;
mod tails;

use std::pin::Pin;

use sluicegate_event_store::{AppendCondition, NewEvent, Query};

use super::round::{Expected, Racer, Round};
use super::{Needs, Scenario};

/// Runs a round; answers with what must have come of it.
pub(super) type Run = fn(Round) -> Pin<Box<dyn Future<Output = Expected> + Send>>;

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "one-winner",
        needs: Needs::Nothing,
        run: |round| Box::pin(races::one_winner(round)),
    },
    Scenario {
        name: "old-transaction",
        needs: Needs::UnrelatedTransaction,
        run: |round| Box::pin(races::one_winner(round)),
    },
    Scenario {
        name: "overlapping",
        needs: Needs::Nothing,
        run: |round| Box::pin(races::overlapping(round)),
    },
    Scenario {
        name: "or-rings",
        needs: Needs::Nothing,
        run: |round| Box::pin(races::or_rings(round)),
    },
    Scenario { name: "plain", needs: Needs::Nothing, run: |round| Box::pin(races::plain(round)) },
    Scenario {
        name: "several-engines",
        needs: Needs::SeveralEngines,
        run: |round| Box::pin(races::several_engines(round)),
    },
    Scenario {
        name: "several-processes",
        needs: Needs::SeveralProcesses,
        run: |round| Box::pin(races::several_engines(round)),
    },
    Scenario {
        name: "histories",
        needs: Needs::Nothing,
        run: |round| Box::pin(histories::random(round)),
    },
    Scenario { name: "tails", needs: Needs::Nothing, run: |round| Box::pin(tails::follow(round)) },
];

impl Round {
    /// A racer that appends once.
    fn appends(
        &self,
        racer: u64,
        events: Vec<NewEvent>,
        condition: Option<AppendCondition>,
    ) -> Racer {
        let (engine, history) = (self.engine(racer), std::sync::Arc::clone(&self.history));
        Box::pin(async move {
            history.append(&*engine, events, condition).await;
        })
    }

    /// The tag of this round: no event before it has it.
    fn tag(&self) -> String {
        format!("round:{}", self.number)
    }

    /// What a decision on these events fails by, if it was made when the round began.
    fn since_start(&self, query: Query) -> AppendCondition {
        // Nothing before the round has its tag, so both mean the same.
        match self.number.is_multiple_of(16)
            && query.items().iter().all(|i| i.all_tags().contains(&self.tag()))
        {
            true => AppendCondition::none(query),
            false => AppendCondition::none_after(query, self.start),
        }
    }
}
