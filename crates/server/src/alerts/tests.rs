//! Which notices are owed, step by step.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::Severity;
use tokio::time::{Instant, advance};

use super::notices::{Next, Notice, Notices};
use crate::time::Wall;
use crate::warnings::{Code, Raised, Warnings};

const EVERY: Duration = Duration::from_secs(300);

struct Scene {
    warnings: Warnings,
    notices: Notices,
}

impl Scene {
    fn new() -> Self {
        Self { warnings: Warnings::new(Arc::new(Wall)), notices: Notices::new(EVERY) }
    }

    fn raise(&self, severity: Severity, subject: &str) -> u64 {
        self.warnings.raise(Raised::new(Code::SourceDown, severity, subject, "words"));
        let all = self.warnings.list(None, None, 10_000).items;
        all.iter().find(|warning| *warning.subject == *subject).expect("it is there").id
    }

    fn next(&mut self) -> Next {
        self.notices.look(self.warnings.at_least(Severity::Info));
        self.notices.next(Instant::now())
    }

    fn notice(&mut self) -> Notice {
        match self.next() {
            Next::Send(notice) => *notice,
            Next::Wait(until) => panic!("nothing is to be sent before {until:?}"),
        }
    }

    /// All that is to be sent now, and taken.
    fn sent(&mut self) -> Vec<String> {
        let mut sent = Vec::new();
        while let Next::Send(notice) = self.next() {
            sent.push(words(&notice));
            self.notices.taken(&notice, Instant::now());
        }
        sent
    }
}

fn words(notice: &Notice) -> String {
    let body = &notice.body;
    let over = if body["resolved"] == true { " over" } else { "" };
    format!("{} {}{over}", body["subject"].as_str().unwrap(), body["count"])
}

#[tokio::test(start_paused = true)]
async fn a_matter_is_told_once_when_it_begins_and_once_when_it_is_over() {
    let mut scene = Scene::new();
    scene.raise(Severity::Warning, "a");
    assert_eq!(scene.sent(), ["a 1"]);
    scene.raise(Severity::Warning, "a");
    assert_eq!(scene.sent(), [""; 0], "not yet again");
    advance(EVERY).await;
    assert_eq!(scene.sent(), ["a 2"]);
    advance(EVERY).await;
    assert_eq!(scene.sent(), [""; 0], "it did not happen again");
    scene.warnings.resolve(Code::SourceDown, "a");
    assert_eq!(scene.sent(), ["a 2 over"]);
    advance(EVERY).await;
    assert_eq!(scene.sent(), [""; 0]);
    // It begins anew, and again at once.
    scene.raise(Severity::Warning, "a");
    assert_eq!(scene.sent(), ["a 3"]);
    scene.warnings.resolve(Code::SourceDown, "a");
    assert_eq!(scene.sent(), ["a 3 over"]);
    scene.raise(Severity::Warning, "a");
    assert_eq!(scene.sent(), [""; 0], "told a moment ago");
    advance(Duration::from_secs(60)).await;
    assert_eq!(scene.sent(), ["a 4"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_over_for_those_who_heard_of_it() {
    let mut scene = Scene::new();
    let told = scene.raise(Severity::Error, "told");
    assert_eq!(scene.sent(), ["told 1"]);
    let untold = scene.raise(Severity::Error, "untold");
    for id in [told, untold] {
        scene.warnings.remove(id).expect("it is there");
    }
    assert_eq!(scene.sent(), ["told 1 over"]);
    assert_eq!(scene.next(), Next::Wait(None));
    // Over before it could be told of: both are told, in order.
    scene.raise(Severity::Error, "short");
    scene.warnings.resolve(Code::SourceDown, "short");
    assert_eq!(scene.sent(), ["short 1", "short 1 over"]);
}

#[tokio::test(start_paused = true)]
async fn what_somebody_has_taken_note_of_is_not_told_but_its_end_is() {
    let mut scene = Scene::new();
    let told = scene.raise(Severity::Error, "told");
    assert_eq!(scene.sent(), ["told 1"]);
    let untold = scene.raise(Severity::Error, "untold");
    for id in [told, untold] {
        scene.warnings.acknowledge(id).expect("it is there");
    }
    scene.raise(Severity::Error, "told");
    advance(EVERY).await;
    assert_eq!(scene.sent(), [""; 0]);
    scene.warnings.resolve(Code::SourceDown, "told");
    scene.warnings.resolve(Code::SourceDown, "untold");
    assert_eq!(scene.sent(), ["told 2 over"]);
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_and_one_that_is_never_taken_holds_up_no_other() {
    let mut scene = Scene::new();
    scene.raise(Severity::Critical, "poison");
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let notice = scene.notice();
        let pause = scene.notices.refused(&notice, Instant::now(), 0.5);
        assert_eq!(scene.next(), Next::Wait(Some(Instant::now() + pause)));
        pauses.push(pause.as_secs());
        advance(pause).await;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    scene.raise(Severity::Warning, "sound");
    assert_eq!(words(&scene.notice()), "sound 1", "the least tried goes first");
    let sound = scene.notice();
    scene.notices.taken(&sound, Instant::now());
    let poison = scene.notice();
    assert_eq!(scene.notices.refused(&poison, Instant::now(), 0.0).as_millis(), 750);
    scene.raise(Severity::Warning, "later");
    advance(Duration::from_millis(750)).await;
    assert_eq!(scene.sent(), ["later 1"]);
}

/// Refuses what is to be sent, again and again, and waits in between.
async fn refuse(scene: &mut Scene, times: usize) -> Vec<String> {
    let mut refused = Vec::new();
    for _ in 0..times {
        let notice = scene.notice();
        refused.push(words(&notice));
        let pause = scene.notices.refused(&notice, Instant::now(), 0.5);
        advance(pause).await;
    }
    refused
}

#[tokio::test(start_paused = true)]
async fn what_is_critical_and_new_does_not_wait_for_a_long_pause() {
    let mut scene = Scene::new();
    scene.raise(Severity::Critical, "known");
    refuse(&mut scene, 11).await;
    let notice = scene.notice();
    scene.notices.refused(&notice, Instant::now(), 0.5);
    advance(Duration::from_millis(500)).await;
    scene.raise(Severity::Error, "mild");
    let late = Instant::now() + Duration::from_secs(299);
    assert!(matches!(scene.next(), Next::Wait(Some(until)) if until > late), "as before");
    scene.raise(Severity::Critical, "new");
    let soon = Instant::now() + Duration::from_millis(500);
    assert_eq!(scene.next(), Next::Wait(Some(soon)), "not within a second of the last try");
    advance(Duration::from_millis(500)).await;
    // It goes first, and then takes turns; and pauses grow anew.
    let begun = Instant::now();
    let tried = refuse(&mut scene, 4).await;
    assert_eq!(tried, ["new 1", "mild 1", "new 1", "mild 1"]);
    assert_eq!((Instant::now() - begun).as_secs(), 1 + 2 + 4 + 8);
    // What is known changes nothing.
    scene.raise(Severity::Critical, "new");
    let notice = scene.notice();
    scene.notices.refused(&notice, Instant::now(), 0.5);
    let rest = Instant::now() + Duration::from_secs(16);
    assert_eq!(scene.next(), Next::Wait(Some(rest)));
    // It begins anew.
    scene.warnings.resolve(Code::SourceDown, "new");
    assert_eq!(scene.next(), Next::Wait(Some(rest)));
    advance(Duration::from_secs(2)).await;
    scene.raise(Severity::Critical, "new");
    assert_eq!(words(&scene.notice()), "new 3");
    assert_eq!(scene.sent(), ["new 3", "mild 1", "known 1"], "the webhook works: nobody waits");
}

#[tokio::test(start_paused = true)]
async fn too_many_are_given_up_from_the_mildest_and_newest_and_counted() {
    let mut scene = Scene::new();
    scene.raise(Severity::Info, "mild");
    for at in 0..Notices::MOST {
        scene.raise(Severity::Error, &format!("{at}"));
    }
    scene.raise(Severity::Critical, "worst");
    let dropped = scene.notices.look(scene.warnings.at_least(Severity::Info));
    assert_eq!(dropped, 2);
    assert_eq!(scene.notices.look(scene.warnings.at_least(Severity::Info)), 0, "said once");
    let first = scene.notice();
    assert_eq!((words(&first), &first.body["dropped"]), ("worst 1".to_owned(), &2.into()));
    let sent = scene.sent();
    assert_eq!(sent.len(), Notices::MOST);
    assert!(!sent.contains(&"mild 1".to_owned()) && !sent.contains(&"999 1".to_owned()));
    for subject in ["mild", "999", "worst"] {
        scene.warnings.resolve(Code::SourceDown, subject);
    }
    assert_eq!(scene.sent(), ["worst 1 over"]);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_nothing_is_put_off() {
    let mut scene = Scene::new();
    scene.raise(Severity::Error, "a");
    for _ in 0..8 {
        let notice = scene.notice();
        let pause = scene.notices.refused(&notice, Instant::now(), 0.5);
        advance(pause).await;
    }
    let notice = scene.notice();
    scene.notices.refused(&notice, Instant::now(), 0.5);
    assert!(matches!(scene.next(), Next::Wait(Some(_))));
    scene.notices.hurry();
    assert!(scene.notices.owes());
    assert_eq!(scene.sent(), ["a 1"]);
    scene.raise(Severity::Error, "a");
    assert!(matches!(scene.next(), Next::Wait(None)));
    assert!(!scene.notices.owes(), "that it happened again is not worth waiting for");
}
