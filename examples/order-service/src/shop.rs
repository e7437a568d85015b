//! The shop itself: what the handlers do, and what they are sent when nobody else sends anything.

use std::error::Error;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, ConnectionProperties};
use serde::{Deserialize, Serialize};
use sluicegate_consumers::Failure;
use tokio::time::sleep;

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Order {
    pub(crate) number: u32,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct AccountEvent {
    pub(crate) version: u32,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Row {
    pub(crate) line: u32,
}

/// Why the shop cannot do something.
#[derive(Debug)]
pub(crate) enum ShopError {
    /// Trying again helps.
    Busy,
    /// It does not.
    NoStock,
}

/// Handlers run side by side, so what they share is shared behind a lock or an atomic.
#[derive(Debug, Default)]
pub(crate) struct Shop {
    orders: AtomicU32,
    refused: AtomicU32,
    rows: AtomicU32,
    versions: Mutex<Vec<u32>>,
}

impl Shop {
    /// One order in fifty finds the database busy at first, and one in a hundred asks for what there is
    /// not.
    pub(crate) async fn process(&self, order: &Order, attempt: u32) -> Result<(), ShopError> {
        sleep(Duration::from_millis(20)).await;
        if order.number % 100 == 99 {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(ShopError::NoStock);
        }
        if order.number % 50 == 7 && attempt == 1 {
            return Err(ShopError::Busy);
        }
        self.orders.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) async fn update(&self, event: &AccountEvent) -> Result<(), Failure> {
        sleep(Duration::from_millis(1)).await;
        self.versions.lock().map_err(|_| Failure::retry("a handler panicked"))?.push(event.version);
        Ok(())
    }

    pub(crate) async fn import(&self, _row: &Row) -> Result<(), Failure> {
        sleep(Duration::from_millis(100)).await;
        self.rows.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// How many messages are over, one way or the other.
    pub(crate) fn handled(&self) -> u32 {
        let orders = self.orders.load(Ordering::Relaxed) + self.refused.load(Ordering::Relaxed);
        orders + self.rows.load(Ordering::Relaxed) + self.versions().len() as u32
    }

    /// Whether the account's events were seen in their order.
    pub(crate) fn is_in_order(&self) -> bool {
        self.versions().is_sorted()
    }

    pub(crate) fn summary(&self) -> String {
        format!(
            "{} orders processed, {} refused for good, {} rows imported, {} account events, {}",
            self.orders.load(Ordering::Relaxed),
            self.refused.load(Ordering::Relaxed),
            self.rows.load(Ordering::Relaxed),
            self.versions().len(),
            if self.is_in_order() { "all in order" } else { "OUT OF ORDER" },
        )
    }

    fn versions(&self) -> Vec<u32> {
        self.versions.lock().map_or_else(|broken| broken.into_inner().clone(), |all| all.clone())
    }
}

/// Sends so many messages of each kind, as another service would.
pub(crate) async fn send_some(url: &str, each: u32) -> Result<(), Box<dyn Error>> {
    let connection = lapin::Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    for number in 0..each {
        let messages = [
            ("order.created", serde_json::to_vec(&Order { number })?),
            ("account.updated", serde_json::to_vec(&AccountEvent { version: number })?),
            ("batch.import", serde_json::to_vec(&Row { line: number })?),
        ];
        for (kind, body) in messages {
            let properties = BasicProperties::default()
                .with_type(kind.into())
                .with_message_id(format!("{kind}-{number}").into())
                .with_delivery_mode(2);
            let options = BasicPublishOptions { mandatory: true, ..Default::default() };
            let published =
                channel.basic_publish("shop".into(), kind.into(), options, &body, properties);
            // Twice: sent, and then confirmed.
            published.await?.await?;
        }
    }
    Ok(connection.close(200, "done".into()).await?)
}

impl fmt::Display for ShopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the database is busy",
            Self::NoStock => "there is none of it",
        })
    }
}

impl Error for ShopError {}
