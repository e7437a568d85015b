//! What became of requests whose answer is an error, or was lost.
//!
//! `docs/rules.md#events-2`, `docs/rules.md#events-3`.

use std::collections::HashMap;
use std::time::Duration;

use sluicegate_postgres_link::{Broken, Wire};
use tokio::time::{Instant, sleep};

use super::appender::{Line, Server, Shared};
use super::batch::{count, position};
use super::queue::Request;
use super::remedy::Remedy;

/// How long one statement of it may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait before the server is asked again; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl Shared {
    /// Answers the requests that are there, and gives back those that are not and cannot come any more. As long as that
    /// is not known it goes on, until nobody waits for it: who has gone knows that it is not known.
    ///
    /// Dropped, the requests are dropped too.
    pub(super) async fn find_out(
        &self,
        line: &mut Option<Line>,
        open: Line,
        broken: &Broken,
        low: i64,
        mut requests: Vec<Request>,
    ) -> Vec<Request> {
        let mut pause = FIRST_PAUSE;
        // Where the database said so itself the transaction is over; else somebody may still be at work.
        let mut at_work = (!broken.is_said()).then_some(open.server);
        if broken.is_said() && Remedy::of(broken) != Remedy::Again {
            *line = Some(open);
        }
        loop {
            requests.retain(|request| !request.is_given_up());
            if requests.is_empty() {
                return requests;
            }
            match self.look(line, &mut at_work, low, &requests).await {
                Ok(Some(found)) => return tell(requests, &found, &self.head),
                Ok(None) => {}
                Err(_) => *line = None,
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Where requests are, by their tokens; `None` if somebody is still at work.
    async fn look(
        &self,
        line: &mut Option<Line>,
        at_work: &mut Option<Server>,
        low: i64,
        requests: &[Request],
    ) -> Result<Option<HashMap<i64, i64>>, Broken> {
        let open = match line {
            Some(open) => open,
            None => line.insert(self.open().await?),
        };
        if let Some(server) = *at_work {
            if !end(&mut open.wire, server).await? {
                return Ok(None);
            }
            *at_work = None;
        }
        let tokens: Vec<i64> = requests.iter().map(|request| request.token).collect();
        let find = self.names.write("SELECT token, position FROM {s}.find_appends($1, $2)");
        let rows = open
            .wire
            .ask(PATIENCE, |client| async move { client.query(&find, &[&tokens, &low]).await })
            .await?;
        Ok(Some(rows.iter().map(|row| (row.get(0), row.get(1))).collect()))
    }
}

/// Ends a process of the server, if it is still there; answers whether it has gone. What it was told and has not read
/// yet it might do later.
async fn end(wire: &mut Wire, server: Server) -> Result<bool, Broken> {
    let begun = Instant::now();
    let Server { pid, since } = server;
    let ask = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2";
    while begun.elapsed() < PATIENCE / 10 {
        let call = |client| async move {
            tokio_postgres::Client::query(client, ask, &[&pid, &since]).await
        };
        if wire.ask(PATIENCE, call).await?.is_empty() {
            return Ok(true);
        }
        sleep(FIRST_PAUSE).await;
    }
    Ok(false)
}

/// Answers those that were found, and gives back the others.
fn tell(
    mut requests: Vec<Request>,
    found: &HashMap<i64, i64>,
    head: &super::engine::Head,
) -> Vec<Request> {
    for request in requests.extract_if(.., |request| found.contains_key(&request.token)) {
        let first = found.get(&request.token).copied().unwrap_or(0);
        let last = first + count(&request) - 1;
        head.grows(last);
        request.answer(position(last));
    }
    requests
}
