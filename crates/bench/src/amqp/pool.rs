//! Paper 000's `BenchmarkSequentialVsConcurrent`: one worker beside four and eight, without a broker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate_consumers::{Consumer, Envelope, Failure, Handler, MemorySource, Service};
use tokio::runtime::Runtime;

use crate::report::{Promise, Report, Row};

/// How long a handler waits.
const WAIT: Duration = Duration::from_millis(10);

pub(super) fn run(report: &mut Report, runtime: &Runtime, quick: bool) -> Result<(), String> {
    let count = if quick { 40 } else { 400 };
    let one = runtime.block_on(throughput(1, count))?;
    for workers in [4, 8] {
        let figure = runtime.block_on(throughput(workers, count))?;
        report.rows.push(
            Row::new(format!("a handler of 10 ms, {workers} workers"), "/s", figure)
                .beside("1 worker", one)
                .promised(Promise::RatioAtLeast(0.9 * f64::from(workers))),
        );
    }
    Ok(())
}

async fn throughput(workers: u32, count: usize) -> Result<f64, String> {
    let source = Arc::new(MemorySource::new());
    (0..count).for_each(|_| source.push(Envelope::default()));
    let handler = Handler::bytes(|_body, _about, _cx| async {
        tokio::time::sleep(WAIT).await;
        Ok::<_, Failure>(())
    });
    let consumer = Consumer::of("queue").workers(workers).handler(handler);
    let starting = Service::builder().consume(Arc::clone(&source), consumer).start();
    let begun = Instant::now();
    let service = starting.await.map_err(|error| error.to_string())?;
    source.emptied().await;
    let took = begun.elapsed();
    let report = service.shutdown(tokio::time::Instant::now() + Duration::from_secs(1)).await;
    if !report.is_clean() {
        return Err(format!("not a clean end: {report:?}"));
    }
    Ok(count as f64 / took.as_secs_f64())
}
