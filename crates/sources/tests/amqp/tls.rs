//! TLS, by a proxy that ends it before the broker.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use sluicegate_dispatch::{Message, Settled, Source};
use sluicegate_sources::OpenError;
use sluicegate_sources::amqp::{AmqpSettings, AmqpSource, probe};
use sluicegate_tasks::{Context, TaskGroup};
use sluicegate_testkit::conformance::source::publication;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::stage::{gone, name, receive, settle, shared};

/// Ends TLS with a certificate for `localhost`, and passes on what is inside.
struct Front {
    port: u16,
    /// The certificate of whoever issued it.
    ca: String,
    _group: TaskGroup,
}

async fn front(broker: &str) -> Front {
    front_for(broker, None).await
}

/// The same, which lets in only those with a certificate that this authority has issued.
async fn front_for(broker: &str, clients: Option<&CertificateDer<'static>>) -> Front {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::new(ca, ca_key);
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(ca) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(ca.clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let config = config
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let target = url::Url::parse(broker).unwrap().port().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let group = TaskGroup::new("front", 1).unwrap();
    let lines = TaskGroup::new("lines", 100).unwrap();
    let serve = move |cx: Context| async move {
        while let Ok(Ok((line, _))) = cx.until_interrupted(listener.accept()).await {
            let acceptor = acceptor.clone();
            let pass = move |cx: Context| async move {
                let passing = async {
                    let mut line = acceptor.accept(line).await?;
                    let mut broker = TcpStream::connect(("127.0.0.1", target)).await?;
                    copy_bidirectional(&mut line, &mut broker).await
                };
                cx.until_interrupted(passing).await.map(drop).ok();
            };
            drop(lines.submit(&cx, pass).await.map_err(drop));
        }
    };
    drop(group.submit(Context::new(), serve).await.map_err(drop).unwrap());
    Front { port, ca: ca_certificate.pem(), _group: group }
}

fn settings(host: &str, front: &Front, queue: &str, ca: Option<&std::path::Path>) -> AmqpSettings {
    let ca = ca.map_or(String::new(), |path| format!("&ca={}", path.display()));
    let port = front.port;
    let uri = format!("amqps://guest:guest@{host}:{port}/%2f?queue={queue}{ca}");
    AmqpSettings::parse(&uri).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_trusted_by_its_issuer_alone() {
    let Some(url) = shared() else { return };
    let (front, stranger) = (front(url).await, front(url).await);
    let (folder, queue) = (tempfile::tempdir().unwrap(), name("tls"));
    let [good, other, broken] =
        ["good.pem", "other.pem", "broken.pem"].map(|file| folder.path().join(file));
    std::fs::write(&good, &front.ca).unwrap();
    std::fs::write(&other, &stranger.ca).unwrap();
    std::fs::write(&broken, "no certificate").unwrap();

    let trusted = settings("localhost", &front, &queue, Some(&good));
    probe(&trusted).await.unwrap();
    let source = AmqpSource::<Message>::open(trusted).await.unwrap();
    source.publish(vec![publication("m1")]).await.unwrap();
    let received = receive(&source, 1).await;
    assert_eq!(settle(&source, gone(&received[0].receipt)).await, Settled::Done);

    let untrusted = [
        settings("localhost", &front, &queue, Some(&other)),
        settings("localhost", &front, &queue, None),
        // It is for another name.
        settings("127.0.0.1", &front, &queue, Some(&good)),
    ];
    for settings in untrusted {
        let opened = AmqpSource::<Message>::open(settings.clone()).await.map(drop);
        for outcome in [opened, probe(&settings).await] {
            let Err(OpenError::Refused(why)) = outcome else { panic!("{outcome:?}") };
            assert!(why.contains("not trusted"), "{why}");
        }
    }
    for path in [&broken, &folder.path().join("missing.pem")] {
        let outcome = probe(&settings("localhost", &front, &queue, Some(path))).await;
        let Err(OpenError::Address(why)) = outcome else { panic!("{outcome:?}") };
        assert!(why.contains("ca:"), "{why}");
    }
}

/// A broker that asks for certificates lets in whoever has one that it trusts, and nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_may_ask_for_a_certificate() {
    let Some(url) = shared() else { return };
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = authority.self_signed(&authority_key).unwrap();
    let front = front_for(url, Some(certificate.der())).await;
    let issuer = Issuer::new(authority, authority_key);
    let (folder, queue) = (tempfile::tempdir().unwrap(), name("identified"));
    let [ca, cert, key, other] =
        ["ca", "cert", "key", "other"].map(|file| folder.path().join(format!("{file}.pem")));
    let own = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(vec!["sluicegate".to_owned()]).unwrap();
    let signed = signed.signed_by(&own, &issuer).unwrap();
    std::fs::write(&ca, &front.ca).unwrap();
    std::fs::write(&cert, signed.pem()).unwrap();
    std::fs::write(&key, own.serialize_pem()).unwrap();
    std::fs::write(&other, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let settings = |identity: String| {
        let (port, ca) = (front.port, ca.display());
        let uri =
            format!("amqps://guest:guest@localhost:{port}/%2f?queue={queue}&ca={ca}{identity}");
        AmqpSettings::parse(&uri).unwrap()
    };
    let identity =
        |key: &std::path::Path| format!("&cert={}&key={}", cert.display(), key.display());

    let known = settings(identity(&key));
    probe(&known).await.unwrap();
    let source = AmqpSource::<Message>::open(known).await.unwrap();
    source.publish(vec![publication("m1")]).await.unwrap();
    let received = receive(&source, 1).await;
    assert_eq!(settle(&source, gone(&received[0].receipt)).await, Settled::Done);

    let refused = probe(&settings(String::new())).await;
    let Err(OpenError::Refused(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("certificate") && why.contains("cert="), "{why}");
    for (wrong, says) in [(&other, "key:"), (&folder.path().join("missing.pem"), "key:")] {
        let refused = probe(&settings(identity(wrong))).await;
        let Err(OpenError::Address(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains(says) && why.contains(&wrong.display().to_string()), "{why}");
    }
}
