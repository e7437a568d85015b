//! What the paper left open: what is told is written down before; and what is when that fails.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_agents::{
    AdmittedRecord, Ask, BoxFuture, FinishedRecord, Journal, JournalError, KnownSession,
    MemoryJournal, Recorded, SessionId,
};

use tokio::time::{Instant, sleep};

use crate::stage::{Stage, ask, in_session, millis, one_shot, persistent};

/// A journal that takes its time, or fails, at each of the three things it writes, or when it is asked for a session.
#[derive(Debug, Default)]
struct Bad {
    inner: MemoryJournal,
    known: Mood,
    admitted: Mood,
    began: Mood,
    finished: Mood,
}

#[derive(Clone, Copy, Debug, Default)]
enum Mood {
    #[default]
    Fine,
    Slow(Duration),
    Fails,
    FailsBefore(Instant),
}

impl Mood {
    async fn write<'a, T>(
        self,
        write: impl FnOnce() -> BoxFuture<'a, Result<T, JournalError>>,
    ) -> Result<T, JournalError> {
        match self {
            Self::Fine => {}
            Self::Slow(time) => tokio::time::sleep(time).await,
            Self::FailsBefore(at) if Instant::now() >= at => {}
            Self::Fails | Self::FailsBefore(_) => {
                return Err(JournalError { cause: "disk full".to_owned() });
            }
        }
        write().await
    }
}

impl Journal for Bad {
    fn admitted<'a>(
        &'a self,
        request: &'a AdmittedRecord,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async { self.admitted.write(|| self.inner.admitted(request)).await })
    }

    fn began<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async { self.began.write(|| self.inner.began(session)).await })
    }

    fn finished<'a>(
        &'a self,
        request: &'a FinishedRecord,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async { self.finished.write(|| self.inner.finished(request)).await })
    }

    fn request<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Recorded>, JournalError>> {
        self.inner.request(id)
    }

    fn session<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<KnownSession>, JournalError>> {
        Box::pin(async { self.known.write(|| self.inner.session(session)).await })
    }
}

fn stage(journal: Bad) -> Stage {
    Stage::with_any_journal(one_shot(|settings| settings.max_workers = 1), Arc::new(journal))
}

/// `docs/rules.md#agents-8`
#[tokio::test(start_paused = true)]
async fn nobody_is_told_before_it_is_written() {
    let slow = Mood::Slow(millis(500));
    let stage = stage(Bad { admitted: slow, finished: slow, ..Bad::default() });
    let id = stage.enter(ask("web:1", "work:100")).await;
    assert_eq!(stage.since(), millis(500));
    assert!(stage.outcome(&id).await.is_ok());
    assert_eq!(stage.since(), millis(500 + 100 + 500));
    stage.end().await;
}

/// `docs/rules.md#agents-8`
#[tokio::test(start_paused = true)]
async fn what_cannot_be_written_is_not_let_in() {
    for journal in [
        Bad { admitted: Mood::Fails, ..Bad::default() },
        Bad { began: Mood::Fails, ..Bad::default() },
    ] {
        let stage = stage(journal);
        for _ in 0..3 {
            let code = match stage.submit(ask("web:1", "work:100")).await {
                Ok(ticket) => stage.outcome(&ticket.request_id).await.unwrap_err().code(),
                Err(error) => error.code(),
            };
            assert_eq!(code, "storage_failed");
        }
        assert_eq!((stage.spawned().len(), stage.agents.metrics().queue_depth), (0, 0));
        assert_eq!(stage.events("pool.journal_failed").len(), 3);
        // Each is counted once, whether it was let in or not.
        let counted = ["request.failed", "request.rejected"].map(|name| stage.events(name).len());
        assert_eq!(counted.iter().sum::<usize>(), 3, "{counted:?}");
        stage.end().await;
    }
}

/// `docs/rules.md#agents-8`
#[tokio::test(start_paused = true)]
async fn work_that_is_done_is_told_even_so() {
    let stage = stage(Bad { finished: Mood::Fails, ..Bad::default() });
    assert_eq!(stage.reply(ask("web:1", "work:100")).await.text, "work:100");
    assert_eq!(stage.events("pool.journal_failed").len(), 3);
    stage.end().await;
}

/// What was told is known after a restart, though it could not be written when it was: once the journal works again, or at
/// the end.
///
/// `docs/rules.md#agents-8`
#[tokio::test(start_paused = true)]
async fn what_was_told_is_written_later() {
    for heals_after in [millis(20_000), millis(1_500)] {
        let finished = Mood::FailsBefore(Instant::now() + heals_after);
        let journal = Arc::new(Bad { finished, ..Bad::default() });
        let stage = Stage::with_any_journal(one_shot(|_| {}), Arc::<Bad>::clone(&journal));
        let id = stage.enter(ask("web:1", "work:100")).await;
        assert!(stage.outcome(&id).await.is_ok());
        let outcome = |recorded: Option<Recorded>| recorded.and_then(|known| known.outcome);
        assert!(outcome(journal.request(&id).await.unwrap()).is_none(), "told, and not written");
        if heals_after > millis(10_000) {
            sleep(millis(40_000)).await;
        } else {
            // The next try would come later than this.
            sleep(millis(500)).await;
            stage.end().await;
        }
        let written = outcome(journal.request(&id).await.unwrap()).expect("written");
        assert_eq!(written.as_ref().as_ref().unwrap().text, "work:100");
    }
}

/// "Rate tokens are spent by admitted requests only."
///
/// `docs/rules.md#agents-2`
#[tokio::test(start_paused = true)]
async fn what_is_not_let_in_spends_nothing() {
    let admitted = Mood::FailsBefore(Instant::now() + millis(100));
    let settings = one_shot(|settings| settings.tenant_limits.rate_limit_requests = 2);
    let stage = Stage::with_any_journal(settings, Arc::new(Bad { admitted, ..Bad::default() }));
    for _ in 0..5 {
        let refused = stage.submit(ask("web:1", "work:1")).await.unwrap_err();
        assert_eq!(refused.code(), "storage_failed");
    }
    sleep(millis(100)).await;
    for _ in 0..2 {
        stage.reply(ask("web:1", "work:1")).await;
    }
    let refused = stage.submit(ask("web:1", "work:1")).await.unwrap_err();
    assert_eq!(refused.code(), "rate_limited");
    stage.end().await;
}

/// What failed first is written last; by then the session has gone on, unless that waits.
///
/// `docs/rules.md#agents-4`
#[tokio::test(start_paused = true)]
async fn a_late_write_does_not_take_back_a_later_turn() {
    let finished = Mood::FailsBefore(Instant::now() + millis(5));
    let journal = Arc::new(Bad { finished, ..Bad::default() });
    let stage = Stage::with_any_journal(one_shot(|_| {}), Arc::<Bad>::clone(&journal));
    let fails = stage.enter(in_session("web:1", "s", "crash")).await;
    let goes_on = stage.enter(in_session("web:1", "s", "say work:10")).await;
    assert!(stage.outcome(&goes_on).await.is_ok());
    assert!(stage.outcome(&fails).await.is_err());
    let known = journal.session(&SessionId::parse("s").unwrap()).await.unwrap().unwrap();
    assert!(known.begun);
    stage.end().await;
}

/// `docs/rules.md#agents-3`
#[tokio::test(start_paused = true)]
async fn what_is_not_let_in_claims_nothing() {
    let admitted = Mood::FailsBefore(Instant::now() + millis(100));
    let settings = persistent(|settings| settings.min_workers = 1);
    let stage = Stage::with_any_journal(settings, Arc::new(Bad { admitted, ..Bad::default() }));
    sleep(millis(10)).await;
    let refused = [in_session("web:1", "s", "work:1"), ask("web:1", "work:1")];
    for ask in refused {
        assert_eq!(stage.submit(ask).await.unwrap_err().code(), "storage_failed");
    }
    sleep(millis(100)).await;
    // Neither the session that it named, nor the one that a worker was started for.
    stage.reply(ask("web:2", "work:1")).await;
    assert_eq!(stage.spawned().len(), 1);
    stage.reply(in_session("web:2", "s", "work:1")).await;
    stage.end().await;
}

/// A deadline holds also while the disk is waited for.
#[tokio::test(start_paused = true)]
async fn a_deadline_covers_the_journal() {
    let slow = Mood::Slow(millis(10_000));
    for journal in [
        Bad { known: slow, ..Bad::default() },
        Bad { admitted: slow, ..Bad::default() },
        Bad { began: slow, ..Bad::default() },
    ] {
        let stage = stage(journal);
        let ask = Ask { timeout: Some(millis(1_000)), ..in_session("web:1", "s", "work:1") };
        let error = match stage.submit(ask).await {
            Ok(ticket) => stage.outcome(&ticket.request_id).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!((error.code(), stage.since()), ("queue_timeout", millis(1_000)));
        stage.end().await;
    }
}

/// Whoever sets no deadline waits no longer for a disk that hangs than for anything else.
#[tokio::test(start_paused = true)]
async fn the_limits_of_a_request_cover_the_journal() {
    let slow = Mood::Slow(millis(1_000_000));
    let cases = [
        (Bad { known: slow, ..Bad::default() }, "queue_timeout", 120_000),
        (Bad { admitted: slow, ..Bad::default() }, "queue_timeout", 120_000),
        (Bad { began: slow, ..Bad::default() }, "execution_timeout", 150_000),
    ];
    for (journal, code, after) in cases {
        let settings = one_shot(|settings| {
            settings.queue_timeout = millis(120_000);
            settings.execution_timeout = millis(150_000);
        });
        let stage = Stage::with_any_journal(settings, Arc::new(journal));
        let error = match stage.submit(in_session("web:1", "s", "work:1")).await {
            Ok(ticket) => stage.outcome(&ticket.request_id).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!((error.code(), stage.since()), (code, millis(after)));
        stage.end().await;
    }
}

/// A request that waited for the disk comes to its worker just when that is killed.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_being_killed_takes_no_request() {
    let began = Mood::Slow(millis(100));
    let settings = persistent(|settings| settings.min_workers = 1);
    let stage = Stage::with_any_journal(settings, Arc::new(Bad { began, ..Bad::default() }));
    sleep(millis(10)).await;
    let kills = async {
        sleep(millis(100)).await;
        stage.agents.kill("worker-1").await
    };
    let (killed, reply) = tokio::join!(kills, stage.reply(ask("web:1", "work:1")));
    assert_eq!((killed, &*reply.worker_id), (true, "worker-2"));
    stage.end().await;
}
