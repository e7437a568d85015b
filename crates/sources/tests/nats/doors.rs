//! Getting in: credentials, TLS, streams and consumers that are there, missing or unfit.

use std::path::Path;
use std::time::Duration;

use async_nats::jetstream::{self, consumer, stream};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use sluicegate_dispatch::{Message, Source};
use sluicegate_sources::OpenError;
use sluicegate_sources::nats::{NatsSettings, NatsSource};
use sluicegate_testkit::conformance::source::publication;
use tokio::time::Instant;

use crate::guarded::Guarded;
use crate::rig::{PATIENCE, ids, ready, receive, server, uri};

async fn open_at(uri: &str) -> NatsSource<Message> {
    ready(NatsSettings::parse(uri).unwrap()).await
}

/// Looks whether a queue could be opened, for as long as a busy server needs to answer.
async fn probe_at(uri: &str) -> Result<(), OpenError> {
    let (settings, deadline) = (NatsSettings::parse(uri).unwrap(), Instant::now() + PATIENCE);
    loop {
        match NatsSource::probe(&settings).await {
            Err(OpenError::Unreachable(why)) => assert!(Instant::now() < deadline, "{why}"),
            answer => return answer,
        }
    }
}

/// Both ways in are refused, with these words.
async fn refused(uri: &str, words: &str) {
    let error = probe_at(uri).await.unwrap_err();
    assert!(error.to_string().contains(words) && !error.to_string().contains("tiger"), "{error}");
    let (settings, deadline) = (NatsSettings::parse(uri).unwrap(), Instant::now() + PATIENCE);
    loop {
        match NatsSource::<Message>::open(settings.clone()).await {
            Err(other) => break assert_eq!(other, error),
            Ok(source) => {
                let why = source.health().expect_err("it is refused");
                assert!(Instant::now() < deadline, "{why}");
            }
        }
    }
}

async fn works(uri: &str) {
    probe_at(uri).await.unwrap();
    let source = open_at(uri).await;
    source.publish(vec![publication("m1")]).await.unwrap();
    assert_eq!(ids(&receive(&source, 1).await), ["m1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_are_refused() {
    let Some(server) = Guarded::start(&["--user", "me", "--pass", "secret"]).await else { return };
    works(&uri(&server.url("me:secret@"), "q")).await;
    for login in ["", "me:tiger@", "tiger@"] {
        refused(&uri(&server.url(login), "q"), "credentials").await;
    }
    let Some(server) = Guarded::start(&["--auth", "t0ken"]).await else { return };
    works(&uri(&server.url("t0ken@"), "q")).await;
    refused(&uri(&server.url("tiger@"), "q"), "credentials").await;
}

/// Certificates of an authority of one's own for 127.0.0.1.
fn certificates(folder: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = authority.self_signed(&key).unwrap();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    for (name, text) in
        [("ca.pem", root.pem()), ("cert.pem", leaf.pem()), ("key.pem", key.serialize_pem())]
    {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_trusted_by_its_authority_only() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let arguments = ["--tls", "--tlscert", &cert, "--tlskey", &key];
    let Some(server) = Guarded::start(&arguments).await else { return };
    let base = uri(&server.url(""), "q");
    works(&format!("{base}&ca={}", path("ca.pem"))).await;
    // The server asks for TLS by itself.
    for tls in ["", "&tls=true"] {
        refused(&format!("{base}{tls}"), "not trusted").await;
    }
    for (ca, words) in [("key.pem", "no certificate"), ("none.pem", "none.pem")] {
        refused(&format!("{base}&ca={}", path(ca)), words).await;
    }
    refused(&format!("{base}&creds={}", path("none.creds")), "creds=").await;
    let Some(plain) = Guarded::start(&[]).await else { return };
    refused(&format!("{}&tls=true", uri(&plain.url(""), "q")), "TLS").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_stream_is_made_only_when_told_its_subject() {
    let Some(broker) = server() else { return };
    let base = broker.url();
    let bare = format!("{base}?stream=S&consumer=C");
    refused(&bare, "there is no stream `S`").await;
    // Looking makes nothing.
    probe_at(&format!("{bare}&subject=s.in")).await.unwrap();
    refused(&bare, "there is no stream `S`").await;
    let source = open_at(&format!("{bare}&subject=s.in&max_ack_pending=7")).await;
    let context = jetstream::new(async_nats::connect(base).await.unwrap());
    let made = context.get_stream("S").await.unwrap();
    let config = &made.cached_info().config;
    assert_eq!(config.retention, stream::RetentionPolicy::WorkQueue);
    assert_eq!(config.storage, stream::StorageType::File);
    assert_eq!(config.duplicate_window, Duration::from_secs(300));
    let info = made.consumer_info("C").await.unwrap();
    assert_eq!((info.config.max_ack_pending, info.config.max_deliver), (7, -1));
    assert_eq!(info.config.ack_wait, Duration::from_secs(30));
    drop(source);
    works(&bare).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_is_used_as_it_is_with_the_wanted_window_unless_it_breaks_a_promise() {
    let Some(broker) = server() else { return };
    let context = jetstream::new(async_nats::connect(broker.url()).await.unwrap());
    let config =
        stream::Config { name: "S".into(), subjects: vec!["s.*".into()], ..Default::default() };
    let stream = context.create_stream(config).await.unwrap();
    let pull = |name: &str| consumer::pull::Config {
        durable_name: Some(name.to_owned()),
        ack_policy: consumer::AckPolicy::Explicit,
        ack_wait: Duration::from_secs(77),
        description: Some("somebody else's".into()),
        filter_subject: "s.1".into(),
        ..Default::default()
    };
    let unfit = [
        (consumer::pull::Config { max_deliver: 3, ..pull("tries") }, "max_deliver"),
        (consumer::pull::Config { headers_only: true, ..pull("bare") }, "headers_only"),
        (
            consumer::pull::Config { ack_policy: consumer::AckPolicy::None, ..pull("silent") },
            "ack_policy",
        ),
    ];
    for (config, words) in unfit {
        let name = config.durable_name.clone().unwrap();
        stream.create_consumer(config).await.unwrap();
        refused(&format!("{}?stream=S&consumer={name}", broker.url()), words).await;
    }
    stream.create_consumer(pull("fit")).await.unwrap();
    let fit = format!("{}?stream=S&consumer=fit", broker.url());
    refused(&format!("{fit}&filter=s.2"), "filter").await;
    let shared = open_at(&format!("{fit}&shared=true")).await;
    assert_eq!(shared.profile().visibility, Duration::from_secs(77));
    let source = open_at(&format!("{fit}&publish=s.1")).await;
    assert_eq!(source.profile().visibility, Duration::from_secs(30));
    let info = stream.consumer_info("fit").await.unwrap();
    assert_eq!(info.config.ack_wait, Duration::from_secs(30));
    assert_eq!(info.config.description.as_deref(), Some("somebody else's"));
    source.publish(vec![publication("m1")]).await.unwrap();
    assert_eq!(ids(&receive(&source, 1).await), ["m1"]);
    // A pattern is no place to publish to.
    let error = shared.publish(vec![publication("m2")]).await.unwrap_err();
    assert_eq!(error, sluicegate_dispatch::PublishError::NotPublishable);
}
