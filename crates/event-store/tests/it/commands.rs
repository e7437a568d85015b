//! Commands: decided on what is there, and again where something came between.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_event_store::{
    Append, AppendCondition, AppendError, Decision, EventStore, ExecuteError, Executed, Position,
    ProjectError, Query, Settings, decision, fold,
};
use sluicegate_tasks::{Context, Interrupt, TaskGroup};
use tokio::time::Instant;

use crate::gated::Gated;
use crate::of_course;

/// Subscribes where fewer than so many are.
fn subscribe(seats: u64) -> impl Decision<Error = &'static str> {
    decision(
        || fold::count(Query::types(["Subscribed"]).tag("course", "c1")),
        move |taken| match taken < seats {
            true => Ok(vec![of_course("Subscribed", "c1")]),
            false => Err("the course is full"),
        },
    )
}

fn interloper() -> Append {
    Append::new(vec![of_course("Subscribed", "c1")], None).unwrap()
}

#[tokio::test(start_paused = true)]
async fn it_decides_again_where_something_came_between() {
    let engine = Gated::new();
    let store = EventStore::new(engine.clone());
    engine.intrude([interloper(), interloper(), interloper()]);
    let begun = Instant::now();
    let executed = store.execute(&subscribe(10)).await.unwrap();
    assert_eq!(executed, Executed { position: Some(Position::new(4)), tries: 4 });
    let paused = begun.elapsed();
    let span = Duration::from_millis(1 + 2 + 4)..=Duration::from_millis(2 + 4 + 8 + 3);
    assert!(span.contains(&paused), "pauses grow: {paused:?}");
    // On what came between the decision may be another.
    engine.intrude([interloper()]);
    let refused = store.execute(&subscribe(5)).await;
    assert_eq!(refused, Err(ExecuteError::Refused("the course is full")));
}

#[tokio::test(start_paused = true)]
async fn it_gives_up_after_so_many_tries_or_when_its_time_is_over() {
    let engine = Gated::new();
    let store = EventStore::new(engine.clone());
    engine.intrude((0..3).map(|_| interloper()));
    let given_up = store.execute(&subscribe(99)).tries(3).await;
    assert_eq!(given_up, Err(ExecuteError::Conflict { position: Position::new(3), tries: 3 }));
    engine.intrude((0..1_000).map(|_| interloper()));
    let late = Context::new().with_timeout(Duration::from_secs(1));
    let given_up = store.execute(&subscribe(u64::MAX)).tries(1_000).under(&late).await.unwrap_err();
    let ExecuteError::Interrupted { why: Interrupt::TimedOut, tries } = given_up else {
        panic!("{given_up:?}")
    };
    assert!((9..20).contains(&tries), "{tries}");
    late.cancel();
    let cancelled = store.execute(&subscribe(1)).under(&late).await;
    let why = Interrupt::Cancelled;
    assert_eq!(cancelled, Err(ExecuteError::Interrupted { why, tries: 1 }));
    // Also where it hangs.
    engine.hang_appends();
    let soon = Context::new().with_timeout(Duration::from_secs(1));
    let hung = store.execute(&subscribe(u64::MAX)).under(&soon).await;
    let why = Interrupt::TimedOut;
    assert_eq!(hung, Err(ExecuteError::Interrupted { why, tries: 1 }));
    let hung = store.execute(&subscribe(u64::MAX)).await;
    let timed_out = AppendError::TimedOut { after: Duration::from_secs(5) };
    assert_eq!(hung, Err(ExecuteError::Append(timed_out)));
}

#[tokio::test]
async fn a_decision_may_append_nothing() {
    let store = EventStore::in_memory();
    let nothing = decision(|| fold::exists(Query::all()), |_| Ok::<_, &str>(vec![]));
    let executed = store.execute(&nothing).await;
    assert_eq!(executed, Ok(Executed { position: None, tries: 1 }));
    assert_eq!(store.head().await, Ok(Position::START));
}

#[tokio::test]
async fn what_else_goes_wrong_is_said_at_once() {
    let engine = Gated::new();
    let settings = Settings { max_concurrent_projections: 1, ..Settings::default() };
    let store = EventStore::with_settings(engine.clone(), settings).unwrap();
    store.append([of_course("A", "c1")]).await.unwrap();
    engine.fail_read_after(0);
    let all =
        || decision(|| fold::count(Query::all()), |_| Ok::<_, &str>(vec![of_course("", "c1")]));
    let unread = store.execute(&all()).await;
    assert!(matches!(unread, Err(ExecuteError::Project(ProjectError::Failed(_)))), "{unread:?}");
    let invalid = store.execute(&all()).await;
    assert!(matches!(invalid, Err(ExecuteError::Append(AppendError::Invalid(_)))), "{invalid:?}");
    let held = store.project_stream(fold::count(Query::all()), Position::START).await.unwrap();
    let full = store.execute(&all()).await;
    let Err(ExecuteError::Project(ProjectError::TooManyProjections(too_many))) = full else {
        panic!("{full:?}")
    };
    assert_eq!((too_many.limit, too_many.in_use, too_many.op), (1, 1, "project"));
    drop(held);
}

/// The well-known race, on what everybody has.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_those_who_come_at_once_as_many_get_a_seat_as_there_are() {
    let store = EventStore::in_memory();
    let group = TaskGroup::new("students", 30).unwrap();
    let mut students = Vec::new();
    for _ in 0..30 {
        let store = store.clone();
        let task = group.try_submit(Context::new(), |cx| async move {
            store.execute(&subscribe(7)).under(&cx).tries(100).await
        });
        students.push(task.map_err(|refused| refused.why).unwrap());
    }
    let mut seated = 0;
    for student in students {
        match student.await.unwrap() {
            Ok(executed) => seated += usize::from(executed.position.is_some()),
            Err(error) => assert_eq!(error, ExecuteError::Refused("the course is full")),
        }
    }
    let there = store.query(Query::all(), Position::START, 100).await.unwrap().events.len();
    assert_eq!((seated, there), (7, 7));
}

#[tokio::test]
async fn a_type_of_ones_own_decides_as_closures_do() {
    struct Close(Arc<str>);
    impl Decision for Close {
        type Projections = (fold::Exists, fold::Last);
        type Error = String;
        fn projections(&self) -> Self::Projections {
            let course = || Query::tagged("course", &self.0);
            (fold::exists(course()), fold::last(Query::types(["Closed"]).tag("course", &self.0)))
        }
        fn decide(
            &self,
            (exists, closed): (bool, Option<sluicegate_event_store::Event>),
        ) -> Result<Vec<sluicegate_event_store::NewEvent>, String> {
            match (exists, closed) {
                (false, _) => Err(format!("no course {}", self.0)),
                (true, Some(event)) => Err(format!("closed at {}", event.position())),
                (true, None) => Ok(vec![of_course("Closed", &self.0)]),
            }
        }
    }
    let (store, close) = (EventStore::in_memory(), Close("c1".into()));
    let refused = |error: &str| Err(ExecuteError::Refused(error.to_owned()));
    assert_eq!(store.execute(&close).await, refused("no course c1"));
    let condition = AppendCondition::none(Query::all());
    store.append_if([of_course("Defined", "c1")], condition).await.unwrap();
    assert!(store.execute(&close).await.is_ok());
    assert_eq!(store.execute(&close).await, refused("closed at 2"));
}
