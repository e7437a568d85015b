//! What must not be, from what the agents did and what the callers heard.
//!
//! | oracle | must not be |
//! |---|---|
//! | lost | a request without an end |
//! | twice | one that an agent heard twice, unless it may be repeated and its agent said nothing |
//! | overlap | two turns of a session at once, or two of a program |
//! | limits | more programs, turns of a tenant, or starts in a second than may be |
//! | order | of one session and priority, a later one before an earlier one |
//! | left | a program that is still there |

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_agents::scripted::{Did, Entry};
use sluicegate_agents::{Mode, Outcome, Priority, RequestError, Settings};
use tokio::time::Instant;

use crate::oracles::Broken;
use crate::trace::Trace;

const SECOND: Duration = Duration::from_secs(1);

/// A request that was let in.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: Arc<str>,
    pub(super) session: String,
    pub(super) prompt: String,
    pub(super) priority: Priority,
    pub(super) may_come_twice: bool,
}

/// A turn as its agent saw it.
#[derive(Debug)]
struct TurnSeen {
    session: String,
    prompt: String,
    from: Instant,
    /// Until it answered; where a program ends with its turn, until that is gone.
    to: Instant,
    answered: bool,
}

#[derive(Debug)]
pub(super) struct Watch {
    began: Instant,
    mode: Mode,
    log: Vec<Entry>,
    turns: Vec<TurnSeen>,
}

fn broken(oracle: &'static str, message: String) -> Result<(), Broken> {
    Err(Broken::new(oracle, message))
}

/// Never more starts in any second than may be.
pub(super) fn rate(starts: &[Instant], max: u32) -> Result<(), Broken> {
    for (index, start) in starts.iter().enumerate() {
        let within = starts[index..].iter().take_while(|next| **next < *start + SECOND).count();
        if within > max as usize {
            return broken("limits", format!("{within} starts in a second, of {max}"));
        }
    }
    Ok(())
}

impl Watch {
    pub(super) fn new(began: Instant, log: Vec<Entry>, mode: Mode) -> Self {
        let mut watch = Self { began, mode, log, turns: Vec::new() };
        watch.turns = watch.seen();
        watch
    }

    fn seen(&self) -> Vec<TurnSeen> {
        let mut turns: Vec<TurnSeen> = Vec::new();
        let mut open: HashMap<u32, usize> = HashMap::new();
        for Entry { at, pid, what } in &self.log {
            match what {
                Did::Asked { session, prompt } => {
                    open.insert(*pid, turns.len());
                    let (session, prompt) = (session.clone(), prompt.clone());
                    turns.push(TurnSeen { session, prompt, from: *at, to: *at, answered: false });
                }
                Did::Answered { .. } => {
                    let Some(index) = open.get(pid) else { continue };
                    (turns[*index].to, turns[*index].answered) = (*at, true);
                    if self.mode == Mode::Persistent {
                        open.remove(pid);
                    }
                }
                Did::Gone => {
                    if let Some(index) = open.remove(pid) {
                        turns[index].to = *at;
                    }
                }
                _ => {}
            }
        }
        turns
    }

    /// Notes what the programs did. Sessions that were made up are other ones each time, so they are left out.
    pub(super) fn note(&self, trace: &mut Trace) {
        for Entry { at, pid, what } in &self.log {
            let nanos = u64::try_from((*at - self.began).as_nanos()).unwrap_or(u64::MAX);
            match what {
                Did::Spawned { .. } => trace.note(nanos, format_args!("{pid} spawned")),
                Did::Asked { prompt, .. } => {
                    trace.note(nanos, format_args!("{pid} asked {prompt}"))
                }
                other => trace.note(nanos, format_args!("{pid} {other:?}")),
            }
        }
    }

    pub(super) fn starts(&self) -> u64 {
        self.turns.len() as u64
    }

    /// What a caller heard fits what its agent saw.
    pub(super) fn outcome(
        &self,
        asked: &Asked,
        outcome: &Outcome,
        trace: &mut Trace,
    ) -> Result<(), Broken> {
        let Asked { prompt, may_come_twice, .. } = asked;
        let turns: Vec<&TurnSeen> =
            self.turns.iter().filter(|turn| turn.prompt == *prompt).collect();
        let heard = match outcome {
            Ok(reply) => format!("{} ms, {} ms", reply.queue_wait_ms, reply.execution_ms),
            Err(error) => error.code().to_owned(),
        };
        for turn in &turns {
            let (from, took) = (turn.from - self.began, turn.to - turn.from);
            let nanos = u64::try_from(from.as_nanos()).unwrap_or(u64::MAX);
            trace.note(nanos, format_args!("{prompt}: {heard}, {took:?}"));
        }
        let answered = |turn: &&&TurnSeen| turn.answered;
        let again = turns.len() == 2 && *may_come_twice && !turns[0].answered;
        if turns.len() > 1 && !again {
            return broken("twice", format!("{prompt} ran {} times: {turns:?}", turns.len()));
        }
        match outcome {
            Ok(reply) if turns.iter().filter(answered).count() != 1 || reply.text != *prompt => {
                broken("lost", format!("{prompt} has a reply that is not its own: {reply:?}"))
            }
            Err(RequestError::QueueTimeout { .. }) if !turns.is_empty() && !may_come_twice => {
                broken("twice", format!("{prompt} ran, and is said not to have: {turns:?}"))
            }
            Err(RequestError::Internal { .. } | RequestError::Interrupted) => {
                broken("lost", format!("{prompt}: {outcome:?}"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn limits(&self, most: u32, settings: &Settings) -> Result<(), Broken> {
        let mut there: HashMap<u32, Instant> = HashMap::new();
        for Entry { at, pid, what } in &self.log {
            match what {
                Did::Spawned { .. } => drop(there.insert(*pid, *at)),
                Did::Gone => drop(there.remove(pid)),
                _ => {}
            }
            if there.len() > most as usize {
                return broken("limits", format!("{} programs of {most}: {there:?}", there.len()));
            }
        }
        if !there.is_empty() {
            return broken("left", format!("{there:?}"));
        }
        for (index, turn) in self.turns.iter().enumerate() {
            let max = settings.tenant_limits.max_concurrent_requests as usize;
            let tenant = |turn: &TurnSeen| turn.session.split('-').next().map(str::to_owned);
            let beside = self.turns[..index]
                .iter()
                .filter(|other| tenant(other) == tenant(turn) && other.to > turn.from);
            let count = beside.count() + 1;
            if count > max {
                return broken("limits", format!("{count} turns of a tenant at once, of {max}"));
            }
        }
        Ok(())
    }

    pub(super) fn order(&self, asked: &[Asked]) -> Result<(), Broken> {
        for (index, turn) in self.turns.iter().enumerate() {
            let before = self.turns[..index].iter().filter(|other| other.session == turn.session);
            if let Some(other) = before.clone().find(|other| other.to > turn.from) {
                return broken("overlap", format!("{other:?} and {turn:?}"));
            }
        }
        let first = |asked: &Asked| self.turns.iter().position(|turn| turn.prompt == asked.prompt);
        let mut last: HashMap<(&str, Priority), (usize, &str)> = HashMap::new();
        for one in asked {
            let Some(at) = first(one) else { continue };
            let key = (one.session.as_str(), one.priority);
            if let Some((before, prompt)) = last.insert(key, (at, &one.prompt))
                && before > at
            {
                return broken("order", format!("{} ran before {prompt}", one.prompt));
            }
        }
        Ok(())
    }
}
