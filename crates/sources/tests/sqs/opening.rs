//! Opening and probing: what is refused, what is not reached, TLS, and queues that are not there.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use sluicegate_dispatch::{Demand, Source};
use sluicegate_sources::OpenError;
use sluicegate_sources::sqs::{SqsSettings, SqsSource};
use sluicegate_testkit::conformance::source::publication;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::proxy::{Act, Proxy, ask, error};
use crate::stage::*;

/// What opening and probing answer.
async fn both(settings: &SqsSettings) -> (Result<SqsSource, OpenError>, Result<(), OpenError>) {
    let opened = SqsSource::open(settings.clone()).await;
    (opened, SqsSource::<sluicegate_dispatch::Message>::probe(settings).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_and_missing_rights_are_refused() {
    let Some(broker) = broker() else { return };
    let proxy = Proxy::start(broker.address()).await;
    let settings = settings(proxy.url(), &fresh("")).with_credentials("AKID", "hush", None);
    let cases = [
        ("InvalidClientTokenId", 403, "check the AWS credentials"),
        ("SignatureDoesNotMatch", 403, "check the AWS credentials"),
        ("ExpiredToken", 400, "check the AWS credentials"),
        ("AccessDeniedException", 400, "sqs:ReceiveMessage"),
    ];
    for (code, status, help) in cases {
        proxy.rule(move |_, _| error(status, code));
        let (opened, probed) = both(&settings).await;
        for answer in [opened.map(drop), probed] {
            let Err(OpenError::Refused(why)) = answer else { panic!("{code}: {answer:?}") };
            assert!(why.contains(code) && why.contains(help), "{why}");
            assert!(!why.contains("hush"), "{why}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_queue_is_created_where_that_is_allowed() {
    let Some(broker) = broker() else { return };
    let proxy = Proxy::start(broker.address()).await;
    for suffix in ["", ".fifo"] {
        let settings = settings(proxy.url(), &fresh(suffix));
        SqsSource::<sluicegate_dispatch::Message>::probe(&settings).await.unwrap();
        let before = proxy.calls("CreateQueue").len();
        let source = open(settings.clone()).await;
        assert_eq!(proxy.calls("CreateQueue").len(), before + 1);
        source.publish(vec![publication("m1")]).await.unwrap();
        drop(source);
        // The second time it is there, with what is in it.
        let source = open(settings).await;
        assert_eq!(proxy.calls("CreateQueue").len(), before + 1);
        assert_eq!(ids(&take(&*source, 1).await), ["m1"]);
    }
    proxy.rule(|name, _| match name {
        "CreateQueue" => error(403, "AccessDenied"),
        _ => Act::Pass,
    });
    let opened = SqsSource::<sluicegate_dispatch::Message>::open(settings(proxy.url(), &fresh("")));
    let Err(OpenError::Refused(why)) = opened.await else { panic!("it must be refused") };
    assert!(why.contains("creating the queue"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_not_reached_is_tried_again() {
    let Some(broker) = broker() else { return };
    let proxy = Proxy::start(broker.address()).await;
    proxy.cut();
    let settings = settings(proxy.url(), &fresh(""));
    let begun = Instant::now();
    let probed = SqsSource::<sluicegate_dispatch::Message>::probe(&settings).await;
    assert!(matches!(probed, Err(OpenError::Unreachable(_))), "{probed:?}");
    let source = open(settings).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(!source.health().unwrap_err().cause.is_empty());
    source.receive(Demand::any(10)).await.unwrap_err();
    proxy.mend();
    until("it works", || async { source.health().is_ok() }).await;
    source.publish(vec![publication("m1")]).await.unwrap();
    let received = take(&*source, 1).await;
    all_done(&*source, &received).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_at_the_port_and_nobody_who_answers_are_not_reached() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    // Accepted by the system, never answered.
    let begun = Instant::now();
    let (opened, probed) = both(&settings(&format!("http://{address}"), "q")).await;
    assert!(opened.unwrap().health().is_err());
    assert!(matches!(probed, Err(OpenError::Unreachable(_))), "{probed:?}");
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    drop(closed);
    let (opened, probed) = both(&settings(&format!("http://{address}"), "q")).await;
    assert!(opened.unwrap().health().is_err());
    assert!(matches!(probed, Err(OpenError::Unreachable(_))), "{probed:?}");
}

/// An authority of our own, a server with its certificate, and the file of it.
fn authority() -> (TlsAcceptor, TempDir, PathBuf) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, authority.pem()).unwrap();
    (TlsAcceptor::from(Arc::new(config)), folder, file)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_trusted_by_its_authority_alone() {
    let Some(broker) = broker() else { return };
    let (tls, folder, file) = authority();
    let proxy = Proxy::start_with(broker.address(), Some(tls)).await;
    let name = fresh("");
    let with = |ca: &str| {
        let uri = format!("sqs+{}/000000000000/{name}?region=us-east-1{ca}", proxy.url());
        SqsSettings::parse(&uri)
            .unwrap()
            .with_credentials("test", "test", None)
            .with_wait(Duration::from_secs(2))
    };
    let (opened, probed) = both(&with("")).await;
    for answer in [opened.map(drop), probed] {
        let Err(OpenError::Refused(why)) = answer else { panic!("{answer:?}") };
        assert!(why.contains("certificate") && why.contains("ca=FILE"), "{why}");
    }
    let trusting = with(&format!("&ca={}", file.display()));
    let (opened, probed) = both(&trusting).await;
    probed.unwrap();
    let source = opened.unwrap();
    source.publish(vec![publication("m1")]).await.unwrap();
    all_done(&source, &take(&source, 1).await).await;
    let garbage = folder.path().join("garbage.pem");
    std::fs::write(&garbage, "no certificate").unwrap();
    for wrong in [garbage, folder.path().join("absent.pem")] {
        let (opened, probed) = both(&with(&format!("&ca={}", wrong.display()))).await;
        for answer in [opened.map(drop), probed] {
            let Err(OpenError::Address(why)) = answer else { panic!("{answer:?}") };
            assert!(why.starts_with("ca:"), "{why}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_existing_queue_is_used_as_it_is() {
    let Some(broker) = broker() else { return };
    let name = fresh("");
    let attributes = serde_json::json!({"VisibilityTimeout": "77", "DelaySeconds": "1"});
    let create = serde_json::json!({"QueueName": name, "Attributes": attributes});
    ask(broker.address(), "CreateQueue", create).await;
    let source = open(settings(broker.url(), &name)).await;
    // The window is that of the settings, whatever the queue's own is.
    source.publish(vec![publication("m1")]).await.unwrap();
    let begun = Instant::now();
    let first = take(&*source, 1).await;
    let second = take(&*source, 1).await;
    assert_eq!(first[0].broker_id, second[0].broker_id);
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    let asked = serde_json::json!({"QueueUrl": format!("{}/000000000000/{name}", broker.url())});
    let kept = ask(broker.address(), "GetQueueAttributes", asked).await;
    assert_eq!(kept["Attributes"]["VisibilityTimeout"], "77");
}
