//! Many who want the same at the same time. Each is a task, as the requests of a service are.

use std::error::Error;

use sluicegate::events::{EventStore, ExecuteError, Position, Query, fold};
use sluicegate::tasks::{Context, TaskGroup};

use crate::{DefineCourse, MOST_COURSES, Refusal, Subscribe};

/// How many race.
const RACERS: u32 = 20;
/// How often one tries again that somebody else was faster than. In the worst case each of the others is once.
const TRIES: u32 = 10 * RACERS;

/// What became of those who raced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How many subscribed.
    pub subscribed: u32,
    /// Why the others did not.
    pub refused: Vec<Refusal>,
    /// How many subscriptions the events tell of.
    pub told: u64,
}

type Failure = Box<dyn Error + Send + Sync>;

/// Twenty students, and a course with five seats.
///
/// # Errors
/// The store does not work.
pub async fn for_seats(store: &EventStore) -> Result<Outcome, Failure> {
    let course = new(store, "course").await?;
    define(store, &course, 5).await?;
    let racers = (0..RACERS).map(|n| (format!("{course}-racer-{n}"), course.clone()));
    let told = Query::types(["StudentSubscribed"]).tag("course", &course);
    race(store, racers.collect(), told).await
}

/// One student, who subscribes to one course twenty times at once.
///
/// # Errors
/// The store does not work.
pub async fn with_oneself(store: &EventStore) -> Result<Outcome, Failure> {
    let (student, course) = (new(store, "student").await?, new(store, "course").await?);
    define(store, &course, RACERS).await?;
    let racers = (0..RACERS).map(|_| (student.clone(), course.clone()));
    let told = Query::types(["StudentSubscribed"]).tag("student", &student);
    race(store, racers.collect(), told).await
}

/// One student, who subscribes to twenty courses at once and may take three.
///
/// # Errors
/// The store does not work.
pub async fn for_courses(store: &EventStore) -> Result<Outcome, Failure> {
    let student = new(store, "student").await?;
    let mut racers = Vec::new();
    for n in 0..RACERS {
        let course = format!("{student}-course-{n}");
        define(store, &course, 1).await?;
        racers.push((student.clone(), course));
    }
    let told = Query::types(["StudentSubscribed"]).tag("student", &student);
    race(store, racers, told).await
}

/// What must come of each race, whoever wins.
#[must_use]
pub fn expected() -> [Outcome; 3] {
    let of = |subscribed: u32, refusal: Refusal| Outcome {
        subscribed,
        refused: vec![refusal; (RACERS - subscribed) as usize],
        told: u64::from(subscribed),
    };
    [
        of(5, Refusal::CourseFull { seats: 5 }),
        of(1, Refusal::SubscribedAlready),
        of(MOST_COURSES as u32, Refusal::TooManyCourses),
    ]
}

/// A name that nobody has yet, for the log may be one that was raced on before.
async fn new(store: &EventStore, what: &str) -> Result<String, Failure> {
    Ok(format!("{what}-{}", store.head().await?))
}

async fn define(store: &EventStore, course: &str, seats: u32) -> Result<(), Failure> {
    let define = DefineCourse { course: course.to_owned(), seats };
    Ok(store.execute(&define).await.map(drop)?)
}

async fn race(
    store: &EventStore,
    racers: Vec<(String, String)>,
    told: Query,
) -> Result<Outcome, Failure> {
    let group = TaskGroup::new("racers", RACERS)?;
    let mut racing = Vec::new();
    for (student, course) in racers {
        let store = store.clone();
        let run = move |cx: Context| async move {
            let subscribe = Subscribe { student, course };
            store.execute(&subscribe).under(&cx).tries(TRIES).await
        };
        racing.push(group.submit(Context::new(), run).await.map_err(|refused| refused.why)?);
    }
    let mut outcome = Outcome::default();
    for racer in racing {
        match racer.await? {
            Ok(_) => outcome.subscribed += 1,
            Err(ExecuteError::Refused(refusal)) => outcome.refused.push(refusal),
            Err(error) => return Err(error.into()),
        }
    }
    (outcome.told, _) = store.project(fold::count(told), Position::START).await?;
    Ok(outcome)
}
