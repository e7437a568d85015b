//! What an exact store may have answered: judged by the log that is left, in the order of its positions.
//!
//! It knows nothing of engines, and matches events by itself. The log is the sequential history: since it only grows,
//!
//! 1. an append that went through is right if and only if nothing before its own first event matches its condition;
//! 2. one that was refused is right if and only if the event it names matches and was asked for before it was answered;
//! 3. what was answered before something else was called stands before it;
//! 4. whatever was read is what the log has there: no reader saw a log in which something was still to come.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate_event_store::{AppendCondition, Event, Position, Query};

use super::history::{Answer, Call, What};

/// What is wrong, in words. `log` is all that came since the round began, in order.
pub(super) fn judge(calls: &[Call], log: &[Event]) -> Vec<String> {
    let mut judge = Judge { log, calls, places: BTreeMap::new(), wrong: Vec::new() };
    judge.find_places();
    for call in calls {
        match &call.what {
            What::Append { events, condition, answer } => {
                judge.batch(call, events.len(), answer);
                judge.condition(call, condition.as_ref(), answer);
            }
            What::Read { query, after, events, next } => {
                judge.read(call, (query, *after), events, *next)
            }
            What::Tail { query, after, events } => judge.tail((query, *after), events),
        }
    }
    judge.order();
    judge.wrong
}

struct Judge<'a> {
    log: &'a [Event],
    calls: &'a [Call],
    /// Where in the log the events of each call stand, and which of its events they are.
    places: BTreeMap<u64, Vec<(usize, u64)>>,
    wrong: Vec<String>,
}

/// Whether a query asks for an event.
fn asks_for(query: &Query, event: &Event) -> bool {
    let tags: BTreeSet<&str> = event.tags().collect();
    let mut asked = query.items().is_empty();
    for item in query.items() {
        let mut of_type = item.event_types().is_empty();
        for event_type in item.event_types() {
            of_type |= event_type == event.event_type();
        }
        let missing = item.all_tags().iter().filter(|tag| !tags.contains(tag.as_str())).count();
        asked |= of_type && missing == 0;
    }
    asked
}

impl Judge<'_> {
    fn find_places(&mut self) {
        for (index, event) in self.log.iter().enumerate() {
            if index > 0 && self.log[index - 1].position() >= event.position() {
                self.wrong.push(format!("positions do not grow at {}", event.position()));
            }
            match event.json::<[u64; 2]>() {
                Ok([call, n]) => self.places.entry(call).or_default().push((index, n)),
                Err(_) => self.wrong.push(format!("nobody appended {event:?}")),
            }
        }
        let known: BTreeSet<u64> = self.calls.iter().map(|call| call.id).collect();
        for call in self.places.keys().filter(|call| !known.contains(call)) {
            self.wrong.push(format!("call {call} is in the log and was never made"));
        }
    }

    fn places_of(&self, call: &Call) -> &[(usize, u64)] {
        self.places.get(&call.id).map_or(&[], Vec::as_slice)
    }

    /// All of it together and in order, or nothing.
    fn batch(&mut self, call: &Call, count: usize, answer: &Answer) {
        let places = self.places_of(call);
        let first = places.first().map_or(0, |(index, _)| *index);
        let together = (first..).zip(0..).take(count).eq(places.iter().copied());
        let last = places.last().map(|(index, _)| self.log[*index].position());
        let is_right = match answer {
            Answer::Appended(position) => together && last == Some(*position),
            Answer::Refused(_) => places.is_empty(),
            Answer::Left | Answer::Failed(_) => together || places.is_empty(),
        };
        if !is_right {
            let found = places.len();
            self.wrong.push(format!(
                "call {}: {answer:?}, and {found} of its {count} events are there, the last at {last:?}",
                call.id
            ));
        }
    }

    fn condition(&mut self, call: &Call, condition: Option<&AppendCondition>, answer: &Answer) {
        if let Answer::Failed(why) = answer {
            self.wrong.push(format!("call {} came to nothing: {why}", call.id));
        }
        if let Answer::Refused(position) = answer {
            if let Some(why) = self.unfounded(call, condition, *position) {
                self.wrong.push(format!("call {} was refused by {position}: {why}", call.id));
            }
            return;
        }
        // It went through, or it may have: then what counts is where it stands.
        let Some((first, _)) = self.places_of(call).first() else { return };
        let Some(condition) = condition else { return };
        let conflicts = |event: &&Event| {
            event.position() > condition.after && asks_for(&condition.fail_if_events_match, event)
        };
        if let Some(conflict) = self.log[..*first].iter().find(conflicts) {
            self.wrong.push(format!(
                "call {} went through at {}, and {} was there: {condition:?}",
                call.id,
                self.log[*first].position(),
                conflict.position()
            ));
        }
    }

    /// Why there was no reason to refuse it.
    fn unfounded(
        &self,
        call: &Call,
        condition: Option<&AppendCondition>,
        position: Position,
    ) -> Option<&'static str> {
        let Some(condition) = condition else { return Some("it had no condition") };
        let Some(event) = self.log.iter().find(|event| event.position() == position) else {
            return Some("nothing is there");
        };
        if position <= condition.after || !asks_for(&condition.fail_if_events_match, event) {
            return Some("that does not match its condition");
        }
        let [writer, _] = event.json::<[u64; 2]>().ok()?;
        (writer > call.answered).then_some("that was not there yet")
    }

    /// What should have been read from after a position to an end, both counted in positions.
    fn asked(&self, (query, after): (&Query, Position), up_to: Position) -> Vec<Position> {
        let within = |event: &&Event| {
            event.position() > after && event.position() <= up_to && asks_for(query, event)
        };
        self.log.iter().filter(within).map(Event::position).collect()
    }

    fn read(
        &mut self,
        call: &Call,
        asked: (&Query, Position),
        events: &[Event],
        next: Option<Position>,
    ) {
        let found: Vec<Position> = events.iter().map(Event::position).collect();
        // Up to where to read on, or to the last event, nothing may be left out.
        let last = found.last().copied().unwrap_or(asked.1);
        let end = next.unwrap_or(last).max(last);
        let expected = self.asked(asked, end);
        if found != expected {
            let id = call.id;
            self.wrong
                .push(format!("call {id} read {found:?}, and up to {end} there is {expected:?}"));
        }
        if next.is_some() {
            return;
        }
        // It said that nothing is left: then nothing was that was answered before it asked.
        for writer in self.calls.iter().filter(|writer| writer.answered < call.called) {
            let What::Append { answer: Answer::Appended(_), .. } = writer.what else { continue };
            let mut left = self.places_of(writer).iter().map(|(index, _)| &self.log[*index]);
            if left.any(|event| event.position() > end && asks_for(asked.0, event)) {
                let (id, missed) = (call.id, writer.id);
                self.wrong.push(format!("call {id} did not read what call {missed} had appended"));
                return;
            }
        }
    }

    fn tail(&mut self, asked: (&Query, Position), events: &[Event]) {
        let found: Vec<Position> = events.iter().map(Event::position).collect();
        let expected = self.asked(asked, Position::new(u64::MAX));
        if found != expected {
            let missed = expected.iter().filter(|position| !found.contains(position)).count();
            self.wrong.push(format!(
                "a tailing reader saw {} of {} events, {missed} missed: {found:?}, not {expected:?}",
                found.len(),
                expected.len()
            ));
        }
    }

    /// What was answered before another was called stands before it.
    fn order(&mut self) {
        // Each call that stands in the log: when it was called and answered, and where it begins.
        let mut placed: Vec<(u64, u64, usize)> = Vec::new();
        for call in self.calls {
            if let Some((first, _)) = self.places_of(call).first() {
                let is_known =
                    matches!(call.what, What::Append { answer: Answer::Appended(_), .. });
                placed.push((call.called, if is_known { call.answered } else { u64::MAX }, *first));
            }
        }
        for (called, _, place) in &placed {
            let before =
                |(_, answered, other): &&(u64, u64, usize)| answered < called && other > place;
            if let Some((other, ..)) = placed.iter().find(before) {
                let found =
                    format!("call {other} was answered before call {called}, and stands behind it");
                self.wrong.push(found);
            }
        }
    }
}
