//! Finding the stream and its consumer, or making them.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, Info, PullConsumer, pull};
use async_nats::jetstream::context::{
    Context, CreateStreamErrorKind, GetStreamErrorKind, RequestError, RequestErrorKind,
};
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{
    Config, ConsumerError, ConsumerErrorKind, RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{self, ErrorCode};
use serde_json::json;
use tokio::time::Instant;

use super::connect::ANSWER;
use super::ghosts;
use super::hold::{Hold, LATE};
use super::settings::{NatsSettings, is_pattern, subject_matches};
use super::tally::Tally;
use crate::OpenError;

/// Ids that were seen within this are not stored again, in streams that are made here.
const DUPLICATES: Duration = Duration::from_secs(300);

/// A consumer that can be pulled from.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) context: Context,
    pub(super) stream: Stream,
    pub(super) consumer: PullConsumer,
    pub(super) tally: Option<Tally>,
    /// Where messages are published, if there is one such subject.
    pub(super) publish: Option<String>,
    /// How many messages may be asked for at once.
    pub(super) max_batch: usize,
    asked: Instant,
}

impl Attached {
    /// How long the server waits for an acknowledgement.
    pub(super) fn window(&self) -> Duration {
        self.consumer.cached_info().config.ack_wait
    }

    /// What an earlier life has left behind.
    pub(super) fn hold(&self) -> Option<Hold> {
        let info = self.consumer.cached_info();
        let until = self.asked + self.window() + LATE;
        Hold::new(info.delivered.stream_sequence, info.num_ack_pending, until)
    }

    /// Whether both are the same consumer, not only of the same name.
    pub(super) fn is_same(&self, other: &Info) -> bool {
        self.consumer.cached_info().created == other.created
    }
}

/// Looks for stream and consumer, and makes what is missing.
pub(super) async fn attach(
    client: async_nats::Client,
    settings: &NatsSettings,
) -> Result<Attached, OpenError> {
    let context = jetstream::context::ContextBuilder::new().timeout(ANSWER).build(client.clone());
    let stream = stream(&context, settings).await?;
    bury_elsewhere(&context, &stream, settings).await?;
    let asked = Instant::now();
    let mut consumer = consumer(&context, settings).await?;
    check(&consumer.cached_info().config, settings)?;
    let is_window_right =
        settings.shared || consumer.cached_info().config.ack_wait == settings.visibility;
    if !is_window_right {
        set_window(&context, settings).await;
    }
    let any_laid = ghosts::lay(&client, &stream, consumer.cached_info()).await;
    if !is_window_right || any_laid {
        consumer =
            find_consumer(&context, settings).await.map_err(|e| of_consumer(&e, settings))?;
    }
    let config = &stream.cached_info().config;
    let subjects = settings.subject.iter().chain(&config.subjects);
    let publish = subjects.into_iter().find(|subject| !is_pattern(subject));
    let publish = settings.publish.as_ref().or(publish).cloned();
    let max_batch = usize::try_from(consumer.cached_info().config.max_batch).unwrap_or(0);
    let max_batch = if max_batch == 0 { usize::MAX } else { max_batch };
    let last = consumer.cached_info().delivered.stream_sequence;
    let tally = match settings.tally {
        true => Some(Tally::open(&context, settings, last).await),
        false => None,
    };
    Ok(Attached { context, stream, consumer, tally, publish, max_batch, asked })
}

/// Looks whether `attach` would find what it needs, and makes nothing.
pub(super) async fn inspect(
    client: async_nats::Client,
    settings: &NatsSettings,
) -> Result<(), OpenError> {
    let context = jetstream::context::ContextBuilder::new().timeout(ANSWER).build(client);
    match find_stream(&context, settings).await? {
        None if settings.subject.is_none() => return Err(no_stream(settings)),
        None => return Ok(()),
        Some(_) => {}
    }
    match find_consumer(&context, settings).await {
        Ok(consumer) => check(&consumer.cached_info().config, settings),
        Err(error) if is_absent(&error) => Ok(()),
        Err(error) => Err(of_consumer(&error, settings)),
    }
}

fn refused(why: impl Into<String>) -> OpenError {
    OpenError::Refused(why.into())
}

fn no_stream(settings: &NatsSettings) -> OpenError {
    refused(format!(
        "there is no stream `{}` on {}: create it, or give subject= to have it created",
        settings.stream,
        settings.place()
    ))
}

fn of_request(error: &RequestError, settings: &NatsSettings) -> OpenError {
    let place = settings.place();
    match error.kind() {
        RequestErrorKind::NoResponders => {
            refused(format!("JetStream is not enabled on {place} for this account"))
        }
        // The server does not answer what the user may not ask.
        RequestErrorKind::TimedOut => OpenError::Unreachable(format!(
            "{place}: JetStream does not answer; has the user the right to use its API?"
        )),
        _ => OpenError::Unreachable(format!("{place}: {error}")),
    }
}

async fn find_stream(
    context: &Context,
    settings: &NatsSettings,
) -> Result<Option<Stream>, OpenError> {
    let error = match context.get_stream(&settings.stream).await {
        Ok(stream) => return Ok(Some(stream)),
        Err(error) => error,
    };
    match error.kind() {
        GetStreamErrorKind::JetStream(why) if why.error_code() == ErrorCode::STREAM_NOT_FOUND => {
            Ok(None)
        }
        GetStreamErrorKind::JetStream(why) => {
            Err(refused(format!("stream `{}`: {why}", settings.stream)))
        }
        _ => {
            let cause = std::error::Error::source(&error);
            let request = cause.and_then(|cause| cause.downcast_ref::<RequestError>());
            Err(match request {
                Some(request) => of_request(request, settings),
                None => OpenError::Unreachable(format!("{}: {error}", settings.place())),
            })
        }
    }
}

async fn stream(context: &Context, settings: &NatsSettings) -> Result<Stream, OpenError> {
    if let Some(stream) = find_stream(context, settings).await? {
        return Ok(stream);
    }
    let subject = settings.subject.clone().ok_or_else(|| no_stream(settings))?;
    let config = Config {
        name: settings.stream.clone(),
        subjects: vec![subject],
        // A message that is done with is removed.
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        num_replicas: settings.replicas as usize,
        duplicate_window: DUPLICATES,
        ..Config::default()
    };
    create(context, config, settings).await
}

async fn create(
    context: &Context,
    config: Config,
    settings: &NatsSettings,
) -> Result<Stream, OpenError> {
    let name = config.name.clone();
    context.create_stream(config).await.map_err(|error| {
        let why = format!("stream `{name}` was not created: {error}");
        match error.kind() {
            CreateStreamErrorKind::JetStream(_) => OpenError::Refused(why),
            _ => OpenError::Unreachable(format!("{}: {why}", settings.place())),
        }
    })
}

/// Sees to it that some other stream takes dead messages in.
async fn bury_elsewhere(
    context: &Context,
    stream: &Stream,
    settings: &NatsSettings,
) -> Result<(), OpenError> {
    let Some(dead) = &settings.dead_subject else { return Ok(()) };
    if stream.cached_info().config.subjects.iter().any(|own| subject_matches(own, dead)) {
        return Err(refused(format!("dead_subject={dead} is a subject of the queue's own stream")));
    }
    if context.stream_by_subject(dead.as_str()).await.is_ok() {
        return Ok(());
    }
    let config = Config {
        name: format!("{}-dead", settings.stream),
        subjects: vec![dead.clone()],
        storage: StorageType::File,
        num_replicas: settings.replicas as usize,
        ..Config::default()
    };
    create(context, config, settings).await.map(drop)
}

async fn find_consumer(
    context: &Context,
    settings: &NatsSettings,
) -> Result<PullConsumer, ConsumerError> {
    context.get_consumer_from_stream(&settings.consumer, &settings.stream).await
}

fn is_absent(error: &ConsumerError) -> bool {
    matches!(error.kind(), ConsumerErrorKind::JetStream(why)
        if why.error_code() == ErrorCode::CONSUMER_NOT_FOUND)
}

async fn consumer(context: &Context, settings: &NatsSettings) -> Result<PullConsumer, OpenError> {
    match find_consumer(context, settings).await {
        Ok(consumer) => return Ok(consumer),
        Err(error) if is_absent(&error) => {}
        Err(error) => return Err(of_consumer(&error, settings)),
    }
    let config = pull::Config {
        durable_name: Some(settings.consumer.clone()),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: settings.visibility,
        // Never given up: how often to try is the router's business.
        max_deliver: -1,
        max_ack_pending: i64::from(settings.max_ack_pending),
        filter_subject: settings.filter.clone().unwrap_or_default(),
        ..pull::Config::default()
    };
    let made = context.create_consumer_on_stream(config, &settings.stream).await;
    made.map_err(|error| of_consumer(&error, settings))
}

fn of_consumer(error: &ConsumerError, settings: &NatsSettings) -> OpenError {
    let name = &settings.consumer;
    match error.kind() {
        ConsumerErrorKind::JetStream(why) => refused(format!("consumer `{name}`: {why}")),
        ConsumerErrorKind::InvalidConsumerType => {
            refused(format!("consumer `{name}` is a push consumer; a pull consumer is needed"))
        }
        _ => OpenError::Unreachable(format!("{}: consumer `{name}`: {error}", settings.place())),
    }
}

/// Whether what is promised can be kept with this consumer.
fn check(
    config: &async_nats::jetstream::consumer::Config,
    settings: &NatsSettings,
) -> Result<(), OpenError> {
    let name = &settings.consumer;
    let wrong = if config.deliver_subject.is_some() {
        "is a push consumer; a pull consumer is needed"
    } else if config.ack_policy != AckPolicy::Explicit {
        "must have ack_policy explicit"
    } else if config.max_deliver > 0 {
        "has max_deliver: the server would give messages up without a word; set it to -1"
    } else if !config.backoff.is_empty() {
        "has a backoff: it would overrule the delays; remove it"
    } else if config.headers_only {
        "has headers_only: it delivers no bodies"
    } else if settings.filter.as_ref().is_some_and(|filter| *filter != config.filter_subject) {
        "exists with another filter than filter="
    } else {
        return Ok(());
    };
    Err(refused(format!("consumer `{name}` {wrong}")))
}

/// Gives the consumer the window that is wanted and leaves all else of it as it is, also what this
/// library knows nothing of. Where that fails, the window it has is used.
async fn set_window(context: &Context, settings: &NatsSettings) {
    let NatsSettings { stream, consumer, visibility, .. } = settings;
    let subject = format!("CONSUMER.INFO.{stream}.{consumer}");
    let info = context.request(subject, &json!({})).await;
    let Ok(Response::Ok(mut info)) = info as Result<Response<serde_json::Value>, _> else { return };
    let nanos = u64::try_from(visibility.as_nanos()).unwrap_or(u64::MAX);
    info["config"]["ack_wait"] = json!(nanos);
    let body = json!({"stream_name": stream, "config": info["config"]});
    let subject = format!("CONSUMER.DURABLE.CREATE.{stream}.{consumer}");
    let answer = context.request(subject, &body).await;
    drop::<Result<Response<serde_json::Value>, _>>(answer);
}
