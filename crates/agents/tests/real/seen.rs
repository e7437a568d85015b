//! What agents saw: the lines that they wrote, and what must hold of them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A turn as the agent saw it, in microseconds of the machine's clock. One that was killed has no end.
#[derive(Clone, Debug)]
pub(crate) struct TurnSeen {
    pub(crate) session: String,
    pub(crate) prompt: String,
    pub(crate) from: u64,
    pub(crate) to: Option<u64>,
}

/// All turns, in the order in which they began.
pub(crate) fn turns(folder: &Path) -> Vec<TurnSeen> {
    let lines = fs::read_to_string(folder.join("turns")).unwrap_or_default();
    let mut turns: Vec<TurnSeen> = Vec::new();
    let mut open: HashMap<String, usize> = HashMap::new();
    for line in lines.lines() {
        let mut parts = line.splitn(5, ' ');
        let mut part = || parts.next().unwrap_or_else(|| panic!("half a line: {line}")).to_owned();
        let (at, what, pid, session, prompt) = (part(), part(), part(), part(), part());
        let at = at.parse().expect("a number of microseconds");
        if what == "begin" {
            open.insert(pid, turns.len());
            turns.push(TurnSeen { session, prompt, from: at, to: None });
        } else {
            let begun = open.remove(&pid).expect("it has begun");
            turns[begun].to = Some(at);
        }
    }
    turns.sort_by_key(|turn| turn.from);
    turns
}

/// How many turns there were at once, at most.
pub(crate) fn most_at_once(turns: &[TurnSeen]) -> usize {
    let at = |at: u64| turns.iter().filter(|turn| turn.from <= at && turn.to > Some(at)).count();
    turns.iter().map(|turn| at(turn.from)).max().unwrap_or(0)
}

/// From the beginning of the first to the end of the last.
pub(crate) fn span(turns: &[TurnSeen]) -> Duration {
    let from = turns.iter().map(|turn| turn.from).min().expect("a turn");
    let to = turns.iter().filter_map(|turn| turn.to).max().expect("one that ended");
    Duration::from_micros(to - from)
}

/// Each session: one at a time, and its prompts in the order in which they were asked.
pub(crate) fn check_sessions(turns: &[TurnSeen], asked: &HashMap<String, Vec<String>>) {
    let mut seen: HashMap<String, Vec<&TurnSeen>> = HashMap::new();
    for turn in turns {
        seen.entry(turn.session.clone()).or_default().push(turn);
    }
    assert_eq!(seen.len(), asked.len(), "sessions");
    for (session, turns) in seen {
        for pair in turns.windows(2) {
            assert!(pair[0].to.is_some_and(|to| to <= pair[1].from), "they overlap: {pair:?}");
        }
        let prompts: Vec<&String> = turns.iter().map(|turn| &turn.prompt).collect();
        assert_eq!(prompts, asked[&session].iter().collect::<Vec<_>>(), "order of {session}");
    }
}

/// Now, by the clock of the agents.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock");
    u64::try_from(now.tv_sec() * 1_000_000 + now.tv_nsec() / 1_000).expect("a time")
}
