//! How the service is reached: credentials, TLS, deadlines; and the calls about the queue itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Builder, Region, StalledStreamProtectionConfig};
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode};
use rustls::RootCertStore;
use sluicegate_dispatch::Depth;

use super::settings::{SqsSettings, seconds_up};
use super::trouble::Trouble;
use crate::OpenError;
use crate::network::tls;

const CONNECT: Duration = Duration::from_secs(3);
/// One try of a call that does not wait for messages, and all of its tries together.
const ONE_TRY: Duration = Duration::from_secs(10);
const ALL_TRIES: Duration = Duration::from_secs(20);
const TRIES: u32 = 3;
/// How long an answer may take beyond the wait of a poll.
const POLL_SLACK: Duration = Duration::from_secs(5);

/// A client with the queue it is for.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) settings: SqsSettings,
    pub(super) queue_url: String,
}

/// What the queue says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// Where messages that will never work go, if it keeps them.
    pub(super) dead_letters: Option<Arc<str>>,
}

/// What makes a poll that is repeated the same poll, for FIFO queues: an answer that was lost is
/// given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PollId {
    pub(super) text: String,
    pub(super) max: usize,
}

impl Link {
    /// A client. Reaches nothing yet, but where the AWS configuration asks another machine.
    pub(super) async fn new(settings: SqsSettings) -> Result<Self, OpenError> {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT)
            .operation_attempt_timeout(ONE_TRY)
            .operation_timeout(ALL_TRIES)
            .build();
        // Credentials may come from a service that speaks TLS though the queue does not.
        let http = match settings.uses_tls() || settings.credentials.is_none() {
            true => aws_smithy_http_client::Builder::new()
                .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
                .tls_context(trusted(&settings)?)
                .build_https(),
            false => aws_smithy_http_client::Builder::new().build_http(),
        };
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http)
            .timeout_config(timeouts)
            .retry_config(RetryConfig::standard().with_max_attempts(TRIES))
            // A poll is silent while it waits, and every call has a deadline.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        if let Some(region) = &settings.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(credentials) = &settings.credentials {
            loader = loader.credentials_provider(credentials.clone());
        }
        let shared = loader.load().await;
        if shared.region().is_none() {
            let why = "region: it is neither in the address, as region=R, nor in AWS_REGION";
            return Err(OpenError::Address(why.to_owned()));
        }
        let config = Builder::from(&shared).endpoint_url(&settings.endpoint).build();
        let queue_url = settings.queue_url();
        Ok(Self { client: Client::from_conf(config), settings, queue_url })
    }

    /// Looks at the queue.
    pub(super) async fn look(&self) -> Result<Look, Trouble> {
        let asked = self.client.get_queue_attributes().queue_url(&self.queue_url);
        let asked = asked.attribute_names(QueueAttributeName::All).send().await;
        let answer = asked.map_err(|error| Trouble::of("looking at the queue", &error))?;
        let policy = answer.attributes.as_ref();
        let policy = policy.and_then(|all| all.get(&QueueAttributeName::RedrivePolicy));
        let dead_letters = policy.and_then(|policy| self.target_of(policy));
        Ok(Look { dead_letters })
    }

    /// The queue that a redrive policy names. It is in the same region, so it is reached the same
    /// way.
    fn target_of(&self, policy: &str) -> Option<Arc<str>> {
        let policy: serde_json::Value = serde_json::from_str(policy).ok()?;
        let arn = policy.get("deadLetterTargetArn")?.as_str()?;
        let mut parts = arn.rsplit(':');
        let (name, account) = (parts.next()?, parts.next()?);
        Some(format!("{}/{account}/{name}", self.settings.endpoint).into())
    }

    /// Looks at the queue, and creates it where there is none.
    pub(super) async fn look_or_create(&self) -> Result<Look, Trouble> {
        let missing = match self.look().await {
            Err(Trouble::Missing(_)) => "creating the queue",
            other => return other,
        };
        let window = self.settings.window.as_secs().to_string();
        let mut create = self.client.create_queue().queue_name(&*self.settings.name);
        create = create.attributes(QueueAttributeName::VisibilityTimeout, window);
        if self.settings.is_fifo() {
            create = create.attributes(QueueAttributeName::FifoQueue, "true");
        }
        let made = create.send().await.map_err(|error| Trouble::of(missing, &error))?;
        let made = made.queue_url.unwrap_or_default();
        let wanted = format!("/{}/{}", self.settings.account, self.settings.name);
        if !made.ends_with(&wanted) {
            let why = format!("account: the credentials' own queue is {made}, not {wanted}");
            return Err(Trouble::Refused(why));
        }
        self.look().await
    }

    /// One long poll.
    pub(super) async fn poll(
        &self,
        max: usize,
        id: Option<&PollId>,
    ) -> Result<Vec<Message>, Trouble> {
        let wait = self.settings.wait;
        let deadline = wait + POLL_SLACK;
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT)
            .operation_attempt_timeout(deadline)
            .operation_timeout(deadline)
            .build();
        // Repeated by whoever polls, with pauses of its own.
        let once = Builder::new().timeout_config(timeouts).retry_config(RetryConfig::disabled());
        let ask = self
            .client
            .receive_message()
            .queue_url(&self.queue_url)
            .max_number_of_messages(whole(max as u64))
            .visibility_timeout(whole(self.settings.window.as_secs()))
            .wait_time_seconds(whole(seconds_up(wait)))
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All")
            .set_receive_request_attempt_id(id.map(|id| id.text.clone()));
        let answer = ask.customize().config_override(once).send().await;
        let answer = answer.map_err(|error| Trouble::of("receiving", &error))?;
        Ok(answer.messages.unwrap_or_default())
    }

    /// How many messages the queue says that it holds, roughly.
    pub(super) async fn depth(&self) -> Result<Depth, Trouble> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let ask = self.client.get_queue_attributes().queue_url(&self.queue_url);
        let ask = ask.set_attribute_names(Some(names.to_vec())).send().await;
        let answer = ask.map_err(|error| Trouble::of("counting", &error))?;
        let counts = answer.attributes.unwrap_or_default();
        let [waiting, delayed, out] =
            names.map(|name| counts.get(&name).and_then(|count| count.parse().ok()).unwrap_or(0));
        Ok(Depth { waiting, delayed, out })
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A number as the service takes it.
pub(super) fn whole(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// What is trusted: the system's certificates, and those of the settings. Checked here, since the
/// client panics over certificates that it cannot read.
fn trusted(settings: &SqsSettings) -> Result<TlsContext, OpenError> {
    let mut store = TrustStore::default();
    if let Some(path) = &settings.ca {
        store = store.with_pem_certificate(tls::trust(&mut RootCertStore::empty(), path)?);
    } else if settings.uses_tls() && tls::system().is_empty() {
        let why = "this machine trusts no certificates: install them, or give a file as ca=FILE";
        return Err(OpenError::Refused(why.to_owned()));
    }
    let context = TlsContext::builder().with_trust_store(store).build();
    context.map_err(|error| OpenError::Refused(format!("TLS: {error}")))
}
