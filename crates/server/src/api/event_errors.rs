//! From what the event store says to what a caller is told.

use sluicegate_dispatch::SourceError;
use sluicegate_event_store::{
    AppendError, EngineError, Invalid, ProjectError, ReadError, TooManyProjections,
};

use super::problem::{Code, Problem};
use crate::event_log::EventsNotOpen;

/// How soon to come again where a projection found no room.
const SOON: u64 = 1;

impl From<EventsNotOpen> for Problem {
    fn from(error: EventsNotOpen) -> Self {
        let problem = Self::from(SourceError::new(&error.cause));
        Self { detail: format!("the event store is not open: {error}"), ..problem }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        Self::field(&invalid.field, invalid.message)
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        SourceError::new(&error.cause).into()
    }
}

impl From<AppendError> for Problem {
    fn from(error: AppendError) -> Self {
        let detail = error.to_string();
        match error {
            AppendError::Invalid(invalid) => invalid.into(),
            AppendError::Conflict { position } => {
                Self::new(Code::AppendConditionFailed, detail).with("position", position.get())
            }
            AppendError::TimedOut { .. } => Self::new(Code::EventsTimedOut, detail),
            AppendError::Failed(error) => error.into(),
            _ => Self::new(Code::Internal, "the events were not appended"),
        }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        let detail = error.to_string();
        match error {
            ReadError::Invalid(invalid) => invalid.into(),
            ReadError::TimedOut { .. } => Self::new(Code::EventsTimedOut, detail),
            ReadError::Failed(error) => error.into(),
            _ => Self::new(Code::Internal, "the events were not read"),
        }
    }
}

impl From<ProjectError> for Problem {
    fn from(error: ProjectError) -> Self {
        let detail = error.to_string();
        match error {
            ProjectError::Invalid(invalid) => invalid.into(),
            ProjectError::TooManyProjections(TooManyProjections { limit, in_use, .. }) => {
                let problem = Self::new(Code::TooManyProjections, detail);
                let problem = problem.with("limit", limit).with("inUse", in_use);
                Self { retry_after: Some(SOON), ..problem }
            }
            ProjectError::Unapplied { position, .. } => {
                Self::new(Code::FoldFailed, detail).with("position", position.get())
            }
            ProjectError::TimedOut { .. } => Self::new(Code::EventsTimedOut, detail),
            ProjectError::Failed(error) => error.into(),
            _ => Self::new(Code::Internal, "there is no state"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use sluicegate_event_store::Position;

    use super::*;

    #[test]
    fn every_error_has_its_problem() {
        let at = Position::new(7);
        let after = Duration::from_secs(1);
        let engine = |cause: &str| EngineError::new(cause);
        let invalid = || Invalid { field: "items[0]".to_owned(), message: "x".to_owned() };
        let too_many = TooManyProjections { limit: 100, in_use: 100, op: "project" };
        let unapplied = ProjectError::Unapplied { position: at, cause: "x".to_owned() };
        let panicked = ProjectError::Panicked { message: "x".to_owned() };
        let closed = EventsNotOpen { cause: "x".to_owned() };
        let table: [(Problem, u16, &str); 14] = [
            (closed.into(), 503, "storage_failed"),
            (AppendError::Invalid(invalid()).into(), 422, "invalid_field"),
            (AppendError::Conflict { position: at }.into(), 409, "append_condition_failed"),
            (AppendError::TimedOut { after }.into(), 504, "events_timed_out"),
            (AppendError::Failed(engine("x")).into(), 503, "storage_failed"),
            (AppendError::Failed(engine("the disk is full")).into(), 507, "storage_full"),
            (ReadError::Invalid(invalid()).into(), 422, "invalid_field"),
            (ReadError::TimedOut { after }.into(), 504, "events_timed_out"),
            (ReadError::Failed(engine("x")).into(), 503, "storage_failed"),
            (ProjectError::TooManyProjections(too_many).into(), 429, "too_many_projections"),
            (unapplied.into(), 422, "fold_failed"),
            (panicked.into(), 500, "internal"),
            (ProjectError::TimedOut { after }.into(), 504, "events_timed_out"),
            (ProjectError::Failed(engine("x")).into(), 503, "storage_failed"),
        ];
        for (problem, status, code) in table {
            let json = problem.to_json();
            assert_eq!((&json["status"], &json["code"]), (&json!(status), &json!(code)));
        }
        let json = Problem::from(ProjectError::TooManyProjections(too_many)).to_json();
        assert_eq!((&json["limit"], &json["inUse"]), (&json!(100), &json!(100)));
    }
}
