//! Detached tasks: named, listed, one of a name at a time, under the service's own context.

use sluicegate_tasks::{
    Context, GroupOverload as Overload, Interrupt, Refusal, TaskError, TaskGroup,
};
use tokio::sync::oneshot;

use crate::probe::{Busy, ByHand, Guard, settle};

fn names(group: &TaskGroup) -> Vec<String> {
    group.running().into_iter().map(|one| one.name).collect()
}

#[tokio::test(start_paused = true)]
async fn they_run_under_the_services_context_and_end_with_it() {
    let service = Context::new();
    let group = TaskGroup::builder("service", 2).service_context(service.clone()).build().unwrap();
    let task = group.submit_detached("sweeper", |cx| async move { cx.cancelled().await });
    let task = task.await.unwrap();
    settle().await;
    assert_eq!(names(&group), ["sweeper"]);
    service.cancel();
    assert_eq!(task.await, Ok(Interrupt::Cancelled));
    assert!(names(&group).is_empty());
    let refused = group.submit_detached("sweeper", |cx| async move { cx.check() }).await;
    assert_eq!(refused.unwrap_err().why, Refusal::Interrupted(Interrupt::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn a_name_is_taken_while_its_task_is_there_and_free_afterwards() {
    let group = TaskGroup::new("group", 4).unwrap();
    let (release, released) = oneshot::channel::<()>();
    let first = group.submit_detached("sweeper", |cx| async move {
        released.await.unwrap();
        cx.check()
    });
    let first = first.await.unwrap();
    let (guard, dropped) = Guard::new();
    let second = group.submit_detached("sweeper", |cx| async move {
        drop(guard);
        cx.check()
    });
    let refused = second.await.unwrap_err();
    assert_eq!(refused.why, Refusal::NameTaken { name: "sweeper".to_owned() });
    assert_eq!(refused.to_string(), "a detached task named \"sweeper\" is still there");
    assert_eq!(dropped.get(), 0);
    let other = group.submit_detached("rescuer", |cx| async move { cx.check() }).await.unwrap();
    assert_eq!(other.await, Ok(Ok(())));
    release.send(()).unwrap();
    assert_eq!(first.await, Ok(Ok(())));
    let again = group.submit_detached("sweeper", refused.work).await.unwrap();
    assert_eq!((again.await, dropped.get()), (Ok(Ok(())), 1));
}

#[tokio::test(start_paused = true)]
async fn a_name_is_free_again_however_its_task_ended() {
    let group = TaskGroup::builder("group", 1).overload(Overload::Queue { capacity: 1 });
    let group = group.build().unwrap();
    let panics = group.submit_detached("sweeper", |cx| async move {
        cx.check().unwrap();
        panic!("swept too far")
    });
    let panics: Result<(), _> = panics.await.unwrap().await;
    assert!(matches!(panics, Err(TaskError::Panicked(_))));
    let busy = Busy::all_of(&group).await;
    let queued = group.submit_detached("sweeper", |cx| async move { cx.check() }).await.unwrap();
    let refused = group.submit_detached("sweeper", |cx| async move { cx.check() }).await;
    assert!(matches!(refused.unwrap_err().why, Refusal::NameTaken { .. }), "taken by one in line");
    let refused = group.submit_detached("rescuer", |cx| async move { cx.check() }).await;
    assert_eq!(refused.unwrap_err().why, Refusal::QueueFull { queued: 1, capacity: 1 });
    busy.end().await;
    assert_eq!(queued.await, Ok(Ok(())));
    for name in ["sweeper", "rescuer"] {
        let task = group.submit_detached(name, |cx| async move { cx.check() }).await.unwrap();
        assert_eq!(task.await, Ok(Ok(())), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_is_free_again_when_its_submitter_stops_waiting() {
    let group = TaskGroup::new("group", 1).unwrap();
    let busy = Busy::all_of(&group).await;
    let mut waits = ByHand::new(group.submit_detached("sweeper", |cx| async move { cx.check() }));
    assert!(waits.poll().is_none());
    drop(waits);
    busy.end().await;
    let task = group.submit_detached("sweeper", |cx| async move { cx.check() }).await.unwrap();
    assert_eq!(task.await, Ok(Ok(())));
}

#[tokio::test(start_paused = true)]
async fn the_same_name_in_two_groups_is_two_names() {
    let groups = [TaskGroup::new("one", 1).unwrap(), TaskGroup::new("other", 1).unwrap()];
    for group in &groups {
        let task = group.submit_detached("sweeper", |cx| async move { cx.cancelled().await });
        drop(task.await.unwrap());
    }
    settle().await;
    assert!(groups.iter().all(|group| names(group) == ["sweeper"]));
}
