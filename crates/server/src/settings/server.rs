//! `[server]`, `[state]` and `[log]`: where the daemon listens, what it keeps, how it speaks.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::available;
use super::duration;
use super::reader::{Section, Value, quoted};
use super::secret::Secret;

/// `[server]`
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerSettings {
    /// Where the HTTP server listens; port 0 lets the system choose one.
    pub listen: SocketAddr,
    /// Who has it may do everything. Always there when `listen` is beyond loopback.
    pub token: Option<Secret>,
    /// Who has it may look. Only there together with `token`.
    pub read_token: Option<Secret>,
    /// How long a shutdown may take in all.
    pub drain: Duration,
    /// The certificate to serve with.
    pub tls: Option<TlsSettings>,
}

/// `[server.tls]`
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsSettings {
    /// The file of the certificate chain, in PEM.
    pub cert: PathBuf,
    /// The file of its key, in PEM.
    pub key: PathBuf,
}

/// `[state]`
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateSettings {
    /// The file of embedded queues, parked messages and events; relative to the working folder.
    pub path: PathBuf,
}

/// `[log]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogSettings {
    /// How a line looks.
    pub format: LogFormat,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    pub(super) const WORDS: [(&str, Self); 2] = [("text", Self::Text), ("json", Self::Json)];
}

/// A server that everybody could reach, and nobody would be asked for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unprotected {
    /// Where it would listen.
    pub listen: SocketAddr,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            token: None,
            read_token: None,
            drain: Duration::from_secs(55),
            tls: None,
        }
    }
}

impl Default for StateSettings {
    fn default() -> Self {
        Self { path: PathBuf::from("sluicegate.db") }
    }
}

impl ServerSettings {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        let read = Self {
            listen: section.read("listen", default.listen, address),
            token: section.read("token", None, token),
            read_token: section.read("read_token", None, token),
            drain: section.read("drain", default.drain, |value| {
                value.duration(duration::from(Duration::from_millis(1)))
            }),
            tls: section.table("tls", TlsSettings::read),
        };
        read.check(section);
        read
    }

    fn check(&self, section: &Section<'_>) {
        if self.token.is_none() && section.sound("token") {
            if let Err(unprotected) = guarded(self.listen, None) {
                let help = "set server.token, or listen on 127.0.0.1";
                section.fault("listen", &unprotected.to_string(), Some(help.to_owned()));
            }
            if self.read_token.is_some() {
                let message =
                    "means nothing without server.token: whoever has none may do everything";
                section.fault("read_token", message, None);
            }
        }
        if self.token.is_some() && self.token == self.read_token {
            section.fault("read_token", "must not be the same as server.token", None);
        }
    }

    /// The same server at another address, as the command line may want it.
    ///
    /// # Errors
    ///
    /// When that is beyond loopback and there is no token.
    pub fn listening_on(mut self, listen: SocketAddr) -> Result<Self, Unprotected> {
        guarded(listen, self.token.as_ref())?;
        self.listen = listen;
        Ok(self)
    }
}

fn guarded(listen: SocketAddr, token: Option<&Secret>) -> Result<(), Unprotected> {
    let local = listen.ip().to_canonical().is_loopback();
    if local || token.is_some() { Ok(()) } else { Err(Unprotected { listen }) }
}

impl fmt::Display for Unprotected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is beyond loopback, which needs a token", self.listen)
    }
}

impl std::error::Error for Unprotected {}

impl TlsSettings {
    fn read(section: &mut Section<'_>) -> Option<Self> {
        let cert = section.required("cert", file);
        let key = section.required("key", file);
        if section.is_there() && !available::TLS {
            section.fault_here(&format!("TLS {}", available::NOT_YET));
        }
        Some(Self { cert: cert?, key: key? })
    }
}

impl StateSettings {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self { path: section.read("path", Self::default().path, file) }
    }
}

impl LogSettings {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let format = |value: &Value<'_>| value.word(&LogFormat::WORDS);
        Self { format: section.read("format", LogFormat::default(), format) }
    }
}

fn address(value: &Value<'_>) -> Option<SocketAddr> {
    let text = value.filled()?;
    // The one name whose meaning needs nobody to be asked.
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.clone(),
    };
    let Ok(address) = numeric.parse() else {
        let message = format!("must be an IP address and a port, not {}", quoted(&text));
        return value.wrong_so(message, "as in \"127.0.0.1:8080\" or \"[::1]:8080\"");
    };
    Some(address)
}

/// A token, or none if the text is empty. It must fit into a header as it is.
fn token(value: &Value<'_>) -> Option<Option<Secret>> {
    let text = value.mask().text()?;
    if text.is_empty() {
        return Some(None);
    }
    if !text.chars().all(|c| c.is_ascii_graphic()) {
        return value.wrong("must have only visible ASCII characters, and no blanks");
    }
    Some(Some(Secret::new(text)))
}

/// A path to a file.
fn file(value: &Value<'_>) -> Option<PathBuf> {
    let text = value.filled()?;
    if text.contains('\0') || text == ":memory:" {
        return value.wrong("must be the path of a file");
    }
    Some(PathBuf::from(text))
}
