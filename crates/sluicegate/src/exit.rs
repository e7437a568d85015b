//! How a command ends: the codes that scripts hold on to.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    /// What is said on standard error; `None` when all was said.
    message: Option<String>,
}

const FAILED: u8 = 1;
const BAD_INPUT: u8 = 2;
const UNREACHABLE: u8 = 3;

/// What can become of a request to an agent, by the server's codes. Hosts such as OpenClaw tell them apart.
const REQUESTS: [(&str, u8); 7] = [
    ("tenant_queue_full", 10),
    ("global_queue_full", 11),
    ("rate_limited", 12),
    ("queue_timeout", 13),
    ("execution_timeout", 14),
    ("worker_crash", 15),
    ("shutting_down", 16),
];

impl Failure {
    /// It was tried, and failed.
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self { code: FAILED, message: Some(message.to_string()) }
    }

    /// What was given cannot be right: an argument, a message, a configuration.
    pub(crate) fn bad_input(message: impl fmt::Display) -> Self {
        Self { code: BAD_INPUT, message: Some(message.to_string()) }
    }

    /// The server could not be reached.
    pub(crate) fn unreachable(message: impl fmt::Display) -> Self {
        Self { code: UNREACHABLE, message: Some(message.to_string()) }
    }

    /// Something that has an exit code of its own.
    pub(crate) fn with_code(code: u8, message: impl fmt::Display) -> Self {
        Self { code, message: Some(message.to_string()) }
    }

    /// The exit code of what became of a request, where it has one of its own.
    pub(crate) fn code_of_request(code: &str) -> Option<u8> {
        REQUESTS.iter().find(|(known, _)| *known == code).map(|(_, exit)| *exit)
    }

    /// Whether it is that the server could not be reached.
    pub(crate) const fn is_unreachable(&self) -> bool {
        self.code == UNREACHABLE
    }

    /// What is to be said.
    pub(crate) fn words(&self) -> &str {
        self.message.as_deref().unwrap_or_default().trim_end()
    }

    /// The same, said in the log.
    pub(crate) fn logged(self) -> Self {
        if self.message.is_some() {
            tracing::error!(target: "sluicegate", fatal = true, "{}", self.words());
        }
        self.told()
    }

    /// The same, when the user has been told already.
    pub(crate) fn told(self) -> Self {
        Self { message: None, ..self }
    }
}

/// Says what is left to say, and gives the code.
pub(crate) fn code(ended: Result<(), Failure>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, message }) => {
            if let Some(message) = message {
                eprintln!("sluicegate: {}", message.trim_end());
            }
            ExitCode::from(code)
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let failure = Self::failed(&error);
        // Whoever reads has enough: `sluicegate inflight | head`.
        if error.kind() == io::ErrorKind::BrokenPipe { failure.told() } else { failure }
    }
}
