//! What TLS needs.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Reads a certificate (chain) and its key, both PEM; TLS 1.2 and 1.3 are spoken with them. Clients show no certificates.
///
/// # Errors
/// A sentence that names the file and what was expected of it.
pub fn read(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let wrong = |option: &str, path: &Path, what: &dyn std::fmt::Display| {
        format!("{option} {}: {what}; expected a PEM file", path.display())
    };
    let wrong_certificate = |what: &dyn std::fmt::Display| wrong("--certificate", certificate, what);
    let wrong_key = |what: &dyn std::fmt::Display| wrong("--key", key, what);
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong_certificate(&error))?;
    if chain.is_empty() {
        return Err(wrong_certificate(&"there is no certificate in it"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong_key(&error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| wrong_key(&format_args!("it does not go with the certificate: {error}")))?;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named_with_its_option() {
        let directory = std::env::temp_dir().join(format!("gauge-log-certificate-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (certificate, key, other) = (directory.join("c"), directory.join("k"), directory.join("o"));
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let another = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        std::fs::write(&other, another.signing_key.serialize_pem()).unwrap();
        assert!(read(&certificate, &key).is_ok());
        let message = read(&key, &key).unwrap_err();
        assert!(message.starts_with("--certificate ") && message.contains("no certificate"));
        for wrong in [&other, &certificate, &directory] {
            let message = read(&certificate, wrong).unwrap_err();
            assert!(message.starts_with("--key "), "{message}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
