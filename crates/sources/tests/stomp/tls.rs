//! TLS, with an authority of our own.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sluicegate_dispatch::Settlement;
use sluicegate_sources::OpenError;
use sluicegate_sources::stomp::StompSettings;
use sluicegate_testkit::brokers::{Kind, start_or_skip};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

use crate::rig::fresh_name;
use crate::stage::{Queue, numbered, open, publish, receipts, receive, settle_all, within};
use crate::wire::Wire;

/// A certificate as the text that files of them hold.
fn pem(der: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in der.chunks(48) {
        for three in line.chunks(3) {
            let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
            let bits = bits << (8 * (3 - three.len()));
            for at in 0..4 {
                let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
                text.push(if at > three.len() { '=' } else { letter as char });
            }
        }
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

/// An authority, as a file, and what a server that it vouches for presents.
fn authority(folder: &TempDir, name: &str) -> (PathBuf, TlsAcceptor) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let path = folder.path().join(format!("{name}.pem"));
    std::fs::write(&path, pem(ca.as_ref().der())).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &ca).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (path, TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn only_who_is_vouched_for_is_trusted() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (ours, acceptor) = authority(&folder, "ours");
    let (theirs, _) = authority(&folder, "theirs");
    let wire = Wire::new(broker.address(), Some(acceptor)).await;
    let settings = |host: &str, parameters: &str| {
        let (port, queue) = (wire.address.port(), fresh_name());
        let uri = format!("activemqs://alice:secret@{host}:{port}/{queue}{parameters}");
        StompSettings::parse(&uri).unwrap()
    };
    for host in ["localhost", "127.0.0.1"] {
        let trusted = settings(host, &format!("?ca={}", ours.display()));
        within(Queue::probe(&trusted)).await.unwrap();
        let source = open(trusted).await;
        publish(&source, numbered(20)).await;
        let received = receive(&source, 20).await;
        settle_all(&source, receipts(&received), Settlement::Ack).await.unwrap();
    }
    for parameters in [String::new(), format!("?ca={}", theirs.display())] {
        let refused = within(Queue::open(settings("localhost", &parameters))).await.unwrap_err();
        let is_told = matches!(&refused, OpenError::Refused(why) if why.contains("ca="));
        assert!(is_told, "{refused}");
        assert!(matches!(
            within(Queue::probe(&settings("localhost", &parameters))).await,
            Err(OpenError::Refused(_))
        ));
    }
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    for path in [empty, folder.path().join("none.pem")] {
        let parameters = format!("?ca={}", path.display());
        let wrong = within(Queue::open(settings("localhost", &parameters))).await.unwrap_err();
        assert!(matches!(&wrong, OpenError::Address(why) if why.starts_with("ca: ")), "{wrong}");
    }
}

/// TLS to a port that does not speak it, and the other way round.
#[tokio::test]
async fn the_wrong_port_is_told() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let uri = format!("activemqs://{}/q", broker.address());
    let settings = StompSettings::parse(&uri).unwrap();
    let error = within(Queue::probe(&settings)).await.unwrap_err();
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let wire = Wire::new(broker.address(), Some(authority(&folder, "ours").1)).await;
    let settings = StompSettings::parse(&format!("activemq://{}/q", wire.address)).unwrap();
    let error = within(Queue::probe(&settings)).await.unwrap_err();
    assert!(matches!(error, OpenError::Unreachable(_)), "{error}");
}
