//! What stands in the log: sizes at the start, and the worker wherever a handler speaks.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_consumers::{Consumer, Failure, Handler, MemorySource};
use tokio::sync::Barrier;
use tracing_subscriber::fmt::MakeWriter;

use crate::stage::{Stage, letter, text};

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Written {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// The log is the whole process's, so that no other test can have taken a line for one that nobody
/// reads; the consumer's name is this test's own.
#[tokio::test]
async fn worker_workers_and_prefetch_are_in_the_log() {
    let written = Written::default();
    let log = tracing_subscriber::fmt().with_writer(written.clone()).with_ansi(false).finish();
    tracing::subscriber::set_global_default(log).expect("no other test sets it");
    let source = MemorySource::new();
    (0..3).for_each(|_| source.push(letter("")));
    let all_at_once = Arc::new(Barrier::new(3));
    let handler = Handler::bytes(move |_body, _about, _cx| {
        let all_at_once = Arc::clone(&all_at_once);
        async move {
            all_at_once.wait().await;
            tracing::info!("handled");
            Ok::<_, Failure>(())
        }
    });
    let consumer = Consumer::of("q").named("mailer").workers(3).handler(handler);
    Stage::set(source, consumer).await.emptied().await;
    let log = text(&written.0.lock());
    let started = "consumer=\"mailer\" queue=\"q\" workers=3 prefetch=30";
    assert!(log.contains(started), "{log}");
    for worker in 0..3 {
        let spoke = |line: &str| {
            line.contains(&format!("worker{{consumer=mailer worker={worker}}}"))
                && line.contains("handled")
        };
        assert!(log.lines().any(spoke), "worker {worker} in {log}");
    }
}
