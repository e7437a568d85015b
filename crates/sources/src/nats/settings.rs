//! The address of a NATS queue: `nats://[USER:PASS@|TOKEN@]HOST:PORT?stream=S&consumer=C`.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use url::Url;

use crate::OpenError;
use crate::network::parameters;

/// The server's own default.
const DEFAULT_PORT: u16 = 4222;
/// As long as a delivery stays hidden when nobody says otherwise.
const DEFAULT_VISIBILITY: Duration = Duration::from_secs(30);
/// How many messages may be out or delayed at once. Each costs the server about a hundred bytes.
const DEFAULT_MAX_ACK_PENDING: u32 = 16_384;

const PARAMETERS: &[&str] = &[
    "stream",
    "consumer",
    "subject",
    "filter",
    "publish",
    "dead_subject",
    "attempts",
    "max_ack_pending",
    "replicas",
    "shared",
    "tls",
    "ca",
    "creds",
];

/// Where a NATS queue is, and how it is used.
#[derive(Clone)]
pub struct NatsSettings {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) login: Login,
    pub(super) stream: String,
    pub(super) consumer: String,
    /// Makes the stream where it is missing.
    pub(super) subject: Option<String>,
    /// Which of the stream's messages the consumer takes.
    pub(super) filter: Option<String>,
    pub(super) publish: Option<String>,
    pub(super) dead_subject: Option<String>,
    pub(super) max_ack_pending: u32,
    pub(super) replicas: u32,
    /// The number of attempts is written down.
    pub(super) tally: bool,
    /// Others pull from the same consumer.
    pub(super) shared: bool,
    pub(super) tls: bool,
    pub(super) ca: Option<PathBuf>,
    pub(super) visibility: Duration,
}

/// Who connects.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Login {
    Nobody,
    User { name: String, password: String },
    Token(String),
    Credentials(PathBuf),
}

impl NatsSettings {
    /// Reads an address.
    ///
    /// ```
    /// use sluicegate_sources::nats::NatsSettings;
    ///
    /// let settings = NatsSettings::parse("nats://me:secret@localhost:4222?stream=S&consumer=C")?;
    /// assert!(!format!("{settings:?}").contains("secret"));
    /// let error = NatsSettings::parse("nats://localhost?stream=S&consumr=C").unwrap_err();
    /// assert!(error.to_string().contains("did you mean `consumer`?"));
    /// # Ok::<(), sluicegate_sources::OpenError>(())
    /// ```
    ///
    /// # Errors
    /// [`OpenError::Address`] names the part that is wrong, and holds no secret.
    pub fn parse(uri: &str) -> Result<Self, OpenError> {
        // A parser's error is not shown: it may quote the password.
        let url = Url::parse(uri).map_err(|_| address("nats://HOST:PORT?stream=S&consumer=C"))?;
        if url.scheme() != "nats" {
            return Err(address("its scheme must be `nats`"));
        }
        if !matches!(url.path(), "" | "/") || url.fragment().is_some() {
            return Err(address("nothing may stand between host and `?`, nor after a `#`"));
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| address("the host is missing"))?.to_owned();
        let mut settings = Self {
            host,
            port: url.port().unwrap_or(DEFAULT_PORT),
            login: login(&url)?,
            stream: String::new(),
            consumer: String::new(),
            subject: None,
            filter: None,
            publish: None,
            dead_subject: None,
            max_ack_pending: DEFAULT_MAX_ACK_PENDING,
            replicas: 1,
            tally: true,
            shared: false,
            tls: false,
            ca: None,
            visibility: DEFAULT_VISIBILITY,
        };
        for (name, value) in parameters::read(&url, PARAMETERS)? {
            settings.set(&name, &value)?;
        }
        settings.check()?;
        Ok(settings)
    }

    /// How long a delivery stays hidden without being extended; the consumer's `ack_wait`. 30
    /// seconds if nobody says otherwise.
    #[must_use]
    pub const fn with_visibility(mut self, visibility: Duration) -> Self {
        self.visibility = visibility;
        self
    }

    /// The address without any secret.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), OpenError> {
        if value.is_empty() {
            return Err(address(format!("`{name}` is empty")));
        }
        let text = || value.to_owned();
        match name {
            "stream" => self.stream = text(),
            "consumer" => self.consumer = text(),
            "subject" => self.subject = Some(subject(name, value)?),
            "filter" => self.filter = Some(subject(name, value)?),
            "publish" => self.publish = Some(concrete(name, value)?),
            "dead_subject" => self.dead_subject = Some(concrete(name, value)?),
            "attempts" if matches!(value, "stream" | "memory") => self.tally = value == "stream",
            "attempts" => return Err(address("`attempts` must be `stream` or `memory`")),
            "max_ack_pending" => self.max_ack_pending = number(name, value, 1_000_000)?,
            "replicas" => self.replicas = number(name, value, 5)?,
            "shared" => self.shared = flag(name, value)?,
            "tls" => self.tls = flag(name, value)?,
            "ca" => self.ca = Some(value.into()),
            "creds" if self.login == Login::Nobody => {
                self.login = Login::Credentials(value.into());
            }
            "creds" => return Err(address("`creds` and a user or token exclude each other")),
            other => return Err(address(format!("`{other}` is of no use"))),
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), OpenError> {
        // Having an authority to trust is wanting to be told whom one talks to.
        self.tls |= self.ca.is_some();
        for (name, value) in [("stream", &self.stream), ("consumer", &self.consumer)] {
            if value.is_empty() {
                return Err(address(format!("`{name}=` is missing")));
            }
            let forbidden = |c: char| c.is_whitespace() || c.is_control() || ".*>/\\".contains(c);
            if value.len() > 255 || value.contains(forbidden) {
                return Err(address(format!(
                    "`{name}` must be at most 255 characters without blanks, `.`, `*`, `>`, `/`, `\\`"
                )));
            }
        }
        let (dead, taken) = (&self.dead_subject, self.filter.as_ref().or(self.subject.as_ref()));
        if let (Some(dead), Some(taken)) = (dead, taken)
            && subject_matches(taken, dead)
        {
            return Err(address("`dead_subject` would bring dead messages back into the queue"));
        }
        Ok(())
    }
}

fn address(why: impl Into<String>) -> OpenError {
    OpenError::Address(why.into())
}

fn login(url: &Url) -> Result<Login, OpenError> {
    let decoded = |text: &str, what: &str| {
        percent_decode(text).ok_or_else(|| address(format!("the {what} is no text")))
    };
    match (url.username(), url.password()) {
        ("", None) => Ok(Login::Nobody),
        ("", Some(_)) => Err(address("the user is missing before the password")),
        (token, None) => Ok(Login::Token(decoded(token, "token")?)),
        (name, Some(password)) => Ok(Login::User {
            name: decoded(name, "user")?,
            password: decoded(password, "password")?,
        }),
    }
}

/// The text behind `%XX`.
pub(super) fn percent_decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

fn number(name: &str, value: &str, most: u32) -> Result<u32, OpenError> {
    let number = value.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| address(format!("`{name}` must be a number from 1 to {most}")))
}

fn flag(name: &str, value: &str) -> Result<bool, OpenError> {
    value.parse().map_err(|_| address(format!("`{name}` must be `true` or `false`")))
}

fn subject(name: &str, value: &str) -> Result<String, OpenError> {
    let whole = |token: &str| {
        !token.is_empty() && !token.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    let tokens: Vec<&str> = value.split('.').collect();
    let last = tokens.len() - 1;
    let wild = |(n, token): (usize, &&str)| *token == ">" && n != last;
    if !tokens.iter().all(|token| whole(token)) || tokens.iter().enumerate().any(wild) {
        return Err(address(format!("`{name}` is no subject, such as `orders.*`")));
    }
    Ok(value.to_owned())
}

fn concrete(name: &str, value: &str) -> Result<String, OpenError> {
    let subject = subject(name, value)?;
    if is_pattern(&subject) {
        return Err(address(format!("`{name}` must be one subject, without `*` and `>`")));
    }
    Ok(subject)
}

/// Whether a subject stands for many.
pub(super) fn is_pattern(subject: &str) -> bool {
    subject.split('.').any(|token| matches!(token, "*" | ">"))
}

/// Whether a pattern takes in a subject.
pub(super) fn subject_matches(pattern: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for wanted in pattern.split('.') {
        match (wanted, tokens.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (wanted, Some(token)) if wanted == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

impl fmt::Debug for NatsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSettings")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("stream", &self.stream)
            .field("consumer", &self.consumer)
            .field("visibility", &self.visibility)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(uri: &str) -> String {
        NatsSettings::parse(uri).unwrap_err().to_string()
    }

    #[test]
    fn an_address_is_read() {
        let uri = "nats://u%20s:p%40ss@h?stream=S&consumer=C&subject=o.*&filter=o.1&publish=o.2\
                   &dead_subject=dead&max_ack_pending=7&replicas=3&shared=true&ca=/x.pem";
        let settings = NatsSettings::parse(uri).unwrap();
        assert_eq!(settings.place(), "h:4222");
        let (name, password) = ("u s".to_owned(), "p@ss".to_owned());
        assert!(settings.login == Login::User { name, password });
        assert_eq!((settings.max_ack_pending, settings.replicas), (7, 3));
        assert!(settings.shared && settings.tls);
        assert!(!format!("{settings:?}").contains("p@ss"));
        let token = NatsSettings::parse("nats://t0ken@[::1]:1?stream=S&consumer=C").unwrap();
        assert!(token.login == Login::Token("t0ken".into()));
        assert_eq!(token.place(), "[::1]:1");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("amqp://h?stream=S&consumer=C", "scheme"),
            ("nats://h/x?stream=S&consumer=C", "between host"),
            ("nats://?stream=S&consumer=C", "host"),
            ("nats://h?consumer=C", "`stream=` is missing"),
            ("nats://h?stream=S", "`consumer=` is missing"),
            ("nats://h?stream=a.b&consumer=C", "`stream` must be"),
            ("nats://h?stream=S&consumer=C&subject=a..b", "`subject` is no subject"),
            ("nats://h?stream=S&consumer=C&subject=a.>.b", "`subject` is no subject"),
            ("nats://h?stream=S&consumer=C&publish=a.*", "`publish` must be one"),
            ("nats://h?stream=S&consumer=C&subject=a.>&dead_subject=a.d", "`dead_subject`"),
            ("nats://h?stream=S&consumer=C&max_ack_pending=0", "`max_ack_pending`"),
            ("nats://h?stream=S&consumer=C&shared=yes", "`shared` must be"),
            ("nats://h?stream=S&consumer=C&attempts=no", "`attempts` must be"),
            ("nats://h?stream=S&consumer=C&strem=X", "did you mean `stream`?"),
            ("nats://h?stream=S&consumer=C&something_else=X", "known are stream"),
            ("nats://u:p@h?stream=S&consumer=C&creds=/x", "exclude"),
            ("nats://h?stream=&consumer=C", "`stream` is empty"),
        ];
        for (uri, part) in cases {
            assert!(why(uri).contains(part), "{uri}: {}", why(uri));
        }
        assert!(!why("nats://me:tiger@h:x?stream=S&consumer=C").contains("tiger"));
    }

    #[test]
    fn patterns_take_in_subjects() {
        let cases = [
            ("a.b", "a.b", true),
            ("a.*", "a.b", true),
            ("a.>", "a.b.c", true),
            (">", "a", true),
            ("a.>", "a", false),
            ("a.*", "a.b.c", false),
            ("a", "a.b", false),
            ("a.b", "a", false),
        ];
        for (pattern, subject, taken) in cases {
            assert_eq!(subject_matches(pattern, subject), taken, "{pattern} {subject}");
        }
    }
}
