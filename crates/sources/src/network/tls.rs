//! Whom to trust: the system's authorities, and those of a file.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
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
#[cfg(any(feature = "amqp", feature = "nats", feature = "postgres", feature = "stomp"))]
pub(crate) fn client_config(ca: Option<&Path>) -> Result<rustls::ClientConfig, OpenError> {
    let mut roots = Arc::clone(system());
    if let Some(path) = ca {
        trust(Arc::make_mut(&mut roots), path)?;
    }
    // Named, since with two of them in one build there is no default.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| OpenError::Refused(format!("TLS: {error}")))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
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
