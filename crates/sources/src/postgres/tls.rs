//! Whom to trust: the system's authorities, and one of one's own.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::settings::PostgresSettings;
use crate::OpenError;

/// What makes connections secret. Reads files, so it is called once.
pub(crate) fn connector(settings: &PostgresSettings) -> Result<MakeRustlsConnect, OpenError> {
    let mut roots = RootCertStore::empty();
    if settings.config.get_ssl_mode() != SslMode::Disable {
        // A system without authorities, or with broken ones, has those that it has.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if let Some(path) = &settings.ca {
        let wrong = |why: String| OpenError::Address(format!("`ca` {}: {why}", path.display()));
        let found = CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))?;
        let mut count = 0;
        for certificate in found {
            let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
            roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
            count += 1;
        }
        if count == 0 {
            return Err(wrong("there is no certificate in it".to_owned()));
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| OpenError::Address(format!("TLS: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
