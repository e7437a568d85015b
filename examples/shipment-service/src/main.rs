//! A carrier's service at NATS JetStream: many parcels at once, each in the order of its own scans.
//!
//! ```text
//! cargo run -p shipment-service                      a private server, 1,000 scans, and an end
//! cargo run -p shipment-service -- nats://HOST:PORT  that server, until Ctrl-C
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::HeaderMap;
use serde::{Deserialize, Serialize};
use sluicegate_consumers::{Consumer, Context, Failure, Metadata, OrderBy, Service};
use sluicegate_sources::nats::{NatsSettings, NatsSource};
use sluicegate_testkit::brokers::{Kind, start};
use tokio::time::{Instant, sleep};

const DRAIN: Duration = Duration::from_secs(20);
const PARCELS: u32 = 50;
const SCANS: u32 = 20;

/// A parcel was seen somewhere.
#[derive(Debug, Deserialize, Serialize)]
struct Scan {
    parcel: u32,
    step: u32,
}

/// The last step of each parcel, and whether any came out of turn.
#[derive(Debug, Default)]
struct Tracking {
    steps: HashMap<u32, u32>,
    seen: u32,
    out_of_turn: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_target(false).init();
    let tracking = Arc::new(Mutex::new(Tracking::default()));
    match std::env::args().nth(1) {
        Some(url) => {
            let service = serve(&url, &tracking).await?;
            tokio::signal::ctrl_c().await?;
            println!("{:?}", service.shutdown(Instant::now() + DRAIN).await);
        }
        None => {
            let server = start(Kind::Nats)?;
            let service = serve(server.url(), &tracking).await?;
            send_some(server.url()).await?;
            while track(&tracking).seen < PARCELS * SCANS {
                sleep(Duration::from_millis(20)).await;
            }
            let report = service.shutdown(Instant::now() + DRAIN).await;
            let Tracking { seen, out_of_turn, .. } = *track(&tracking);
            println!("{seen} scans of {PARCELS} parcels, {out_of_turn} out of turn\n{report:?}");
            assert!(report.is_clean() && out_of_turn == 0);
        }
    }
    Ok(())
}

async fn serve(url: &str, tracking: &Arc<Mutex<Tracking>>) -> Result<Service, Box<dyn Error>> {
    let url = url.trim_end_matches('/');
    // The stream and its consumer are made where they are missing.
    let settings = NatsSettings::parse(&format!(
        "{url}?stream=SCANS&consumer=tracker&subject=parcel.scanned"
    ))?;
    let source = Arc::new(NatsSource::open(settings).await?);
    let tracking = Arc::clone(tracking);
    let tracker = Consumer::of("SCANS")
        .named("tracker")
        .workers(32)
        // Scans of one parcel wait for each other, those of different ones do not.
        .order_by(OrderBy::header("Parcel"))
        .handle(move |scan: Scan, _: Metadata, _: Context| {
            let tracking = Arc::clone(&tracking);
            async move {
                sleep(Duration::from_millis(u64::from(scan.parcel % 7))).await;
                let mut all = track(&tracking);
                all.seen += 1;
                let last = all.steps.insert(scan.parcel, scan.step);
                all.out_of_turn += u32::from(last.map_or(0, |last| last + 1) != scan.step);
                Ok::<_, Failure>(())
            }
        });
    Ok(Service::builder().consume(source, tracker).start().await?)
}

/// The lock is never held over an await.
fn track(tracking: &Mutex<Tracking>) -> MutexGuard<'_, Tracking> {
    tracking.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends scans, as the scanners would: the parcels take turns.
async fn send_some(url: &str) -> Result<(), Box<dyn Error>> {
    let client = async_nats::connect(url).await?;
    let jetstream = async_nats::jetstream::new(client);
    for step in 0..SCANS {
        for parcel in 0..PARCELS {
            let mut headers = HeaderMap::new();
            headers.insert("Parcel", parcel.to_string());
            let body = serde_json::to_vec(&Scan { parcel, step })?;
            let sent = jetstream.publish_with_headers("parcel.scanned", headers, body.into());
            // Twice: sent, and then stored.
            sent.await?.await?;
        }
    }
    Ok(())
}
