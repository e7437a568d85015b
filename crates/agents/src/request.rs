//! A request: who asks, in which session, how urgently, until when.
//!
//! `docs/rules.md#agents-2`, `docs/rules.md#agents-3`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluicegate_tasks::Class;

use crate::RequestError;

/// How long a message may be, in bytes.
pub const MAX_MESSAGE: usize = 1024 * 1024;
/// How long it may be where it is an argument: what the system allows for one.
pub(crate) const MAX_ARGUMENT: usize = 128 * 1024 - 1;
const MAX_SESSION: usize = 128;
const MAX_NAME: usize = 256;

/// Whom to be fair to: a user of a platform. The chat is carried along.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tenant {
    platform: String,
    user_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    chat_id: Option<String>,
}

/// To whom a session belongs: to a chat where one is given, else to its tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Owner {
    /// A user of a platform.
    User {
        /// The platform.
        platform: String,
        /// The user.
        id: String,
    },
    /// All who are in a chat of a platform.
    Chat {
        /// The platform.
        platform: String,
        /// The chat.
        id: String,
    },
}

/// How urgent a request is; the paper's `RequestPriority`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Priority {
    /// Health checks and internal calls.
    System,
    /// Requests of those who run the system.
    Admin,
    /// Requests of users.
    #[default]
    Normal,
    /// Work that can wait.
    Low,
}

/// The name of a session: 1 to 128 of `[A-Za-z0-9._:-]`, not beginning with `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(Arc<str>);

/// What a caller asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Who asks.
    pub tenant: Tenant,
    /// The session to go on with; without one, a new one.
    pub session: Option<SessionId>,
    /// How urgent it is.
    pub priority: Priority,
    /// The prompt.
    pub message: Arc<str>,
    /// How long it may take from admission on: waiting and running together.
    pub timeout: Option<Duration>,
    /// Whether it may be tried once more when its worker crashed before it said anything.
    pub idempotent: bool,
    /// The caller's trace, as in the header `traceparent`: a program that is started for it finds it in its environment.
    pub traceparent: Option<Arc<str>>,
}

/// A request that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its id.
    pub id: Arc<str>,
    /// Its session.
    pub session: SessionId,
    /// What was asked for.
    pub ask: Ask,
}

impl Tenant {
    /// A user of a platform, and the chat if it is in one.
    ///
    /// # Errors
    /// [`RequestError::Invalid`], if one of them is no name.
    pub fn new(platform: &str, user: &str, chat: Option<&str>) -> Result<Self, RequestError> {
        let wrong = |field: &str, why: &str| RequestError::invalid(field, why);
        let of_platform = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if platform.is_empty() || platform.len() > 64 || !platform.chars().all(of_platform) {
            return Err(wrong("tenant.platform", "must be a name, as in \"telegram\""));
        }
        let is_name = |name: &str| {
            !name.trim().is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control)
        };
        if !is_name(user) {
            return Err(wrong("tenant.userId", "must be 1 to 256 printable characters"));
        }
        if chat.is_some_and(|chat| !is_name(chat)) {
            return Err(wrong("tenant.chatId", "must be 1 to 256 printable characters"));
        }
        Ok(Self {
            platform: platform.into(),
            user_id: user.into(),
            chat_id: chat.map(str::to_owned),
        })
    }

    /// A tenant as in `telegram:42`.
    ///
    /// # Errors
    /// [`RequestError::Invalid`], if it is none.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let (platform, user) = text.split_once(':').ok_or_else(|| {
            RequestError::invalid("tenant", "must be platform:userId, as in \"telegram:42\"")
        })?;
        Self::new(platform, user, None)
    }

    /// Its id: `platform:userId`.
    #[must_use]
    pub fn id(&self) -> Arc<str> {
        self.to_string().into()
    }

    /// To whom the sessions belong that it uses.
    #[must_use]
    pub fn owner(&self) -> Owner {
        let platform = self.platform.clone();
        match &self.chat_id {
            Some(chat) => Owner::Chat { platform, id: chat.clone() },
            None => Owner::User { platform, id: self.user_id.clone() },
        }
    }
}

impl Priority {
    /// All of them, first to last.
    pub const ALL: [Self; 4] = [Self::System, Self::Admin, Self::Normal, Self::Low];

    /// A priority by its name, in upper or lower case.
    ///
    /// # Errors
    /// [`RequestError::Invalid`], if there is none of that name.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let found = Self::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            RequestError::invalid("priority", "must be SYSTEM, ADMIN, NORMAL or LOW")
        })
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "SYSTEM",
            Self::Admin => "ADMIN",
            Self::Normal => "NORMAL",
            Self::Low => "LOW",
        }
    }

    pub(crate) const fn class(self) -> Class {
        match self {
            Self::System => Class::System,
            Self::Admin => Class::Admin,
            Self::Normal => Class::Normal,
            Self::Low => Class::Low,
        }
    }
}

impl SessionId {
    /// A session by its name.
    ///
    /// # Errors
    /// [`RequestError::Invalid`], if it is none.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
        let fits = (1..=MAX_SESSION).contains(&text.len());
        if fits && !text.starts_with('-') && text.chars().all(allowed) {
            return Ok(Self(text.into()));
        }
        let rule = "must be 1 to 128 of A-Z a-z 0-9 . _ : - and not begin with -";
        Err(RequestError::invalid("sessionId", rule))
    }

    /// A session that nobody had before.
    #[must_use]
    pub fn fresh() -> Self {
        Self(uuid::Uuid::new_v4().to_string().into())
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.0
    }
}

impl Ask {
    /// A request of a tenant with a message, and nothing else said of it.
    #[must_use]
    pub fn new(tenant: Tenant, message: impl Into<Arc<str>>) -> Self {
        Self {
            tenant,
            session: None,
            priority: Priority::Normal,
            message: message.into(),
            timeout: None,
            idempotent: false,
            traceparent: None,
        }
    }

    /// With the caller's trace. What cannot be one is left out.
    #[must_use]
    pub fn traced(self, traceparent: Option<&str>) -> Self {
        let part = |c: char| c.is_ascii_hexdigit() || c == '-';
        let fits = |text: &&str| text.len() >= 55 && text.len() <= 128 && text.chars().all(part);
        Self { traceparent: traceparent.filter(fits).map(Into::into), ..self }
    }

    /// Checks what can be known at once. `command` is where the prompt becomes an argument, if it does.
    pub(crate) fn check(&self, command: Option<&[String]>) -> Result<(), RequestError> {
        let as_argument = command.is_some();
        let (size, max) =
            (self.message.len(), if as_argument { MAX_ARGUMENT } else { MAX_MESSAGE });
        if self.message.trim().is_empty() {
            return Err(RequestError::invalid("message", "must not be empty"));
        }
        if size > max {
            return Err(RequestError::TooLarge { size: size as u64, limit: max as u64 });
        }
        if as_argument && self.message.contains('\0') {
            return Err(RequestError::invalid(
                "message",
                "has a NUL, and is handed over as an argument",
            ));
        }
        if self.message.starts_with('-') && command.is_some_and(takes_options) {
            return Err(RequestError::invalid(
                "message",
                "begins with -, and the agent would take it for an option: begin with something else, or have \
                 agents.prompt = \"stdin\"",
            ));
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(RequestError::invalid("timeoutMs", "must be at least 1"));
        }
        Ok(())
    }
}

/// Whether a prompt is an argument of its own, and not behind the end of the options.
fn takes_options(command: &[String]) -> bool {
    let prompt = command.iter().position(|argument| argument == "{prompt}");
    prompt.is_some_and(|at| !command[..at].iter().any(|argument| argument == "--"))
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.platform, self.user_id)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SessionId {
    type Error = RequestError;

    fn try_from(text: String) -> Result<Self, RequestError> {
        Self::parse(&text)
    }
}

impl From<SessionId> for String {
    fn from(session: SessionId) -> Self {
        session.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let long = "x".repeat(129);
        for (session, ok) in [
            ("a", true),
            ("A.b_c:d-9", true),
            ("", false),
            ("-rf", false),
            ("a b", false),
            ("ä", false),
            (&long[..128], true),
            (&long, false),
        ] {
            assert_eq!(SessionId::parse(session).is_ok(), ok, "{session}");
        }
        for (tenant, ok) in [
            ("telegram:42", true),
            ("web:a:b", true),
            ("telegram", false),
            (":42", false),
            ("telegram:", false),
            ("tele gram:1", false),
            ("web:\n", false),
        ] {
            assert_eq!(Tenant::parse(tenant).is_ok(), ok, "{tenant}");
        }
        assert_eq!(Priority::parse("admin"), Ok(Priority::Admin));
        assert!(Priority::parse("urgent").is_err());
    }

    #[test]
    fn a_session_belongs_to_the_chat_where_one_is_given() {
        let of = |user, chat| Tenant::new("max", user, chat).unwrap().owner();
        assert_eq!(of("1", Some("c")), of("2", Some("c")));
        assert_ne!(of("1", Some("2")), of("2", None));
    }

    #[test]
    fn a_message_has_a_size() {
        let ask = |size: usize| Ask::new(Tenant::parse("web:1").unwrap(), "x".repeat(size));
        assert_eq!(ask(MAX_MESSAGE).check(None), Ok(()));
        let refused = ask(5 * MAX_MESSAGE).check(None).unwrap_err();
        assert_eq!(refused.code(), "too_large");
        assert_eq!(ask(MAX_ARGUMENT + 1).check(Some(&[])).unwrap_err().code(), "too_large");
        assert_eq!(ask(0).check(None).unwrap_err().code(), "invalid_field");
    }

    #[test]
    fn a_message_is_no_option() {
        let ask = |message: &str| Ask::new(Tenant::parse("web:1").unwrap(), message);
        let command = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (words, message, ok) in [
            ("agent {prompt}", "--settings=x", false),
            ("agent {prompt}", "-x", false),
            ("agent {prompt}", "a - b", true),
            ("agent --ask={prompt}", "-x", true),
            ("agent -- {prompt}", "-x", true),
        ] {
            let checked = ask(message).check(Some(&command(words)));
            assert_eq!(checked.is_ok(), ok, "{words}: {message}");
        }
        assert_eq!(ask("-x").check(None), Ok(()));
    }
}
