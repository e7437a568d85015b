//! Which queue, and how it is received from.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::config::Credentials;
use url::Url;

use crate::OpenError;
use crate::network::parameters;

/// What the service allows at most, from a receipt to the last extension of it.
pub(super) const LONGEST_WINDOW: Duration = Duration::from_secs(43_200);
/// The same in seconds.
pub(super) const LONGEST_HIDE: u64 = LONGEST_WINDOW.as_secs();
const DEFAULT_WINDOW: Duration = Duration::from_secs(30);
/// How long a poll waits for a first message at most; so the service wants it.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// A stop waits for the polls that are under way.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);
const PARAMETERS: [&str; 3] = ["region", "ca", "wait"];
const SHAPE: &str = "sqs+https://HOST/ACCOUNT/NAME?region=R";

/// A queue's address and how it is received from.
///
/// ```
/// use sluicegate_sources::sqs::SqsSettings;
///
/// let uri = "sqs+https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo";
/// let settings = SqsSettings::parse(uri)?.with_visibility(std::time::Duration::from_secs(60));
/// assert!(settings.is_fifo());
/// assert!(SqsSettings::parse("sqs+https://host/1/orders?regoin=x").is_err());
/// # Ok::<(), sluicegate_sources::OpenError>(())
/// ```
#[derive(Clone)]
pub struct SqsSettings {
    /// Scheme, host and port.
    pub(super) endpoint: String,
    pub(super) account: String,
    pub(super) name: Arc<str>,
    pub(super) region: Option<String>,
    pub(super) ca: Option<PathBuf>,
    pub(super) window: Duration,
    pub(super) wait: Duration,
    pub(super) credentials: Option<Credentials>,
}

impl SqsSettings {
    /// Reads a queue URI: `sqs+https://HOST/ACCOUNT/NAME?region=R`, or `sqs+http://` for an
    /// emulator. The region may be left out where the host's name or the AWS configuration has it;
    /// `ca` is a file of certificates to trust beside those of the system; `wait` is for how many seconds
    /// a poll waits for a first message (10).
    ///
    /// # Errors
    /// Names the part that is wrong.
    pub fn parse(uri: &str) -> Result<Self, OpenError> {
        let wrong = |why: String| OpenError::Address(why);
        let shape = |why: &str| OpenError::Address(format!("{why}: it is {SHAPE}"));
        let plain = uri.strip_prefix("sqs+").filter(|rest| {
            let scheme = rest.split("://").next();
            rest.contains("://") && matches!(scheme, Some("http" | "https"))
        });
        let plain = plain.ok_or_else(|| shape("scheme: neither sqs+https nor sqs+http"))?;
        // The parser's words hold nothing of the text, which may hold a secret.
        let url = Url::parse(plain).map_err(|error| shape(&error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("user: credentials come from the AWS configuration".to_owned()));
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| shape("host: it is missing"))?;
        let mut parts = url.path().trim_matches('/').split('/');
        let (Some(account), Some(name), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(shape("path: it is not an account and a name"));
        };
        if account.is_empty() || !account.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(shape("account: it is not a number"));
        }
        check_name(name)?;
        let mut settings = Self {
            endpoint: url[..url::Position::BeforePath].to_owned(),
            account: account.to_owned(),
            name: name.into(),
            region: region_of(host),
            ca: None,
            window: DEFAULT_WINDOW,
            wait: DEFAULT_WAIT,
            credentials: None,
        };
        let mut parameters = parameters::read(&url, &PARAMETERS)?;
        if let Some((name, _)) = parameters.iter().find(|(_, value)| value.is_empty()) {
            return Err(wrong(format!("{name}: it is empty")));
        }
        settings.region = parameters.remove("region").or(settings.region);
        settings.ca = parameters.remove("ca").map(PathBuf::from);
        if let Some(wait) = parameters.remove("wait") {
            let seconds =
                wait.parse().ok().filter(|wait| (1..=LONGEST_WAIT.as_secs()).contains(wait));
            let why = || wrong(format!("wait: seconds from 1 to 20, not {wait:?}"));
            settings.wait = Duration::from_secs(seconds.ok_or_else(why)?);
        }
        Ok(settings)
    }

    /// How long a delivery stays hidden without being extended: whole seconds, rounded up, at most
    /// 12 hours.
    #[must_use]
    pub fn with_visibility(mut self, visibility: Duration) -> Self {
        let seconds = seconds_up(visibility).clamp(1, LONGEST_WINDOW.as_secs());
        self.window = Duration::from_secs(seconds);
        self
    }

    /// How long a receive waits for a first message: whole seconds, rounded up, 1 to 20.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = Duration::from_secs(seconds_up(wait).clamp(1, LONGEST_WAIT.as_secs()));
        self
    }

    /// Uses these credentials in place of those of the AWS configuration.
    #[must_use]
    pub fn with_credentials(
        mut self,
        access_key_id: impl Into<String>,
        secret_access_key: impl Into<String>,
        session_token: Option<String>,
    ) -> Self {
        let (id, secret) = (access_key_id.into(), secret_access_key.into());
        self.credentials = Some(Credentials::new(id, secret, session_token, None, "settings"));
        self
    }

    /// Whether the queue is a FIFO queue, which its name says.
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.name.ends_with(".fifo")
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the service calls the queue.
    pub(super) fn queue_url(&self) -> String {
        format!("{}/{}/{}", self.endpoint, self.account, self.name)
    }

    pub(super) fn uses_tls(&self) -> bool {
        self.endpoint.starts_with("https:")
    }
}

impl fmt::Debug for SqsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsSettings")
            .field("queue_url", &self.queue_url())
            .field("region", &self.region)
            .field("ca", &self.ca)
            .field("window", &self.window)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

/// Whole seconds, never less than asked for.
pub(super) fn seconds_up(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

fn check_name(name: &str) -> Result<(), OpenError> {
    let stem = name.strip_suffix(".fifo").unwrap_or(name);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if stem.is_empty() || name.len() > 80 || !stem.bytes().all(allowed) {
        let why = "name: a queue's name has 1 to 80 letters, digits, - and _, and may end in .fifo";
        return Err(OpenError::Address(why.to_owned()));
    }
    Ok(())
}

/// The region that is a part of the service's own host names.
fn region_of(host: &str) -> Option<String> {
    let rest = host.strip_suffix(".amazonaws.com").or(host.strip_suffix(".amazonaws.com.cn"))?;
    let region = rest.strip_prefix("sqs.").or(rest.strip_prefix("sqs-fips."));
    let region = region.or(rest.strip_suffix(".queue"))?;
    (!region.is_empty() && !region.contains('.')).then(|| region.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let cases = [
            ("sqs+http://127.0.0.1:4566/000000000000/q?region=us-east-1", Some("us-east-1"), false),
            (
                "sqs+https://sqs.eu-west-1.amazonaws.com/123456789012/q.fifo",
                Some("eu-west-1"),
                true,
            ),
            ("sqs+https://sqs-fips.us-gov-west-1.amazonaws.com/1/q", Some("us-gov-west-1"), false),
            ("sqs+https://sqs.cn-north-1.amazonaws.com.cn/1/q", Some("cn-north-1"), false),
            ("sqs+https://eu-west-1.queue.amazonaws.com/1/q/", Some("eu-west-1"), false),
            ("sqs+https://sqs.eu-west-1.amazonaws.com/1/q?region=x", Some("x"), false),
            ("sqs+https://queues.example.com/1/q?ca=/etc/ca.pem", None, false),
        ];
        for (uri, region, fifo) in cases {
            let settings = SqsSettings::parse(uri).unwrap();
            assert_eq!(settings.region.as_deref(), region, "{uri}");
            assert_eq!(settings.is_fifo(), fifo, "{uri}");
            assert!(uri[4..].starts_with(&settings.queue_url()), "{uri}: {}", settings.queue_url());
        }
    }

    #[test]
    fn wrong_addresses_name_the_part() {
        let cases = [
            ("sqs:orders", "scheme"),
            ("sqs+ftp://host/1/q", "scheme"),
            ("sqs+https:///1/q", "path"),
            ("sqs+https://user:hush@host/1/q", "user"),
            ("sqs+https://host/q", "path"),
            ("sqs+https://host/1/2/q", "path"),
            ("sqs+https://host/a-b/q", "account"),
            ("sqs+https://host/1/q.x", "name"),
            ("sqs+https://host/1/.fifo", "name"),
            ("sqs+https://host/1/q?regoin=x", "did you mean `region`?"),
            ("sqs+https://host/1/q?caa=x", "did you mean `ca`?"),
            ("sqs+https://host/1/q?region=", "region"),
        ];
        for (uri, part) in cases {
            let error = SqsSettings::parse(uri).unwrap_err();
            let OpenError::Address(why) = &error else { panic!("{uri}: {error}") };
            assert!(why.contains(part), "{uri}: {why}");
            assert!(!why.contains("hush"), "{uri}: {why}");
        }
    }

    #[test]
    fn times_are_whole_seconds_and_secrets_are_not_shown() {
        let settings = SqsSettings::parse("sqs+http://host/1/q").unwrap();
        let of = |ms| settings.clone().with_visibility(Duration::from_millis(ms)).window.as_secs();
        assert_eq!([of(0), of(1), of(1000), of(1001), of(u64::MAX)], [1, 1, 1, 2, 43_200]);
        let wait = |ms| settings.clone().with_wait(Duration::from_millis(ms)).wait.as_secs();
        assert_eq!([wait(0), wait(1001), wait(99_999)], [1, 2, 20]);
        let shown = settings.with_credentials("key", "hush", Some("token".into()));
        let shown = format!("{shown:?}");
        assert!(!shown.contains("hush") && !shown.contains("token"), "{shown}");
    }
}
