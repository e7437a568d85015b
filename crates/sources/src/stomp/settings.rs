//! Where a queue is, and how it is received from.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use url::Url;

use crate::OpenError;
use crate::network::parameters;

const PORT: u16 = 61_613;
const TLS_PORT: u16 = 61_614;
/// More than a router's window; by its defaults the broker sends 1,000 at most.
const PREFETCH: u32 = 2_500;
const MAX_PREFETCH: u32 = 10_000;
const VISIBILITY: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(10);
const PARAMETERS: [&str; 2] = ["ca", "prefetch"];

/// A queue of ActiveMQ Classic, and how to reach it.
#[derive(Clone, PartialEq, Eq)]
pub struct StompSettings {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) login: Option<(String, String)>,
    pub(crate) queue: Arc<str>,
    pub(crate) is_tls: bool,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) prefetch: u32,
    /// Whether the address says what the prefetch is.
    says_prefetch: bool,
    pub(crate) visibility: Duration,
    pub(crate) heartbeat: Duration,
}

impl StompSettings {
    /// Reads `activemq://USER:PASS@HOST:PORT/QUEUE`, or `activemqs://…` for TLS. Parameters are
    /// `prefetch`, how many unacknowledged messages the broker sends ahead (2,500), and `ca`, a PEM file
    /// of certificates to trust beside the system's.
    ///
    /// ```
    /// use sluicegate_sources::stomp::StompSettings;
    ///
    /// let settings = StompSettings::parse("activemq://u:secret@localhost/orders?prefetch=50")?;
    /// assert_eq!(settings.queue(), "orders");
    /// assert!(!format!("{settings:?}").contains("secret"));
    /// # Ok::<(), sluicegate_sources::OpenError>(())
    /// ```
    ///
    /// # Errors
    /// Names what is wrong, without the password.
    pub fn parse(uri: &str) -> Result<Self, OpenError> {
        let url = Url::parse(uri).map_err(|error| wrong(format!("it is no URL: {error}")))?;
        let is_tls = match url.scheme() {
            "activemq" => false,
            "activemqs" => true,
            other => {
                return Err(wrong(format!("scheme: activemq or activemqs, not {other:?}")));
            }
        };
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("host: there is none"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let mut settings = Self {
            host,
            port: url.port().unwrap_or(if is_tls { TLS_PORT } else { PORT }),
            login: login(&url)?,
            queue: queue(&url)?,
            is_tls,
            ca: None,
            prefetch: PREFETCH,
            says_prefetch: false,
            visibility: VISIBILITY,
            heartbeat: HEARTBEAT,
        };
        let mut parameters = parameters::read(&url, &PARAMETERS)?;
        if let Some(value) = parameters.remove("prefetch") {
            let number = value.parse().ok().filter(|n| (1..=MAX_PREFETCH).contains(n));
            settings.prefetch = number.ok_or_else(|| {
                wrong(format!("prefetch: a number from 1 to {MAX_PREFETCH}, not {value:?}"))
            })?;
            settings.says_prefetch = true;
        }
        settings.ca = parameters.remove("ca").map(PathBuf::from);
        if settings.ca.as_ref().is_some_and(|ca| ca.as_os_str().is_empty()) {
            return Err(wrong("ca: the path of a PEM file"));
        }
        if settings.ca.is_some() && !is_tls {
            return Err(wrong("ca: it is for activemqs:// only"));
        }
        Ok(settings)
    }

    /// The prefetch, or the largest below it, where the address does not say one.
    #[must_use]
    pub fn with_usual_prefetch(self, prefetch: u32) -> Self {
        let prefetch = if self.says_prefetch { self.prefetch } else { prefetch };
        Self { prefetch: prefetch.clamp(1, MAX_PREFETCH), ..self }
    }

    /// How long a delivery stays out without being extended.
    #[must_use]
    pub fn with_visibility(self, visibility: Duration) -> Self {
        Self { visibility, ..self }
    }

    /// How often both sides give a sign of life: 10 s. A broker that is silent for more than twice as
    /// long is taken for gone.
    #[must_use]
    pub fn with_heartbeat(self, heartbeat: Duration) -> Self {
        Self { heartbeat: heartbeat.max(Duration::from_millis(100)), ..self }
    }

    /// The queue's name.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Host and port, for people.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(crate) fn destination(&self) -> String {
        format!("/queue/{}", self.queue)
    }
}

impl fmt::Debug for StompSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StompSettings")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("user", &self.login.as_ref().map(|(user, _)| user))
            .field("queue", &self.queue)
            .field("is_tls", &self.is_tls)
            .field("ca", &self.ca)
            .field("prefetch", &self.prefetch)
            .field("visibility", &self.visibility)
            .field("heartbeat", &self.heartbeat)
            .finish()
    }
}

fn wrong(why: impl Into<String>) -> OpenError {
    OpenError::Address(why.into())
}

fn login(url: &Url) -> Result<Option<(String, String)>, OpenError> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let user = plain(url.username());
    let password = plain(url.password().unwrap_or_default());
    // They go over the wire as they are, each on a line of its own.
    for (name, text) in [("user", &user), ("password", &password)] {
        if text.contains(['\n', '\r', '\0']) {
            return Err(wrong(format!("{name}: it must not have line ends in it")));
        }
    }
    Ok(Some((user, password)))
}

fn queue(url: &Url) -> Result<Arc<str>, OpenError> {
    let name = plain(url.path().trim_start_matches('/'));
    if name.is_empty() {
        return Err(wrong("queue: there is none; it comes after the host, as in /orders"));
    }
    // To the broker these are several queues, patterns or options.
    let special = name.chars().find(|letter| matches!(letter, ',' | '*' | '>' | '?' | '/'));
    let special = special.or_else(|| name.chars().find(|letter| letter.is_control()));
    match special {
        Some(letter) => Err(wrong(format!("queue: {letter:?} cannot be in a queue's name"))),
        None => Ok(name.into()),
    }
}

/// Undoes percent-encoding. A plus is a plus: this is no form.
fn plain(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parse = |uri| StompSettings::parse(uri).expect("it is right");
        let all = parse("activemq://us%40er:p%3Aa%2Bs+s@10.0.0.1:7/or.ders?prefetch=9");
        assert_eq!(all.place(), "10.0.0.1:7");
        assert_eq!(all.login, Some(("us@er".to_owned(), "p:a+s+s".to_owned())));
        assert_eq!((&*all.queue, all.prefetch, all.is_tls), ("or.ders", 9, false));
        assert_eq!(all.destination(), "/queue/or.ders");
        let few = parse("activemqs://h/q%20%26x?ca=%2Fa%2Fb.pem");
        assert_eq!((few.place().as_str(), &*few.queue), ("h:61614", "q &x"));
        assert_eq!((few.ca, few.login), (Some("/a/b.pem".into()), None));
        assert_eq!(parse("activemq://[::1]/q").place(), "::1:61613");
    }

    #[test]
    fn a_prefetch_that_is_said_is_kept() {
        let parse = |uri: &str| StompSettings::parse(uri).expect("it is right");
        let cases = [("", 700, 700), ("", 0, 1), ("", 70_000, MAX_PREFETCH)];
        for (said, usual, expected) in cases.into_iter().chain([("?prefetch=9", 700, 9)]) {
            let settings = parse(&format!("activemq://h/q{said}")).with_usual_prefetch(usual);
            assert_eq!(settings.prefetch, expected, "{said} {usual}");
        }
    }

    #[test]
    fn wrong_addresses_name_the_field_and_no_secret() {
        let cases = [
            ("stomp://u:tiger@h/q", "scheme"),
            ("activemq:///q", "host"),
            ("activemq://u:tiger@h", "queue"),
            ("activemq://u:tiger@h/", "queue"),
            ("activemq://u:tiger@h/a,b", "queue"),
            ("activemq://u:tiger@h/a/b", "queue"),
            ("activemq://u:tiger@h/a.%3E", "queue"),
            ("activemq://u:tiger%0A@h/q", "password"),
            ("activemq://u:tiger@h/q?prefetch=0", "prefetch"),
            ("activemq://u:tiger@h/q?prefetch=x", "prefetch"),
            ("activemq://u:tiger@h/q?prefetsch=1", "did you mean `prefetch`?"),
            ("activemq://u:tiger@h/q?car=1", "did you mean `ca`?"),
            ("activemq://u:tiger@h/q?ca=x", "ca"),
            ("activemqs://u:tiger@h/q?ca=", "ca"),
            ("activemq://u:tiger@h:99999/q", "port"),
            ("nonsense", "URL"),
        ];
        for (uri, field) in cases {
            let error = StompSettings::parse(uri).expect_err(uri).to_string();
            assert!(error.contains(field), "{uri}: {error}");
            assert!(!error.contains("tiger"), "{uri}: {error}");
        }
    }
}
