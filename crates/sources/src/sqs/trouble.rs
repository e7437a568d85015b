//! What an error of the service means for whoever asked.

use std::error::Error;
use std::fmt;
use std::io;

use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use sluicegate_dispatch::SourceError;

use crate::OpenError;

/// A call that failed, in words without any secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// There is no such queue.
    Missing(String),
    /// Only a person can help.
    Refused(String),
    /// The service was not reached, or is too busy: trying again may help. Whether it did what it
    /// was asked is not known.
    Passing(String),
}

/// At most so much of what the service says is repeated.
const LONGEST_WORDS: usize = 300;

const RIGHTS: &str = "allow sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility, \
                      sqs:GetQueueAttributes and, to publish, sqs:SendMessage";

impl Trouble {
    pub(super) fn of<E>(doing: &str, error: &SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        match error {
            SdkError::ServiceError(answer) => {
                let (code, words) = (error.code().unwrap_or("no code"), error.message());
                Self::of_answer(doing, answer.raw().status().as_u16(), code, words)
            }
            SdkError::TimeoutError(_) => Self::Passing(format!("{doing}: no answer in time")),
            SdkError::ResponseError(answer) => {
                let status = answer.raw().status();
                Self::Passing(format!("{doing}: an answer that is none of SQS (HTTP {status})"))
            }
            SdkError::ConstructionFailure(_) => Self::Refused(format!("{doing}: {}", words(error))),
            _ => Self::of_failure(doing, error),
        }
    }

    fn of_answer(doing: &str, status: u16, code: &str, words: Option<&str>) -> Self {
        let code = code.rsplit(['#', '.']).next().unwrap_or(code);
        // What the service says of a signature repeats the request with its session token.
        let refused = |help: &str| Self::Refused(format!("{doing}: {code}: {help}"));
        match code {
            "QueueDoesNotExist" | "NonExistentQueue" => {
                Self::Missing(format!("{doing}: there is no such queue ({code})"))
            }
            "AccessDenied" | "AccessDeniedException" | "KmsAccessDenied" => refused(RIGHTS),
            "InvalidClientTokenId"
            | "UnrecognizedClientException"
            | "SignatureDoesNotMatch"
            | "IncompleteSignature"
            | "InvalidSecurity"
            | "InvalidAccessKeyId"
            | "MissingAuthenticationToken"
            | "MissingAuthenticationTokenException"
            | "ExpiredToken"
            | "ExpiredTokenException"
            | "RequestExpired" => {
                refused("check the AWS credentials, the region and this machine's clock")
            }
            _ => {
                let told = words.map(shorten).unwrap_or_default();
                let text = format!("{doing}: {code} (HTTP {status}) {told}");
                let text = text.trim_end().to_owned();
                let busy = ["Throttl", "OverLimit", "SlowDown", "Timeout"];
                let is_busy = busy.iter().any(|busy| code.contains(busy));
                if status >= 500 || status == 429 || is_busy {
                    Self::Passing(text)
                } else {
                    Self::Refused(text)
                }
            }
        }
    }

    fn of_failure<E: Error + 'static>(doing: &str, error: &SdkError<E>) -> Self
    where
        SdkError<E>: Error,
    {
        if let Some(why) = certificate_error(error) {
            let help = "give the file of its authority as ca=FILE, or install it on this machine";
            return Self::Refused(format!("{doing}: the server's certificate: {why}; {help}"));
        }
        let words = words(error);
        if words.contains("credentials") {
            let help = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role";
            return Self::Refused(format!("{doing}: no AWS credentials were found: {help}"));
        }
        Self::Passing(format!("{doing}: {words}"))
    }

    fn text(&self) -> &str {
        match self {
            Self::Missing(text) | Self::Refused(text) | Self::Passing(text) => text,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl From<Trouble> for OpenError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Passing(text) => Self::Unreachable(text),
            Trouble::Missing(text) | Trouble::Refused(text) => Self::Refused(text),
        }
    }
}

impl From<Trouble> for SourceError {
    fn from(trouble: Trouble) -> Self {
        Self::new(trouble)
    }
}

fn words(error: impl Error) -> String {
    let all = DisplayErrorContext(error).to_string();
    // What follows is the same again, as a dump.
    shorten(all.split(" (").next().unwrap_or(&all))
}

fn shorten(words: &str) -> String {
    words.chars().take(LONGEST_WORDS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Says why the server's certificate was refused, if it was.
fn certificate_error(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref() {
            return Some(why.to_string());
        }
        // An I/O error answers for the source of what it holds, not for what it holds.
        let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = held.map(|held| held as &(dyn Error + 'static)).or_else(|| error.source());
    }
    None
}
