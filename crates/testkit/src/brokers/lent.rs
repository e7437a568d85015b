//! One broker for the tests of a whole run: started once, found by every test through the environment.
//!
//! Under a test runner every test is a process, and RabbitMQ takes seconds to start. So `cargo xtask
//! test` starts each kind once and names it in the environment; a test that runs without that starts
//! one of its own. Tests that break a broker never borrow: they [`start`](super::start) one.

use super::{Broker, Kind, start_or_skip};

/// A broker to use and not to break. Others use it at the same time: names of queues, hosts and
/// databases must be the test's own.
#[derive(Debug)]
pub struct Lent {
    url: String,
    management_url: Option<String>,
    _own: Option<Broker>,
}

impl Lent {
    /// Where clients connect.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where its HTTP management is, if it has one: RabbitMQ and NATS.
    #[must_use]
    pub fn management_url(&self) -> Option<&str> {
        self.management_url.as_deref()
    }
}

/// The broker of the run, or else one for this test alone; without either the test passes over,
/// except on CI.
///
/// # Panics
///
/// As [`start_or_skip`].
#[must_use]
pub fn lend(kind: Kind) -> Option<Lent> {
    let named = |variable: String| std::env::var(variable).ok().filter(|url| !url.is_empty());
    if let Some(url) = named(variable(kind)) {
        let management_url = named(management_variable(kind));
        return Some(Lent { url, management_url, _own: None });
    }
    let own = start_or_skip(kind)?;
    let (url, management_url) = (own.url().to_owned(), own.management_url().map(str::to_owned));
    Some(Lent { url, management_url, _own: Some(own) })
}

/// The variables that lend a broker to the tests of a run.
#[must_use]
pub fn lending(broker: &Broker) -> Vec<(String, String)> {
    let url = (variable(broker.kind()), broker.url().to_owned());
    let management = broker.management_url();
    let management = management.map(|url| (management_variable(broker.kind()), url.to_owned()));
    std::iter::once(url).chain(management).collect()
}

fn variable(kind: Kind) -> String {
    format!("SLUICEGATE_TEST_{}", kind.name().to_uppercase())
}

fn management_variable(kind: Kind) -> String {
    format!("{}_MANAGEMENT", variable(kind))
}
