//! Sessions: to whom each belongs, and whether its next turn is a first one or goes on with it.
//!
//! Those with requests are here; of the others the last few, and the journal knows all.
//!
//! Invariants:
//! 1. A session's state is changed only by who has its turn ([`InSession::turn`]), and written down before that ends.
//! 2. A session of which no request was let in belongs to nobody once no request claims it.
//!
//! `docs/rules.md#agents-3`, `docs/rules.md#agents-4`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::journal::KnownSession;
use crate::{Owner, SessionId};

/// How many sessions without requests are remembered.
const IDLE: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    all: HashMap<SessionId, Session>,
    /// Those without requests that the journal knows, longest first.
    idle: BTreeMap<u64, SessionId>,
    /// The last number in there.
    last: u64,
}

#[derive(Debug)]
struct Session {
    owner: Owner,
    /// Whether the next turn goes on with it, rather than being a first one.
    begun: bool,
    /// Whether a turn before may have left something behind, though nothing was heard of it.
    tried: bool,
    /// Whether the agent has answered since it is taken for begun, or not: then one refusal is no more than a failure.
    answered: bool,
    /// Whether the journal knows it.
    known: bool,
    requests: usize,
    /// Its number among those without requests.
    idle: Option<u64>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// What the journal said of a session.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It was not asked.
    No,
    /// What it knows.
    Yes(Option<KnownSession>),
}

/// Why a session is not claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotClaimed {
    /// It is not here, and the journal is to be asked.
    Unknown,
    /// It belongs to somebody else.
    Forbidden,
}

/// How a turn left its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// No program heard of it.
    Untouched,
    /// The agent said something: there is something to go on with.
    Heard,
    /// The agent ended, or its start was given up, before it said anything.
    Silent,
    /// The agent was at work when it was given up, and had said nothing yet.
    CutOff,
    /// The program was started for this turn and ended with an error before it said anything: it may be that it does
    /// not know the session it was to go on with, or knows the one it was to begin.
    Refused,
}

/// A request's claim on its session. Dropped, the session may be forgotten.
#[derive(Debug)]
pub(crate) struct InSession {
    sessions: Arc<Sessions>,
    session: SessionId,
}

/// The turn of a session: nobody else changes its state, or writes it down.
#[derive(Debug)]
pub(crate) struct SessionTurn(#[expect(dead_code, reason = "held")] OwnedMutexGuard<()>);

impl Sessions {
    /// Claims a session for a request.
    pub(crate) fn claim(
        self: &Arc<Self>,
        session: &SessionId,
        owner: &Owner,
        asked: Asked,
    ) -> Result<InSession, NotClaimed> {
        let mut state = self.state.lock();
        let State { all, idle, .. } = &mut *state;
        if !all.contains_key(session) {
            let Asked::Yes(known) = asked else { return Err(NotClaimed::Unknown) };
            let new = known.map_or_else(|| Session::new(owner.clone()), Session::known);
            all.insert(session.clone(), new);
        }
        let Some(found) = all.get_mut(session) else { return Err(NotClaimed::Unknown) };
        // Counted before it is looked at: dropped, the claim cleans up what was added.
        found.requests += 1;
        found.idle.take().map(|number| idle.remove(&number));
        let same = found.owner == *owner;
        drop(state);
        let claim = InSession { sessions: Arc::clone(self), session: session.clone() };
        if same { Ok(claim) } else { Err(NotClaimed::Forbidden) }
    }
}

impl Session {
    fn new(owner: Owner) -> Self {
        let turn = Arc::default();
        Self {
            owner,
            begun: false,
            tried: false,
            answered: false,
            known: false,
            requests: 0,
            idle: None,
            turn,
        }
    }

    /// What became of its turns is not known, but for whether it began.
    fn known(KnownSession { owner, begun }: KnownSession) -> Self {
        Self { begun, tried: true, known: true, ..Self::new(owner) }
    }

    fn left(&mut self, left: Left) {
        match left {
            Left::Untouched => return,
            Left::Heard => (self.begun, self.answered) = (true, true),
            Left::Silent => {}
            // An agent keeps what it was asked before it has an answer.
            Left::CutOff => self.begun = true,
            Left::Refused if self.answered => self.answered = false,
            // What was never tried before cannot be known already.
            Left::Refused if self.begun || self.tried => self.begun = !self.begun,
            Left::Refused => {}
        }
        self.tried = true;
    }
}

impl InSession {
    pub(crate) fn is_begun(&self) -> bool {
        let state = self.sessions.state.lock();
        state.all.get(&self.session).is_some_and(|session| session.begun)
    }

    /// The request was let in, and the journal knows the session by now.
    pub(crate) fn let_in(&self) {
        self.change(|session| session.known = true);
    }

    /// Waits until whoever had the turn before has written down how it left the session. Cancel safe.
    pub(crate) async fn turn(&self) -> SessionTurn {
        let turn = {
            let state = self.sessions.state.lock();
            state.all.get(&self.session).map(|session| Arc::clone(&session.turn))
        };
        SessionTurn(turn.unwrap_or_default().lock_owned().await)
    }

    /// A turn is over.
    pub(crate) fn left(&self, _: &SessionTurn, left: Left) {
        self.change(|session| session.left(left));
    }

    fn change(&self, change: impl FnOnce(&mut Session)) {
        if let Some(session) = self.sessions.state.lock().all.get_mut(&self.session) {
            change(session);
        }
    }
}

impl Drop for InSession {
    fn drop(&mut self) {
        let mut state = self.sessions.state.lock();
        let State { all, idle, last } = &mut *state;
        let Some(session) = all.get_mut(&self.session) else { return };
        session.requests -= 1;
        if session.requests > 0 {
            return;
        }
        if !session.known {
            all.remove(&self.session);
            return;
        }
        *last += 1;
        session.idle = Some(*last);
        idle.insert(*last, self.session.clone());
        if idle.len() > IDLE {
            idle.pop_first().map(|(_, oldest)| all.remove(&oldest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tenant;

    fn owner(tenant: &str) -> Owner {
        Tenant::parse(tenant).unwrap().owner()
    }

    fn claim(
        sessions: &Arc<Sessions>,
        tenant: &str,
        asked: Asked,
    ) -> Result<InSession, NotClaimed> {
        sessions.claim(&SessionId::parse("s").unwrap(), &owner(tenant), asked)
    }

    /// `docs/rules.md#agents-3`
    #[test]
    fn a_session_of_which_nothing_was_let_in_is_nobodys() {
        let sessions = Arc::<Sessions>::default();
        assert_eq!(claim(&sessions, "web:1", Asked::No).unwrap_err(), NotClaimed::Unknown);
        let one = claim(&sessions, "web:1", Asked::Yes(None)).unwrap();
        let two = claim(&sessions, "web:1", Asked::No).unwrap();
        assert_eq!(claim(&sessions, "web:2", Asked::No).unwrap_err(), NotClaimed::Forbidden);
        drop((one, two));
        // Whoever looked before it was gone has to ask, and gets no one else's session.
        assert_eq!(claim(&sessions, "web:1", Asked::No).unwrap_err(), NotClaimed::Unknown);
        let other = claim(&sessions, "web:2", Asked::Yes(None)).unwrap();
        other.let_in();
        drop(other);
        assert_eq!(claim(&sessions, "web:1", Asked::No).unwrap_err(), NotClaimed::Forbidden);
    }

    /// As many are remembered as there may be, however often one of them was used.
    #[test]
    fn a_session_that_is_used_often_pushes_none_out() {
        let sessions = Arc::<Sessions>::default();
        let (one, often) = (SessionId::parse("one").unwrap(), SessionId::parse("often").unwrap());
        let uses = |session: &SessionId, asked| {
            sessions.claim(session, &owner("web:1"), asked).map(|claim| claim.let_in())
        };
        for session in [&one, &often] {
            uses(session, Asked::Yes(None)).unwrap();
        }
        for turn in 0..=IDLE {
            assert_eq!(uses(&often, Asked::No), Ok(()), "{turn}");
        }
        assert_eq!(uses(&one, Asked::No), Ok(()));
        for other in 1..IDLE {
            uses(&SessionId::parse(&format!("s{other}")).unwrap(), Asked::Yes(None)).unwrap();
        }
        assert_eq!(uses(&one, Asked::No), Ok(()), "it was used after the other");
        assert_eq!(uses(&often, Asked::No), Err(NotClaimed::Unknown));
    }

    /// `docs/rules.md#agents-4`
    #[tokio::test]
    async fn how_a_turn_leaves_its_session() {
        use Left::{CutOff, Heard, Refused, Silent, Untouched};
        let cases: [(&[Left], bool); 15] = [
            (&[Untouched], false),
            (&[Heard], true),
            (&[Silent], false),
            (&[CutOff], true),
            (&[CutOff, Refused], false),
            (&[Heard, Silent], true),
            (&[Refused], false),
            (&[Untouched, Refused], false),
            (&[Silent, Refused], true),
            (&[CutOff, Refused, Refused], true),
            (&[Refused, Refused], true),
            (&[Heard, Refused], true),
            (&[Heard, Refused, Heard, Refused], true),
            (&[Heard, Refused, Refused], false),
            (&[Heard, Refused, Refused, Refused], true),
        ];
        for (turns, begun) in cases {
            let session = claim(&Arc::default(), "web:1", Asked::Yes(None)).unwrap();
            let turn = session.turn().await;
            turns.iter().for_each(|left| session.left(&turn, *left));
            assert_eq!(session.is_begun(), begun, "{turns:?}");
        }
        let known = KnownSession { owner: owner("web:1"), begun: false };
        let session = claim(&Arc::default(), "web:1", Asked::Yes(Some(known))).unwrap();
        session.left(&session.turn().await, Refused);
        assert!(session.is_begun(), "it may have been begun before the restart");
    }
}
