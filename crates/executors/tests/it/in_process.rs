//! Messages run by code of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate_dispatch::{Attempt, Executor, Message, Outcome};
use sluicegate_executors::InProcess;
use sluicegate_tasks::Context;

use crate::stage::{message, pool};

#[tokio::test(start_paused = true)]
async fn a_function_runs_under_its_context() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let executor = InProcess::new(move |message, cx| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            assert_eq!(cx.check(), Ok(()));
            match &*message.id {
                "never" => std::future::pending().await,
                _ => Outcome::Done,
            }
        })
    });
    let (short, pool) = (message("http://127.0.0.1/"), pool());
    let never = Message { id: "never".into(), ..short.clone() };
    let cx = Context::new().with_timeout(std::time::Duration::from_secs(1));
    let run = |message, cx| executor.execute(Attempt { message, pool: &pool, number: 1, cx });
    assert_eq!(run(&short, &cx).await, Outcome::Done);
    assert_eq!(run(&never, &cx).await, Outcome::Interrupted);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    // The context has ended: it does not even begin.
    assert_eq!(run(&never, &cx).await, Outcome::Interrupted);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}
