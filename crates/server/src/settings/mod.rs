//! What the daemon is told: `sluicegate.toml`, and what is synced from elsewhere.
//!
//! 1. A file is parsed once. Whoever holds a [`Settings`] need check nothing again.
//! 2. All that is wrong with a file is said at once: where, which key, what would be right.
//! 3. A secret is shown nowhere: not by `Debug`, not in [`Problems`], not in [`Settings::shown`].

mod agents;
mod available;
mod changes;
mod cidr;
mod cluster;
mod desired;
mod duration;
mod http;
mod link;
mod pool;
mod problem;
mod queue;
mod reader;
mod router;
mod secret;
mod server;
mod shown;
mod source;
mod substitute;
pub mod synced;
mod uri;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

pub(crate) use agents::words_in_braces;
pub use agents::{AgentMode, AgentSettings, CgroupsBy, PromptBy, TenantLimits, TenantSettings};
pub use changes::{Fixed, changes};
pub use cidr::{Cidr, CidrInvalid};
pub use cluster::{ClusterMode, ClusterSettings, EventSettings, EventUrl, StoreUrl};
pub use desired::Desired;
pub use http::{BreakerSettings, HttpSettings};
pub use link::{HttpUrl, HttpUrlInvalid, WebhookUrl};
pub use pool::PoolSettings;
pub use problem::{Problem, Problems};
pub use queue::QueueSettings;
pub use router::{AlertSettings, RouterSettings, UnknownPool};
pub use secret::{Secret, SigningSecret, SigningSecretInvalid};
pub use server::{LogFormat, LogSettings, ServerSettings, StateSettings, TlsSettings, Unprotected};
pub use uri::{BrokerUri, QueueUri, QueueUriInvalid};

/// The largest document that is read.
const MOST_BYTES: u64 = 8 * 1024 * 1024;

/// The whole file.
///
/// ```
/// use sluicegate_server::settings::Settings;
///
/// let text = "[server]\nlisten = \"127.0.0.1:${PORT:-9090}\"\n";
/// let settings = Settings::parse("sluicegate.toml", text, &|_| None).unwrap();
/// assert_eq!(settings.server.listen.port(), 9090);
/// assert_eq!(settings.queues[0].uri.to_string(), "sqlite:default");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// `[server]`
    pub server: ServerSettings,
    /// `[state]`
    pub state: StateSettings,
    /// `[router]`
    pub router: RouterSettings,
    /// `[http]`
    pub http: HttpSettings,
    /// `[[queue]]`. When the file names none and no `router.config_url`, the embedded queue `default`.
    pub queues: Vec<QueueSettings>,
    /// `[[pool]]`
    pub pools: Vec<PoolSettings>,
    /// `[log]`
    pub log: LogSettings,
    /// `[alerts]`
    pub alerts: AlertSettings,
    /// `[events]`
    pub events: EventSettings,
    /// `[cluster]`
    pub cluster: ClusterSettings,
    /// `[agents]`
    pub agents: AgentSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: ServerSettings::default(),
            state: StateSettings::default(),
            router: RouterSettings::default(),
            http: HttpSettings::default(),
            queues: vec![QueueSettings::embedded()],
            pools: Vec::new(),
            log: LogSettings::default(),
            alerts: AlertSettings::default(),
            events: EventSettings::default(),
            cluster: ClusterSettings::default(),
            agents: AgentSettings::default(),
        }
    }
}

impl Settings {
    /// Reads a file, with the variables of this process.
    ///
    /// # Errors
    ///
    /// With everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let name = path.display().to_string();
        let unreadable =
            |why: std::io::Error| Problems::whole(&name, format!("cannot be read: {why}"));
        let file = File::open(path).map_err(unreadable)?;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let line =
                    error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count() + 1;
                let message = format!("cannot be read: line {line} is not UTF-8");
                return Err(Problems::whole(&name, message));
            }
        };
        Self::parse(&name, &text, &|variable| std::env::var(variable).ok())
    }

    /// Reads a text. `name` is what problems call it; `env` has the variables.
    ///
    /// # Errors
    ///
    /// With everything that is wrong with it.
    pub fn parse(
        name: &str,
        text: &str,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Problems> {
        if text.len() as u64 > MOST_BYTES {
            return Err(Problems::whole(name, format!("is larger than {MOST_BYTES} bytes")));
        }
        reader::document(name, text, env, |top| {
            let mut read = Self {
                server: top.table("server", ServerSettings::read),
                state: top.table("state", StateSettings::read),
                router: top.table("router", RouterSettings::read),
                http: top.table("http", HttpSettings::read),
                queues: QueueSettings::read_all(top),
                pools: PoolSettings::read_all(top),
                log: top.table("log", LogSettings::read),
                alerts: top.table("alerts", AlertSettings::read),
                events: top.table("events", EventSettings::read),
                cluster: top.table("cluster", ClusterSettings::read),
                agents: top.table("agents", AgentSettings::read),
            };
            if read.queues.is_empty() && read.router.config_url.is_empty() {
                read.queues.push(QueueSettings::embedded());
            }
            read
        })
    }
}
