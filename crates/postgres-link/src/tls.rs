//! Whom to trust: the system's authorities, and those of a file.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Wrong;

/// What connections are secured with: the system's authorities, and those of the file `ca`.
///
/// # Errors
/// The file is not there, or has no certificates.
pub fn connector(ca: Option<&Path>) -> Result<MakeRustlsConnect, Wrong> {
    let mut roots = Arc::clone(system());
    if let Some(path) = ca {
        trust(Arc::make_mut(&mut roots), path)
            .map_err(|why| Wrong(format!("ca: {}: {why}", path.display())))?;
    }
    // Named, since with two of them in one build there is no default.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Wrong(format!("TLS: {error}")))?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// The system's authorities. Reading them takes a while, so it is done once for a process; those that cannot be read are
/// no reason not to trust the others.
fn system() -> &'static Arc<RootCertStore> {
    static SYSTEM: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    SYSTEM.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    })
}

fn trust(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
        count += 1;
    }
    if count == 0 {
        return Err("there is no certificate in it".to_owned());
    }
    Ok(())
}
