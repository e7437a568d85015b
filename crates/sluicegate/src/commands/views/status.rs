//! `sluicegate status`: the whole of it on one screen.

use std::time::Duration;

use clap::{ArgMatches, Command};
use http::Method;
use serde_json::{Value, json};

use super::json_argument;
use crate::client::{self, Client, Problem};
use crate::exit::Failure;
use crate::screen::{self, Cell, Shade, Table, time};

const EXAMPLES: &str = "\
Examples:
  sluicegate status
  SLUICEGATE_URL=http://10.0.0.7:8080 SLUICEGATE_TOKEN=… sluicegate status
  watch sluicegate status";

/// How many of each kind are looked at.
const MOST: usize = 10_000;
/// How many warnings are said in words.
const MOST_SAID: usize = 5;
/// The worst first.
const SEVERITIES: [&str; 4] = ["CRITICAL", "ERROR", "WARNING", "INFO"];

pub(in super::super) fn command() -> Command {
    let command = Command::new("status")
        .about(
            "How the server is: health, pools, queues, agents, warnings, breakers, parked messages",
        )
        .after_help(EXAMPLES)
        .arg(json_argument());
    client::arguments(command)
}

/// Everything that is shown.
struct Status {
    health: Value,
    pools: Vec<Value>,
    queues: Vec<Value>,
    warnings: Vec<Value>,
    breakers: Vec<Value>,
    parked: Option<u64>,
    /// The pool of agents, if it is enabled, and since when the first request waits.
    agents: Option<Agents>,
}

struct Agents {
    metrics: Value,
    most: u64,
    oldest_wait: Duration,
}

pub(in super::super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let client = Client::of(given)?;
    let status = Status::ask(&client).await?;
    if given.get_flag("json") {
        return Ok(screen::line(status.json(client.address()))?);
    }
    let mut table = Table::facts();
    table.row([Cell::new("server"), Cell::new(client.address())]);
    for (name, cell) in status.rows() {
        table.row([Cell::new(name), cell]);
    }
    Ok(screen::line(table)?)
}

impl Status {
    async fn ask(client: &Client) -> Result<Self, Failure> {
        let list = async |name: &str| {
            let list = client.list(&format!("/api/v1/{name}"), &[], MOST).await?;
            Ok::<_, Failure>(list.values())
        };
        let (health, pools, queues, warnings, breakers, metrics, agents) = tokio::try_join!(
            health(client),
            list("pools"),
            list("queues"),
            list("warnings"),
            list("breakers"),
            client.get("/metrics"),
            agents(client),
        )?;
        let parked = parked(&String::from_utf8_lossy(&metrics));
        Ok(Self { health, pools, queues, warnings, breakers, parked, agents })
    }

    fn json(&self, server: &str) -> Value {
        let Self { health, pools, queues, warnings, breakers, parked, agents } = self;
        let agents = agents.as_ref().map(|agents| &agents.metrics);
        json!({
            "server": server, "health": health, "pools": pools, "queues": queues,
            "warnings": warnings, "breakers": breakers, "parked": parked, "agents": agents,
        })
    }

    fn rows(&self) -> Vec<(&'static str, Cell)> {
        let sum = |items: &[Value], name: &str| {
            items.iter().filter_map(|item| item[name].as_u64()).sum::<u64>()
        };
        let mut rows = vec![("health", self.health_cell())];
        let issues = self.health["issues"].as_array().map(Vec::as_slice).unwrap_or_default();
        for issue in issues {
            let words = issue.as_str().or_else(|| issue["message"].as_str());
            let words = words.map_or_else(|| issue.to_string(), str::to_owned);
            rows.push(("", Cell::new(words).shaded(Shade::Warn)));
        }
        let (running, waiting) = (sum(&self.pools, "running"), sum(&self.pools, "queued"));
        let pools = format!(
            "{}, {} running, {} waiting",
            number(self.pools.len() as u64, "pool"),
            number(running, "message"),
            time::count(waiting)
        );
        rows.push(("pools", Cell::new(pools)));
        let depth = sum(&self.queues, "depth");
        let queues = format!(
            "{}, {} deep",
            number(self.queues.len() as u64, "queue"),
            number(depth, "message")
        );
        let ill = |queue: &&Value| queue["healthy"] == false;
        let ill: Vec<&str> =
            self.queues.iter().filter(ill).filter_map(|queue| queue["name"].as_str()).collect();
        rows.push((
            "queues",
            match ill[..] {
                [] => Cell::new(queues),
                _ => Cell::new(format!("{queues}; not healthy: {}", ill.join(", ")))
                    .shaded(Shade::Bad),
            },
        ));
        rows.push(("delivered", Cell::new(time::count(sum(&self.pools, "succeeded")))));
        rows.push((
            "parked",
            match self.parked {
                Some(0) => Cell::new("none").shaded(Shade::Good),
                Some(parked) => Cell::new(time::count(parked)).shaded(Shade::Bad),
                None => Cell::none(),
            },
        ));
        rows.extend(self.agents.as_ref().map(|agents| ("agents", agents.cell())));
        rows.push(("breakers", self.breakers_cell()));
        rows.push(("warnings", self.warnings_cell()));
        rows.extend(self.worst_warnings().into_iter().map(|cell| ("", cell)));
        rows
    }

    fn health_cell(&self) -> Cell {
        let status = self.health["status"].as_str().unwrap_or("unknown");
        Cell::new(status).shaded(match status {
            "UP" => Shade::Good,
            "DOWN" => Shade::Bad,
            _ => Shade::Warn,
        })
    }

    fn breakers_cell(&self) -> Cell {
        let open = |breaker: &&Value| breaker["state"] != "closed";
        let open: Vec<&str> =
            self.breakers.iter().filter(open).filter_map(|one| one["name"].as_str()).collect();
        match open[..] {
            [] => Cell::new("none open").shaded(Shade::Good),
            _ => Cell::new(format!("not closed: {}", open.join(", "))).shaded(Shade::Bad),
        }
    }

    /// Those that are not over and that nobody has taken note of.
    fn open_warnings(&self) -> Vec<&Value> {
        let open = |one: &&Value| one["acknowledged"] != true && one["resolved"] != true;
        self.warnings.iter().filter(open).collect()
    }

    fn warnings_cell(&self) -> Cell {
        let open = self.open_warnings();
        let of = |severity: &str| open.iter().filter(|one| one["severity"] == severity).count();
        let words: Vec<String> = SEVERITIES
            .iter()
            .filter_map(|severity| {
                let count = of(severity);
                (count > 0).then(|| format!("{count} {severity}"))
            })
            .collect();
        let shade = match () {
            () if open.is_empty() => return Cell::new("none").shaded(Shade::Good),
            () if of("CRITICAL") + of("ERROR") > 0 => Shade::Bad,
            () => Shade::Warn,
        };
        Cell::new(words.join(", ")).shaded(shade)
    }

    /// A few of them in words, the worst first.
    fn worst_warnings(&self) -> Vec<Cell> {
        let mut open = self.open_warnings();
        let rank = |one: &&Value| SEVERITIES.iter().position(|known| one["severity"] == **known);
        open.retain(|one| one["severity"] != "INFO");
        open.sort_by_key(rank);
        let cell = |one: &&Value| {
            let text = |name: &str| one[name].as_str().unwrap_or_default();
            let shade = if text("severity") == "WARNING" { Shade::Warn } else { Shade::Bad };
            Cell::new(format!("{} {}", text("code"), text("message"))).shaded(shade)
        };
        let mut cells: Vec<Cell> = open.iter().take(MOST_SAID).map(cell).collect();
        if open.len() > MOST_SAID {
            let more = format!("and {} more: sluicegate warnings", open.len() - MOST_SAID);
            cells.push(Cell::new(more));
        }
        cells
    }
}

impl Agents {
    fn cell(&self) -> Cell {
        let count = |name: &str| self.metrics[name].as_u64().unwrap_or_default();
        let busy = format!("{} of {} workers busy", count("workersBusy"), self.most);
        let waiting = match count("queueDepth") {
            0 => "no request waiting".to_owned(),
            waiting => {
                let since = time::span(self.oldest_wait);
                format!("{} waiting, the first since {since}", number(waiting, "request"))
            }
        };
        Cell::new(format!("{busy}, {waiting}"))
    }
}

/// The pool of agents; none where it is not enabled, or not known.
async fn agents(client: &Client) -> Result<Option<Agents>, Failure> {
    let Ok(metrics) = client.json("/api/v1/agents/metrics").await else { return Ok(None) };
    let config = client.json("/api/v1/config").await?;
    let settings = &config["agents"];
    let most = if settings["serial"] == true { Some(1) } else { settings["maxWorkers"].as_u64() };
    let tenants = client.list("/api/v1/tenants", &[], MOST).await?.values();
    let oldest = tenants.iter().filter_map(|tenant| tenant["oldestWaitMs"].as_u64()).max();
    let oldest_wait = Duration::from_millis(oldest.unwrap_or_default());
    Ok(Some(Agents { metrics, most: most.unwrap_or_default(), oldest_wait }))
}

/// The health, which is an answer whether it is good or bad.
async fn health(client: &Client) -> Result<Value, Failure> {
    let fetched = client.ask(Method::GET, "/health", None).await?;
    let body: Value = serde_json::from_slice(&fetched.body).unwrap_or_default();
    match body["status"] {
        Value::String(_) => Ok(body),
        _ if fetched.status.is_success() => Err(client.stranger()),
        _ => Err(Problem::of(&fetched).failure()),
    }
}

/// How many messages are parked, which is a number of the metrics.
fn parked(metrics: &str) -> Option<u64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix("sluicegate_messages_parked "))?;
    line.trim().parse().ok()
}

fn number(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", time::count(count), if count == 1 { "" } else { "s" })
}
