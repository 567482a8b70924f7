//! TLS 1.2 and 1.3, with one chain of certificates.

use crate::tls_error::TlsError;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};
use tokio_rustls::{Accept, TlsAcceptor};

/// One record, per direction.
const BUFFER: usize = 16 << 10;

/// Certificate chain and private key of a server.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Reads a PEM chain, the server's certificate first, and its private key.
    ///
    /// # Errors
    /// One is malformed, or the key does not belong to the certificate.
    pub fn parse(chain: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|error| TlsError::Chain(format!("is damaged: {error}")))?;
        if chain.is_empty() {
            let problem = "holds no certificate in PEM; convert it with openssl x509";
            return Err(TlsError::Chain(problem.into()));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            let problem =
                "holds no private key in PEM, or one with a passphrase; convert it with openssl pkey";
            TlsError::Key(problem.into())
        })?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| match error {
                Error::InconsistentKeys(_) => TlsError::Key(
                    "is not the key of the first certificate, which must be the server's own".into(),
                ),
                Error::InvalidCertificate(error) => {
                    TlsError::Chain(format!("the first certificate is damaged: {error:?}"))
                }
                error => TlsError::Key(format!("cannot be used: {error}")),
            })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }

    pub(crate) fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Accept<S> {
        self.0.accept_with(stream, |connection| connection.set_buffer_limit(Some(BUFFER)))
    }
}
