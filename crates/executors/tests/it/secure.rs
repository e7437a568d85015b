//! TLS, with an authority of our own.

use std::sync::Arc;

use http::Version;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use sluicegate_dispatch::{CallStatus, Outcome};
use sluicegate_executors::http::{HttpSettings, HttpVersion, Roots};
use sluicegate_testkit::endpoint::Endpoint;

use crate::connections::deliver;
use crate::stage::{Names, Stage, message, settings};

/// An authority, and the endpoint that it vouches for.
struct Vouched {
    roots: Roots,
    endpoint: Endpoint,
}

/// An endpoint whose certificate is for `names`, and which knows these protocols.
async fn vouched(names: &[&str], protocols: &[&[u8]]) -> Vouched {
    let key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("an authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = authority.self_signed(&key).expect("a certificate of its own");
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().expect("a key");
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let leaf = CertificateParams::new(names).expect("names").signed_by(&key, &issuer);
    let leaf = leaf.expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
        )
        .expect("a certificate and its key");
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let endpoint = Endpoint::start_tls(config).await;
    Vouched { roots: Roots::Only(vec![root.der().to_vec()]), endpoint }
}

#[tokio::test]
async fn tls_agrees_on_the_version() {
    let (h2, h1): (&[u8], &[u8]) = (b"h2", b"http/1.1");
    // What the endpoint knows, what was asked for: what is spoken, over how many connections.
    let cases = [
        (&[h2, h1][..], HttpVersion::Http2, Version::HTTP_2, 4),
        (&[h2], HttpVersion::Http2, Version::HTTP_2, 4),
        (&[h1], HttpVersion::Http2, Version::HTTP_11, 4),
        (&[], HttpVersion::Http2, Version::HTTP_11, 4),
        (&[h2, h1], HttpVersion::Http11, Version::HTTP_11, 1),
    ];
    for (protocols, version, spoken, connections) in cases {
        for prior_knowledge in [false, true] {
            let Vouched { roots, endpoint } = vouched(&["127.0.0.1"], protocols).await;
            let stage = Stage::new(HttpSettings { roots, version, prior_knowledge, ..settings() });
            deliver(&stage, &endpoint.url("/hook"), 40, 1).await;
            let asked = endpoint.asked();
            assert!(asked.iter().all(|asked| asked.version == spoken), "{protocols:?} {version:?}");
            assert_eq!(endpoint.connections(), connections, "{protocols:?} {version:?}");
        }
    }
}

#[tokio::test]
async fn a_name_is_checked_against_the_certificate() {
    let Vouched { roots, endpoint } = vouched(&["good.test"], &[b"h2"]).await;
    let here = [endpoint.address()];
    let resolver = Names::resolver([("good.test", &here), ("bad.test", &here)]);
    let stage = Stage::new(HttpSettings { roots, resolver, ..settings() });
    assert_eq!(stage.execute(&message("https://good.test/")).await, Outcome::Done);
    assert_eq!(stage.calls(), [CallStatus::Http(200)]);
    for url in ["https://bad.test/".to_owned(), endpoint.url("/")] {
        let outcome = stage.execute(&message(&url)).await;
        let Outcome::Unreachable { cause } = &outcome else { panic!("{outcome:?}") };
        assert!(cause.contains("TLS") && cause.contains("certificate"), "{cause}");
        assert_eq!(stage.calls(), [CallStatus::Connect; 3]);
    }
}

#[tokio::test]
async fn an_unknown_authority_is_not_trusted() {
    let Vouched { endpoint, .. } = vouched(&["127.0.0.1"], &[b"h2"]).await;
    let Vouched { roots, .. } = vouched(&["127.0.0.1"], &[b"h2"]).await;
    for roots in [roots, Roots::Only(Vec::new()), Roots::System] {
        let stage = Stage::new(HttpSettings { roots, ..settings() });
        let outcome = stage.execute(&message(&endpoint.url("/"))).await;
        assert!(matches!(outcome, Outcome::Unreachable { .. }), "{outcome:?}");
    }
    assert_eq!(endpoint.count(), 0);
}

#[tokio::test]
async fn many_calls_at_once_share_few_secure_connections() {
    let Vouched { roots, endpoint } = vouched(&["127.0.0.1"], &[b"h2", b"http/1.1"]).await;
    let stage = Stage::new(HttpSettings { roots, ..settings() });
    deliver(&stage, &endpoint.url("/"), 400, 1).await;
    assert_eq!(endpoint.connections(), 4);
    deliver(&stage, &endpoint.url("/"), 400, 100).await;
    assert_eq!(endpoint.connections(), 4);
}

#[tokio::test]
async fn many_first_calls_at_once_all_arrive() {
    for protocols in [&[&b"h2"[..]][..], &[b"http/1.1"]] {
        let Vouched { roots, endpoint } = vouched(&["127.0.0.1"], protocols).await;
        let stage = Stage::new(HttpSettings { roots, ..settings() });
        deliver(&stage, &endpoint.url("/"), 60, 60).await;
        assert_eq!(stage.calls(), [CallStatus::Http(200); 60]);
    }
}
