//! Whom to trust: the system's authorities, and those of a file.

use std::path::Path;
#[cfg(any(feature = "amqp", feature = "nats", feature = "stomp"))]
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
#[cfg(any(feature = "amqp", feature = "nats", feature = "stomp"))]
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use crate::OpenError;

/// The system's authorities. Reading them takes a while, so it is done once for a process; those that
/// cannot be read are no reason not to trust the others.
pub(crate) fn system() -> &'static Arc<RootCertStore> {
    static SYSTEM: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    SYSTEM.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    })
}

/// Trusts the certificates of a PEM file too, every one of them, and answers what the file says.
pub(crate) fn trust(roots: &mut RootCertStore, path: &Path) -> Result<Vec<u8>, OpenError> {
    let wrong = |why: String| OpenError::Address(format!("ca: {}: {why}", path.display()));
    let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        count += 1;
    }
    if count == 0 {
        return Err(wrong("there is no certificate in it".to_owned()));
    }
    Ok(pem)
}

/// What connections are secured with: the system's authorities, and those of the file `ca`.
// SQS has a client of its own that takes certificates as text.
#[cfg(any(feature = "nats", feature = "stomp"))]
pub(crate) fn client_config(ca: Option<&Path>) -> Result<rustls::ClientConfig, OpenError> {
    client_config_as(ca, None)
}

/// The files by which we show who we are: a certificate with those it is signed by, and its key.
#[cfg(any(feature = "amqp", feature = "nats", feature = "stomp"))]
#[cfg_attr(not(feature = "amqp"), allow(dead_code, reason = "only one source asks for it yet"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// The same with a certificate of our own.
#[cfg(any(feature = "amqp", feature = "nats", feature = "stomp"))]
pub(crate) fn client_config_as(
    ca: Option<&Path>,
    identity: Option<&Identity>,
) -> Result<rustls::ClientConfig, OpenError> {
    let mut roots = Arc::clone(system());
    if let Some(path) = ca {
        trust(Arc::make_mut(&mut roots), path)?;
    }
    // Named, since with two of them in one build there is no default.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| OpenError::Refused(format!("TLS: {error}")))?;
    let config = config.with_root_certificates(roots);
    match identity {
        None => Ok(config.with_no_client_auth()),
        Some(identity) => identity.shown_by(config),
    }
}

#[cfg(any(feature = "amqp", feature = "nats", feature = "stomp"))]
type Unidentified = rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert>;

#[cfg(any(feature = "amqp", feature = "nats", feature = "stomp"))]
impl Identity {
    fn shown_by(&self, config: Unidentified) -> Result<rustls::ClientConfig, OpenError> {
        let wrong = |of: &str, path: &Path, why: &dyn std::fmt::Display| {
            OpenError::Address(format!("{of}: {}: {why}", path.display()))
        };
        let no_cert = |why: &dyn std::fmt::Display| wrong("cert", &self.cert, why);
        let certificates = CertificateDer::pem_file_iter(&self.cert).map_err(|e| no_cert(&e))?;
        let certificates: Result<Vec<_>, _> = certificates.collect();
        let certificates = certificates.map_err(|error| no_cert(&error))?;
        if certificates.is_empty() {
            return Err(no_cert(&"there is no certificate in it"));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| wrong("key", &self.key, &error))?;
        let config = config.with_client_auth_cert(certificates, key);
        config.map_err(|error| wrong("key", &self.key, &error))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn a_file_of_certificates_is_trusted_or_refused_by_its_path() {
        let certificate = || {
            let key = KeyPair::generate().unwrap();
            CertificateParams::default().self_signed(&key).unwrap().pem()
        };
        let (one, other) = (certificate(), certificate());
        let key = KeyPair::generate().unwrap().serialize_pem();
        let odd = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let cases = [
            (Some(one.clone()), Ok(1)),
            (Some(format!("{one}{key}{other}")), Ok(2)),
            (Some(key), Err("there is no certificate in it")),
            (Some(String::new()), Err("there is no certificate in it")),
            (Some(format!("{one}{odd}")), Err("certificate")),
            (None, Err("No such file")),
        ];
        for (text, expected) in cases {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("ca.pem");
            if let Some(text) = &text {
                std::fs::write(&path, text).unwrap();
            }
            let mut roots = RootCertStore::empty();
            match (trust(&mut roots, &path), expected) {
                (Ok(pem), Ok(count)) => {
                    assert_eq!(roots.len(), count, "{text:?}");
                    assert_eq!(text.as_deref().map(str::as_bytes), Some(&*pem));
                }
                (Err(OpenError::Address(why)), Err(part)) => {
                    let begin = format!("ca: {}: ", path.display());
                    assert!(why.starts_with(&begin) && why.contains(part), "{text:?}: {why}");
                }
                (trusted, expected) => panic!("{text:?}: {trusted:?}, not {expected:?}"),
            }
        }
    }
}
