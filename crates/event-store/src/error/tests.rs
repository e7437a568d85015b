//! Every error, and what it says to whoever gets it.
//!
//! `docs/rules.md#events-7`.

use super::*;

fn invalid() -> Invalid {
    Invalid { field: "events[0].type".to_owned(), message: "0 characters".to_owned() }
}

fn down() -> EngineError {
    EngineError::new("disk full")
}

const FIVE: Duration = Duration::from_secs(5);
const SEVEN: Position = Position::new(7);

#[test]
fn every_error_says_what_happened_and_what_to_do() {
    let too_many = TooManyProjections { limit: 100, in_use: 101, op: "project_stream" };
    let refused = |error: ExecuteError<&str>| error.to_string();
    let cases = [
        (AppendError::Invalid(invalid()).to_string(), "events[0].type: 0 characters"),
        (
            AppendError::Conflict { position: SEVEN }.to_string(),
            "an event that matches the condition is there, at position 7: read again and decide again",
        ),
        (
            AppendError::TimedOut { after: FIVE }.to_string(),
            "the events were not appended within 5s, or nobody heard of it: append them again under the \
             same condition",
        ),
        (AppendError::Failed(down()).to_string(), "the event store does not work: disk full"),
        (ReadError::Invalid(invalid()).to_string(), "events[0].type: 0 characters"),
        (
            ReadError::TimedOut { after: FIVE }.to_string(),
            "the events were not read within 5s: ask for fewer, or again later",
        ),
        (ReadError::Failed(down()).to_string(), "the event store does not work: disk full"),
        (
            ProjectError::TooManyProjections(too_many).to_string(),
            "project_stream: too many projections, 101 of 100: wait for one, or try again later",
        ),
        (
            ProjectError::Unapplied { position: SEVEN, cause: "no seats".to_owned() }.to_string(),
            "the event at position 7 could not be applied: no seats",
        ),
        (
            ProjectError::Panicked { message: "oh".to_owned() }.to_string(),
            "a projection panicked: oh",
        ),
        (
            ProjectError::from(ReadError::TimedOut { after: FIVE }).to_string(),
            "the projection was not done within 5s: begin at a later position, or project a stream",
        ),
        (
            ProjectError::from(ReadError::from(down())).to_string(),
            "the event store does not work: disk full",
        ),
        (ProjectError::from(invalid()).to_string(), "events[0].type: 0 characters"),
        (refused(ExecuteError::Refused("the course is full")), "the course is full"),
        (
            refused(ExecuteError::Conflict { position: SEVEN, tries: 3 }),
            "something came between each of 3 times, at position 7 the last: try again later",
        ),
        (
            refused(ExecuteError::Project(ProjectError::Failed(down()))),
            "the event store does not work: disk full",
        ),
        (refused(ExecuteError::Append(AppendError::Invalid(invalid()))), &invalid().to_string()),
        (
            refused(ExecuteError::Interrupted { why: Interrupt::TimedOut, tries: 2 }),
            "timed out at try 2: the events may be there, decide again to know",
        ),
    ];
    for (said, expected) in cases {
        assert_eq!(said, expected);
    }
}
