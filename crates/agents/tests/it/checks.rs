//! What must hold of what scripted agents did, whoever let them do it.

use std::collections::HashMap;
use std::time::Duration;

use sluicegate_agents::scripted::{Did, Entry};
use tokio::time::Instant;

/// A turn, as the agent saw it: from when it was asked until it answered or was gone.
#[derive(Clone, Debug)]
pub(crate) struct TurnSeen {
    pub(crate) session: String,
    pub(crate) pid: u32,
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

pub(crate) fn turns(log: &[Entry]) -> Vec<TurnSeen> {
    let mut turns = Vec::new();
    let mut open: HashMap<u32, (String, Instant)> = HashMap::new();
    for Entry { at, pid, what } in log {
        match what {
            Did::Asked { session, .. } => {
                let before = open.insert(*pid, (session.clone(), *at));
                assert!(before.is_none(), "two turns at once on {pid}: {before:?}");
            }
            Did::Answered { .. } | Did::Gone => {
                if let Some((session, from)) = open.remove(pid) {
                    turns.push(TurnSeen { session, pid: *pid, from, to: *at });
                }
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "turns without an end: {open:?}");
    turns
}

/// When a program was gone.
fn gone(log: &[Entry], pid: u32) -> Option<Instant> {
    log.iter().find(|entry| entry.pid == pid && entry.what == Did::Gone).map(|entry| entry.at)
}

/// How long each program was there.
fn lives(log: &[Entry]) -> Vec<(Instant, Option<Instant>)> {
    let spawned = log.iter().filter(|entry| matches!(entry.what, Did::Spawned { .. }));
    spawned.map(|entry| (entry.at, gone(log, entry.pid))).collect()
}

pub(crate) fn nothing_is_left(log: &[Entry]) {
    assert!(lives(log).iter().all(|(_, gone)| gone.is_some()), "{log:?}");
}

/// Paper 001, invariant 1.
pub(crate) fn never_more_programs_than(log: &[Entry], max: usize) {
    let lives = lives(log);
    for (at, _) in &lives {
        let there =
            |(from, to): &&(Instant, Option<Instant>)| from <= at && to.is_none_or(|to| to > *at);
        let count = lives.iter().filter(there).count();
        assert!(count <= max, "{count} programs at once");
    }
}

/// Paper 001, invariant 6.
pub(crate) fn never_more_starts_than(log: &[Entry], max: usize, span: Duration) {
    let asked = log.iter().filter(|entry| matches!(entry.what, Did::Asked { .. }));
    let starts: Vec<Instant> = asked.map(|entry| entry.at).collect();
    for (index, start) in starts.iter().enumerate() {
        let within = starts[index..].iter().take_while(|at| **at < *start + span).count();
        assert!(within <= max, "{within} starts within {span:?}");
    }
}

/// No two turns of a session overlap, and none begins while a program that had one before is still there.
pub(crate) fn sessions_never_overlap(log: &[Entry]) {
    let mut of_session: HashMap<String, Vec<TurnSeen>> = HashMap::new();
    for turn in turns(log) {
        of_session.entry(turn.session.clone()).or_default().push(turn);
    }
    for turns in of_session.values_mut() {
        turns.sort_by_key(|turn| turn.from);
        for pair in turns.windows(2) {
            let [before, after] = pair else { continue };
            assert!(before.to <= after.from, "{pair:?}");
            let was_gone = gone(log, before.pid).is_some_and(|gone| gone <= after.from);
            assert!(before.pid == after.pid || was_gone, "its program is still there: {pair:?}");
        }
    }
}

/// Of each tenant, whose sessions begin with its name and a `-`, no more turns at once. What was cut off may have had its
/// turn for longer than it ran.
pub(crate) fn never_more_of_a_tenant_than(log: &[Entry], max: usize) {
    let turns = turns(log);
    let tenant = |turn: &TurnSeen| turn.session.split('-').next().unwrap_or_default().to_owned();
    for turn in &turns {
        let at_once = |other: &&TurnSeen| {
            let is_there = other.from <= turn.from && turn.from < other.to;
            is_there && tenant(other) == tenant(turn)
        };
        let count = turns.iter().filter(at_once).count();
        assert!(count <= max, "{count} turns of {} at once", tenant(turn));
    }
}

/// Of each session, the prompts as they were heard.
pub(crate) fn prompts_by_session(log: &[Entry]) -> HashMap<String, Vec<String>> {
    let mut all: HashMap<String, Vec<String>> = HashMap::new();
    for entry in log {
        if let Did::Asked { session, prompt } = &entry.what {
            all.entry(session.clone()).or_default().push(prompt.clone());
        }
    }
    all
}
