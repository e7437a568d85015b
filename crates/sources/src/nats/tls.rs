//! Whom to trust: the system's authorities, and one of one's own.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::OpenError;

/// The system's authorities. Reading them takes a while, and they are the same for every connection.
fn system() -> &'static Arc<RootCertStore> {
    static SYSTEM: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    SYSTEM.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    })
}

/// What connections are secured with. It is made in any case: a server may ask for TLS by itself.
pub(super) fn client_config(ca: Option<&Path>) -> Result<ClientConfig, OpenError> {
    let mut roots = Arc::clone(system());
    if let Some(path) = ca {
        let roots = Arc::make_mut(&mut roots);
        let wrong = |why: String| OpenError::Refused(format!("ca={}: {why}", path.display()));
        let mut certificates = 0;
        let listed =
            CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
        for certificate in listed {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            certificates += 1;
        }
        if certificates == 0 {
            return Err(wrong("no certificate is in it".into()));
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let versions = versions.map_err(|error| OpenError::Refused(error.to_string()))?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}
